"""The table of API behaviours, against our server and against the real kube-apiserver: a difference fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import api_kubectl
import api_objects
import api_pods
import api_watches
import pytest
from api_table import Api, Behaviour

from pytest_hami.cluster import fleet as fleets
from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.local import LocalCluster

ROWS = [row for module in (api_objects, api_pods, api_watches, api_kubectl) for row in module.TABLE.rows]
REAL = ("etcd", "kube-apiserver")


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(scope="module", params=["simulated", "kube-apiserver"])
def server(request: pytest.FixtureRequest, assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    real = {name: assets / name for name in REAL} if request.param == "kube-apiserver" else {}
    cluster = LocalCluster("2.10.0", Composition.of_paths(real))
    cluster.start()
    try:
        fleet = fleets.load("seed-002")
        cluster.provision([fleet])
        node = cluster.node_name(fleet, next(node.name for node in fleet.nodes if node.cards))
        api = Api(cluster.kubeconfig, assets / "kubectl", tmp_path_factory.mktemp("kubectl"), node)
        yield api
        api.close()
    finally:
        cluster.stop()


@pytest.fixture
def api(server: Api, numbers: Iterator[int]) -> Iterator[Api]:
    server.ns = f"table-{next(numbers)}"
    server.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.ns}})
    yield server
    server.ask("DELETE", f"/api/v1/namespaces/{server.ns}")


@pytest.mark.parametrize("behaviour", ROWS, ids=lambda row: row.name)
def test_behaviour(api: Api, behaviour: Behaviour) -> None:
    seen = dict(behaviour.observe(api))
    assert seen == dict(behaviour.expected), seen


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) > 100
