"""Nodes that nobody runs pods on: they only make HAMi look at what they register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAINT = {"key": "pytest-hami.io/poke", "effect": "NoSchedule"}


def bystander(
    name: str, annotations: Mapping[str, str], *, shares: int, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a Node that no pod tolerates, whole at once: with annotations and ``shares`` as nvidia.com/gpu.

    A node that arrives whole is known to HAMi with the register run which its own arrival causes (HAMi 2.10.0,
    pkg/scheduler/scheduler.go, register).
    """
    capacity = {"cpu": "1", "memory": "1Gi", "pods": "1", "nvidia.com/gpu": str(shares)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations),
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }
