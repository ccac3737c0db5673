"""The difference of two JSON values as a JSON Patch (RFC 6902)."""

from __future__ import annotations

from typing import Any


def json_patch(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the operations that make ``after`` of ``before``; a list of another length is replaced as a whole.

    >>> json_patch({"a": [{"x": 1}], "b/c": [1]}, {"a": [{"x": 1, "y": 2}], "b/c": []})
    [{'op': 'add', 'path': '/a/0/y', 'value': 2}, {'op': 'replace', 'path': '/b~1c', 'value': []}]
    """
    if before == after and type(before) is type(after):
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[dict[str, Any]] = []
        for key in sorted(before.keys() | after.keys()):
            where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after:
                found.append({"op": "remove", "path": where})
            elif key not in before:
                found.append({"op": "add", "path": where, "value": after[key]})
            else:
                found += json_patch(before[key], after[key], where)
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            one for i, pair in enumerate(zip(before, after, strict=True)) for one in json_patch(*pair, f"{path}/{i}")
        ]
    return [{"op": "replace", "path": path, "value": after}]
