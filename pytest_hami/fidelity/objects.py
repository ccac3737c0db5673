"""The objects that a scenario's words stand for, the same for the replay and for a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_hami.contract import register

REGISTER = "hami.io/node-nvidia-register"
# What every node has plenty of, so that only what the scenario is about can be short.
_PLENTY = {"cpu": "1000", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "10000"}


def flags(scenario: Mapping[str, Any]) -> dict[str, str]:
    """Return the scheduler's flags of a scenario by name, without dashes."""
    return dict(_flag(text) for text in scenario.get("scheduler_flags") or [])


def _flag(text: str) -> tuple[str, str]:
    name, separator, value = text.lstrip("-").partition("=")
    return name, value if separator else "true"


def node(fleet: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata and allocatable resources of a node of the record's form."""
    devices = fleet.get("devices") or []
    notes = dict(fleet.get("annotations") or {})
    if "register" in fleet or devices:
        notes[REGISTER] = fleet.get("register") or register_text(devices)
    count = fleet.get("allocatable", sum(device.get("count", 0) for device in devices))
    return {
        "metadata": {
            "name": fleet["node"],
            "labels": {"kubernetes.io/hostname": fleet["node"][:63], **(fleet.get("labels") or {})},
            "annotations": notes,
        },
        "status": {"allocatable": {**_PLENTY, **({"nvidia.com/gpu": str(count)} if count else {})}},
    }


def node_patch(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch of a step ``update_node``."""
    notes = dict(step.get("annotations") or {})
    if step.get("devices") is not None:
        notes[REGISTER] = register_text(step["devices"])
    patch: dict[str, Any] = {"metadata": {"annotations": notes, "labels": step.get("labels") or {}}}
    if step.get("allocatable") is not None:
        patch["status"] = {"allocatable": {"nvidia.com/gpu": str(step["allocatable"])}}
    if step.get("unschedulable") is not None:
        patch["spec"] = {"unschedulable": step["unschedulable"]}
    return patch


def register_text(devices: Sequence[Mapping[str, Any]]) -> str:
    """Return the register annotation of these cards."""
    return register.encode([register.Device(**device) for device in devices])


def pod_key(step: Mapping[str, Any]) -> tuple[str, str]:
    """Return namespace and name of the pod that a step is about."""
    if "object" in step:
        metadata = step["object"]["metadata"]
        return metadata.get("namespace", "default"), metadata["name"]
    return step.get("namespace", "default"), step["pod"]
