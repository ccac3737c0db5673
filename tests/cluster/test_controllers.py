"""What nobody but the modelled controllers does beside a real API server."""

from __future__ import annotations

from pathlib import Path

from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.local import LocalCluster
from pytest_hami.kube.wait import poll
from pytest_hami.settings import assets_in


def test_namespaces_end_with_what_they_hold(assets: Path) -> None:
    programs = {name: path for name, path in assets_in(str(assets)).items() if name in {"etcd", "kube-apiserver"}}
    cluster = LocalCluster("2.10.0", Composition.of_paths(programs), timeout_scale=3)
    cluster.start()
    try:
        client = cluster.client
        for name in ("empty", "full"):
            client.create("Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        client.create(
            "ConfigMap",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "namespace": "full"}},
        )
        for name in ("empty", "full"):
            client.delete("Namespace", name)

        def left() -> set[str]:
            return {found["metadata"]["name"] for found in client.list("Namespace")} & {"empty", "full"}

        poll(lambda: not left(), timeout=30, missing=lambda: f"the end of {left()}")
    finally:
        cluster.stop()
