"""The shape of a scenario of the scheduler, with or without observations, as fixtures/evidence/README.md describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pytest_hami.contract.register import Device

Types = tuple[type, ...]
_TEXT: Types = (str,)
_MAP: Types = (dict,)
_LIST: Types = (list,)
_WHOLE: Types = (int,)
_TEXT_OR_NONE: Types = (str, type(None))
_DEVICE: Mapping[str, Types] = {field.name: (type(field.default),) for field in fields(Device)}
_NODE_MAY: Mapping[str, Types] = {
    "labels": _MAP, "annotations": _MAP, "devices": _LIST, "register": _TEXT, "allocatable": _WHOLE,
}  # fmt: skip
# What each step must have, and what it may have.
STEPS: Mapping[str, tuple[Mapping[str, Types], Mapping[str, Types]]] = {
    "create": ({"object": _MAP}, {"agent": (bool,), "timeout": (int, float), "ns_labels": _MAP}),
    "delete": ({"pod": _TEXT}, {"namespace": _TEXT, "grace": _WHOLE}),
    "complete": ({"pod": _TEXT}, {"namespace": _TEXT}),
    "fail": ({"pod": _TEXT}, {"namespace": _TEXT}),
    "status": ({"pod": _TEXT, "status": _MAP}, {"namespace": _TEXT}),
    "patch_pod": ({"pod": _TEXT, "patch": _MAP}, {"namespace": _TEXT}),
    "quota": ({"namespace": _TEXT, "hard": (dict, type(None))}, {"name": _TEXT}),
    "update_node": (
        {"node": _TEXT},
        {
            "annotations": _MAP, "labels": _MAP, "devices": _LIST, "allocatable": _WHOLE, "unschedulable": (bool,),
            "register_run": (bool,),
        },
    ),
    "register_run": ({}, {}),
    "restart_scheduler": ({}, {}),
    "add_node": ({"fleet_node": _MAP}, {}),
    "delete_node": ({"node": _TEXT}, {}),
    "sleep": ({"seconds": (int, float)}, {}),
    "node_annotations": ({"node": _TEXT}, {}),
}  # fmt: skip
_DENIED: Mapping[str, Types] = {"code": _WHOLE, "reason": _TEXT_OR_NONE, "message": _TEXT}
_ALLOWED: Mapping[str, Types] = {
    "mutated": (list, str), "scheduled": _TEXT_OR_NONE, "annotations": _MAP, "events": _LIST,
}  # fmt: skip
_SEEN_MAY: Mapping[str, Types] = {"pending": _MAP, "vgpu": _MAP, "quota": _MAP, "devices": _MAP}
_EVENT: Mapping[str, Types] = {"type": _TEXT, "reason": _TEXT, "message": _TEXT}


class SchemaError(ValueError):
    """A record that misses a field or holds something else there."""


def check_inputs(data: Mapping[str, Any]) -> None:
    """Raise SchemaError with the first field of a scenario's nodes and steps that is not as described."""
    must(data, "", {"id": _TEXT, "kind": _TEXT, "fleet": _LIST, "steps": _LIST})
    may(data, "", {"scheduler_flags": _LIST, "device_config": _MAP, "managed_resources": _LIST, "release": _TEXT})
    for i, node in enumerate(data["fleet"]):
        _check_node(node, f"fleet[{i}]")
    for i, step in enumerate(data["steps"]):
        _check_step(step, f"steps[{i}]")


def check_observed(data: Mapping[str, Any]) -> None:
    """Raise SchemaError with the first observation of a scenario that is not as described."""
    must(data, "", {"metrics": _MAP})
    must(data["metrics"], "metrics.", {"after": _MAP})
    may(data["metrics"], "metrics.", {"before": _MAP, "vgpu_after": _MAP, "quota_after": _MAP})
    for i, step in enumerate(data["steps"]):
        must(step, f"steps[{i}].", {"observed": _MAP})
        observed, where = step["observed"], f"steps[{i}].observed."
        may(observed, where, _SEEN_MAY)
        if step["op"] == "create":
            must(observed, where, {"admission": _TEXT})
            if observed["admission"] not in ("allowed", "denied"):
                raise SchemaError(f"field {where}admission: expected allowed or denied, seen {observed['admission']!r}")
            denied = observed["admission"] == "denied"
            must(observed, where, _DENIED if denied else _ALLOWED)
        elif step["op"] == "node_annotations":
            must(observed, where, {"annotations": _MAP})
        for j, event in enumerate(observed.get("events") or []):
            must(event, f"{where}events[{j}].", _EVENT)
        for name, state in (observed.get("pending") or {}).items():
            must(state, f"{where}pending[{name}].", {"annotations": _MAP, "events": _LIST})


def must(data: Any, where: str, wanted: Mapping[str, Types]) -> None:
    """Raise SchemaError for the first field that is missing or of another type."""
    if not isinstance(data, dict):
        raise SchemaError(f"field {where.rstrip('.')}: expected {_named(_MAP)}, seen {type(data).__name__}")
    for field, types in wanted.items():
        if field not in data or not _is(data[field], types):
            seen = type(data[field]).__name__ if field in data else "nothing"
            raise SchemaError(f"field {where}{field}: expected {_named(types)}, seen {seen}")


def may(data: Mapping[str, Any], where: str, wanted: Mapping[str, Types]) -> None:
    """Raise SchemaError for the first of these fields that is there and of another type, None being absent."""
    must(data, where, {field: types for field, types in wanted.items() if data.get(field) is not None})


def _check_node(node: Any, where: str) -> None:
    must(node, f"{where}.", {"node": _TEXT})
    may(node, f"{where}.", _NODE_MAY)
    _check_devices(node.get("devices") or [], f"{where}.devices")


def _check_devices(devices: list[Any], where: str) -> None:
    for i, device in enumerate(devices):
        must(device, f"{where}[{i}].", {})
        for field in device:
            if field not in _DEVICE:
                raise SchemaError(f"field {where}[{i}].{field}: expected one of {', '.join(_DEVICE)}")
        must(device, f"{where}[{i}].", {field: _DEVICE[field] for field in device})


def _check_step(step: Any, where: str) -> None:
    must(step, f"{where}.", {"op": _TEXT})
    if step["op"] not in STEPS:
        raise SchemaError(f"field {where}.op: expected one of {', '.join(STEPS)}, seen {step['op'][:40]!r}")
    needed, possible = STEPS[step["op"]]
    must(step, f"{where}.", needed)
    may(step, f"{where}.", possible)
    if step["op"] == "create":
        must(step["object"], f"{where}.object.", {"metadata": _MAP, "spec": _MAP})
        must(step["object"]["metadata"], f"{where}.object.metadata.", {"name": _TEXT, "namespace": _TEXT})
        must(step["object"]["spec"], f"{where}.object.spec.", {"containers": _LIST})
    if step["op"] == "add_node":
        _check_node(step["fleet_node"], f"{where}.fleet_node")
    _check_devices(step.get("devices") or [], f"{where}.devices")


def _is(value: Any, types: Types) -> bool:
    # A yes or no is no number, although Python takes it for one.
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _named(types: Types) -> str:
    return " or ".join("null" if one is type(None) else one.__name__ for one in types)
