"""The difference of two JSON documents as an RFC 6902 patch."""

from __future__ import annotations

from typing import Any


def diff(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the operations that turn ``before`` into ``after``.

    >>> diff({"a": [1], "b": 2}, {"a": [1, 3], "b": 4})
    [{'op': 'add', 'path': '/a/1', 'value': 3}, {'op': 'replace', 'path': '/b', 'value': 4}]
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return _objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _arrays(before, after, path)
    return [] if before == after else [{"op": "replace", "path": path, "value": after}]


def _objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for key in sorted({*before, *after}):
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            operations.append({"op": "remove", "path": place})
        elif key not in before:
            operations.append({"op": "add", "path": place, "value": after[key]})
        else:
            operations.extend(diff(before[key], after[key], place))
    return operations


def _arrays(before: list[Any], after: list[Any], path: str) -> list[dict[str, Any]]:
    common = min(len(before), len(after))
    operations = [one for at in range(common) for one in diff(before[at], after[at], f"{path}/{at}")]
    operations.extend({"op": "remove", "path": f"{path}/{at}"} for at in range(len(before) - 1, common - 1, -1))
    operations.extend({"op": "add", "path": f"{path}/{at}", "value": after[at]} for at in range(common, len(after)))
    return operations
