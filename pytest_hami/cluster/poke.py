"""The poke: a node that comes and goes, and with it a register run of the HAMi scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_hami.kube.client import KubeClient

# HAMi asks a node for a handshake, one API call after the other for each vendor, unless it is asked already; this question
# never gets old (HAMi 2.10.0, pkg/device/devices.go, CheckHealth).
ASKED = "Requesting_2999-01-01 00:00:00"
HANDSHAKES = {f"hami.io/node-handshake{vendor}": ASKED for vendor in ("", "-dcu", "-xpu", "-va", "-biren")}
DEVICE = '[{{"id":"{uuid}","count":1,"devmem":1,"devcore":100,"type":"NVIDIA poke","mode":"hami-core","health":true}}]'


def poke(
    client: KubeClient, name: str, metrics: Callable[[], str], limit: float, labels: Mapping[str, str] | None = None
) -> str:
    """Add a tainted node, wait for its series, remove it; return the metrics in which the series were seen.

    They are those of a register run that began after this call, or of a later one. ``labels`` are what HAMi wants of a
    node that it looks at. Raises WaitTimeout.
    Source: HAMi 2.10.0, pkg/scheduler/scheduler.go (register runs on the tick and on Node ADD and DELETE).
    """
    from pytest_hami.kube.wait import poll

    uuid = f"GPU-{name}"
    client.create("Node", _node(name, uuid, labels or {}))
    try:
        return poll(
            lambda: text if uuid in (text := metrics()) else "",
            timeout=limit,
            missing=lambda: f"a register run: the series of node {name} in the HAMi scheduler's /metrics",
        )
    finally:
        client.delete("Node", name)


def _node(name: str, uuid: str, labels: Mapping[str, str]) -> dict[str, Any]:
    capacity = {"cpu": "1", "memory": "1Gi", "pods": "1", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **labels},
            "annotations": {"hami.io/node-nvidia-register": DEVICE.format(uuid=uuid), **HANDSHAKES},
        },
        "spec": {"taints": [{"key": "pytest-hami.io/poke", "effect": "NoSchedule"}]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }
