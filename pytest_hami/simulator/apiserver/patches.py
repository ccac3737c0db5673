"""Patches: merge, JSON, strategic for the keyed lists of pods and nodes, server-side apply."""

from __future__ import annotations

import copy
from typing import Any

from pytest_hami.simulator.apiserver.errors import StatusError

MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name", "volumes": "name",
    "volumeMounts": "mountPath", "conditions": "type", "taints": "key", "addresses": "type", "ports": "containerPort",
    "imagePullSecrets": "name", "ownerReferences": "uid", "hostAliases": "ip", "containerStatuses": "name",
    "webhooks": "name",
}  # fmt: skip


def merge(target: Any, patch: Any) -> Any:
    """Return RFC 7386 merge patch applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Return a strategic merge patch applied: keyed lists merge by key, others are replaced."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            if key.startswith(("$setElementOrder/", "$retainKeys")):
                continue
            raise StatusError(501, f"the simulator does not implement the strategic merge directive {key}")
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(entry, dict) for entry in value):
            result[key] = _keyed(list(result.get(key) or []), value, MERGE_KEYS[key])
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _keyed(existing: list[dict[str, Any]], patch: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    order = {old.get(key): index for index, old in enumerate(existing)}
    for entry in patch:
        place = next((i for i, old in enumerate(existing) if old.get(key) == entry.get(key)), None)
        if entry.get("$patch") == "delete":
            if place is not None:
                del existing[place]
        elif place is None:
            existing.append(copy.deepcopy(entry))
        else:
            existing[place] = strategic(existing[place], entry)
    return _in_order([entry.get(key) for entry in patch], order, existing, key)


def _in_order(
    patched: list[Any], order: dict[Any, int], merged: list[dict[str, Any]], key: str
) -> list[dict[str, Any]]:
    """Return patched entries in the patch's order; others keep their place before those that were behind them.

    Source: Kubernetes 1.36, apimachinery, pkg/util/strategicpatch/patch.go (mergeSortedSlice).
    """
    by_key = {entry.get(key): entry for entry in merged}
    left = [name for name in dict.fromkeys(patched) if name in by_key]
    right = [entry.get(key) for entry in merged if entry.get(key) not in left]
    result = []
    while left and right:
        comes_first = left[0] not in order or order[left[0]] < order[right[0]]
        result.append((left if comes_first else right).pop(0))
    return [by_key[name] for name in (*result, *left, *right)]


def apply_json(target: Any, operations: Any) -> Any:
    """Return an RFC 6902 JSON patch applied. Raises StatusError 422 for a path or test that fails, 400 for no patch."""
    if not isinstance(operations, list):
        raise StatusError(400, "a JSON patch must be a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operation(document, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise StatusError(
                422, f"the server rejected our request: JSON patch operation {operation} failed"
            ) from None
    return document


def _operation(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation["op"], _steps(operation["path"])
    if op in {"move", "copy"}:
        source = _steps(operation["from"])
        value = copy.deepcopy(_get(document, source))
        if op == "move":
            document = _remove(document, source)
        return _add(document, path, value)
    if op == "remove":
        return _remove(document, path)
    if op == "test":
        if _get(document, path) != operation["value"]:
            raise ValueError("test failed")
        return document
    value = copy.deepcopy(operation["value"])
    if op == "replace":
        _get(document, path)
        if not path:
            return value
        parent = _get(document, path[:-1])
        parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
        return document
    if op == "add":
        return _add(document, path, value)
    raise ValueError(op)


def _steps(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError(pointer)
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _get(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    parent = _get(document, steps[:-1])
    if isinstance(parent, list):
        index = len(parent) if steps[-1] == "-" else int(steps[-1])
        if index > len(parent):
            raise IndexError(index)
        parent.insert(index, value)
    else:
        parent[steps[-1]] = value
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    parent = _get(document, steps[:-1])
    del parent[int(steps[-1]) if isinstance(parent, list) else steps[-1]]
    return document
