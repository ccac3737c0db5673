"""What a test author asks for. Everything heavy is imported inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_hami.cluster.base import Cluster
    from pytest_hami.expect.hami import Hami, LeasedCard, LeasedNode


@pytest.fixture(scope="session")
def hami_kubeconfig(hami_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a kubeconfig of the cluster under test; it goes with pytest's temporary directory."""
    import json

    path = tmp_path_factory.mktemp("hami") / "kubeconfig"
    path.write_text(json.dumps(hami_cluster.kubeconfig), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hami_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster: parts, capabilities, release, timing, ``restart()``, ``configure_*()``."""
    from pytest_hami.plugin import run_of

    return run_of(request.config).ready_cluster()


@pytest.fixture
def hami(request: pytest.FixtureRequest, hami_cluster: Cluster) -> Iterator[Hami]:
    """The facade for one test: a namespace of its own, ``pod()``, ``denied()``, ``usage()``; cleans up.

    A failed clean-up is an error of this test. The test has its fleet for itself while it runs.
    """
    from pytest_hami.plugin import run_of

    with run_of(request.config).lease(request.node) as facade:
        yield facade


@pytest.fixture
def hami_nodes(hami: Hami) -> tuple[LeasedNode, ...]:
    """The leased nodes that have cards."""
    return tuple(node for node in hami.nodes if node.cards)


@pytest.fixture
def hami_node(hami_nodes: tuple[LeasedNode, ...]) -> LeasedNode:
    """The node pin: the first leased node, with the nodeSelector to use."""
    return hami_nodes[0]


@pytest.fixture
def hami_gpus(hami_node: LeasedNode) -> tuple[LeasedCard, ...]:
    """The cards of the pinned node, by index."""
    return hami_node.cards


@pytest.fixture
def hami_gpu(hami_gpus: tuple[LeasedCard, ...]) -> LeasedCard:
    """The first card of the pinned node."""
    return hami_gpus[0]


@pytest.fixture(scope="session")
def hami_mesh() -> None:
    """The mesh; skips by name, since no provider of this version has one."""
    pytest.skip("no mesh: the local provider simulates none yet; remedy: none in this version")
