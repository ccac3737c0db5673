"""Server-side apply: who owns which field, as far as fields of objects go; a list is one field, or merged by its key.

Source: Kubernetes 1.36, structured-merge-diff, and apimachinery, pkg/util/managedfields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_hami.simulator.apiserver import patches
from pytest_hami.simulator.apiserver.errors import StatusError

Path = tuple[str, ...]
# What says which object it is has no owner.
_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"),
             ("metadata", "resourceVersion"), ("metadata", "managedFields")}  # fmt: skip


def fields(body: Mapping[str, Any]) -> frozenset[Path]:
    """Return the paths that an applied object names.

    >>> sorted(fields({"kind": "ConfigMap", "metadata": {"name": "m", "labels": {"a": "1"}}, "data": {"k": "1"}}))
    [('data', 'k'), ('metadata', 'labels', 'a')]
    """
    return frozenset(_leaves(body, ())) - _IDENTITY


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif path:
        yield path


def encode(paths: frozenset[Path]) -> dict[str, Any]:
    """Return paths as FieldsV1.

    >>> encode(frozenset({("data", "k")}))
    {'f:data': {'f:k': {}}}
    """
    found: dict[str, Any] = {}
    for path in sorted(paths):
        place = found
        for key in path:
            place = place.setdefault(f"f:{key}", {})
    return found


def decode(fields_v1: Mapping[str, Any], path: Path = ()) -> frozenset[Path]:
    """Return FieldsV1 as paths.

    >>> decode({"f:data": {"f:k": {}}})
    frozenset({('data', 'k')})
    """
    found: set[Path] = set()
    for key, inner in fields_v1.items():
        here = (*path, key.removeprefix("f:"))
        found |= decode(inner, here) if inner else {here}
    return frozenset(found)


def applied(old: Mapping[str, Any], body: Mapping[str, Any], entry: Mapping[str, Any], force: bool) -> dict[str, Any]:
    """Return ``old`` after a manager applied ``body``; ``entry`` is its entry of managedFields without fields.

    What it owned and no longer names is removed. Raises StatusError 409 for a field that another manager owns and that has
    another value, unless ``force``.
    """
    manager, named = entry["manager"], fields(body)
    entries = list((old.get("metadata") or {}).get("managedFields") or ())
    before = next((decode(e["fieldsV1"]) for e in entries if e["manager"] == manager), frozenset())
    others = [(other, decode(other["fieldsV1"])) for other in entries if other["manager"] != manager]
    taken = {path for path in named if _at(old, path) != _at(body, path)}
    lost = [(other["manager"], path) for other, owned in others for path in sorted(owned & taken)]
    if lost and not force:
        text = "; ".join(f'conflict with "{owner}": .{".".join(path)}' for owner, path in lost)
        causes = [
            {"reason": "FieldManagerConflict", "message": f'conflict with "{owner}"', "field": "." + ".".join(path)}
            for owner, path in lost
        ]
        some = f"{len(lost)} conflict{'s' if len(lost) > 1 else ''}"
        raise StatusError(409, f"Apply failed with {some}: {text}", details={"causes": causes})
    new = patches.strategic(old, body)
    kept = frozenset[Path]().union(*(owned for _, owned in others))
    for path in before - named - kept:
        new = _without(new, path)
    listed = [{**other, "fieldsV1": encode(owned - taken)} for other, owned in others]
    metadata = {**new["metadata"], "managedFields": [*listed, {**entry, "fieldsV1": encode(named)}]}
    return {**new, "metadata": metadata}


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _without(value: Any, path: Path) -> Any:
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {**value, path[0]: _without(value[path[0]], path[1:])}
