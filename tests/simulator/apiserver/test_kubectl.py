"""What a person types: kubectl against the embedded cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.cluster import fleet as fleets
from pytest_hami.cluster.local import LocalCluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
MANIFEST: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shared", "labels": {"app": "x"}},
    "spec": {"containers": [{
        "name": "main", "image": "busybox",
        "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "25"}},
    }]},
}  # fmt: skip


@pytest.fixture(scope="module")
def kubectl(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    binary = str(assets / "kubectl")
    home = tmp_path_factory.mktemp("kubectl")
    cluster = LocalCluster("2.10.0")
    cluster.start()
    cluster.provision([fleets.load("seed-002")])
    (home / "config").write_text(json.dumps(cluster.kubeconfig))

    def run(*arguments: str, text: object = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [binary, "--kubeconfig", str(home / "config"), "--request-timeout=10s", *arguments],
            input=None if text is None else json.dumps(text), capture_output=True, text=True, timeout=30, check=False,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == code, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done

    yield run
    cluster.stop()


def test_a_pod_from_apply_to_delete(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", text=MANIFEST).stdout == "pod/shared created\n"
    assert kubectl("apply", "-f", "-", text=MANIFEST).stdout == "pod/shared unchanged\n"
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/shared", "--timeout=10s").stdout
    header, row = kubectl("get", "pods", "-o", "wide").stdout.splitlines()
    assert header.split()[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert row.split()[:4] == ["shared", "1/1", "Running", "0"]
    described = kubectl("describe", "pod", "shared").stdout
    assert "hami.io/vgpu-devices-allocated:" in described
    assert "FilteringSucceed" in described
    assert "BindingSucceed" in described
    env = kubectl("exec", "shared", "--", "env").stdout
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=4096m" in env
    smi = kubectl("exec", "shared", "--", "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    assert smi.stdout.strip() == "4096"
    kubectl("exec", "shared", "--", "cat", "/nowhere", code=1)
    kubectl("logs", "shared")
    kubectl("label", "pod", "shared", "tier=gold")
    assert kubectl("get", "pods", "-l", "tier=gold", "-o", "name").stdout == "pod/shared\n"
    kubectl("annotate", "pod", "shared", "note=1")
    assert kubectl("get", "pod", "shared", "-o", "jsonpath={.metadata.annotations.note}").stdout == "1"
    assert "shared" in kubectl("delete", "pod", "shared").stdout
    assert "NotFound" in kubectl("get", "pod", "shared", code=1).stderr


def test_a_refused_pod_says_why(kubectl: Kubectl) -> None:
    large = json.loads(json.dumps(MANIFEST))
    large["metadata"]["name"] = "large"
    large["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "40961"
    kubectl("apply", "-f", "-", text=large)
    kubectl("wait", "--for=condition=PodScheduled=False", "pod/large", "--timeout=10s")
    described = kubectl("describe", "pod", "large").stdout
    assert "2/2 CardInsufficientMemory" in described
    kubectl("delete", "pod", "large", "--now")


def test_nodes_namespaces_and_events(kubectl: Kubectl) -> None:
    nodes = kubectl("get", "nodes").stdout
    assert "seed-002-w1" in nodes
    assert "Ready" in nodes
    assert "nvidia.com/gpu" in kubectl("describe", "node", "seed-002-w1").stdout
    kubectl("apply", "-f", "-", text={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    kubectl("get", "events", "-A")
    kubectl("get", "deployments", "-A")
    kubectl("api-resources")
    assert "Server Version" in kubectl("version").stdout
    kubectl("delete", "namespace", "team")


def test_server_side_apply_and_a_dry_run(kubectl: Kubectl) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=body).stdout
    kubectl("create", "--dry-run=server", "-f", "-", text={**body, "metadata": {"name": "d"}})
    assert "NotFound" in kubectl("get", "configmap", "d", code=1).stderr


def test_what_is_missing_is_named(kubectl: Kubectl) -> None:
    done = kubectl("port-forward", "pod/none", "8080:80", code=1)
    assert "NotFound" in done.stderr or "501" in done.stderr
