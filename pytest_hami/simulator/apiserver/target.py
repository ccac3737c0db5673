"""What a URL path names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from pytest_hami.simulator.apiserver.kinds import Kind, Registry


@dataclass(frozen=True)
class Target:
    """A resource, or an object of it, or a subresource of that; ``rest`` is what follows a proxy."""

    kind: Kind
    namespace: str
    name: str
    subresource: str
    rest: str = ""


def parse_target(path: str, registry: Registry) -> Target | None:
    """Return the target of a path, None when nothing is served there."""
    steps = [unquote(step) for step in path.strip("/").split("/")]
    if steps[0] == "api" and len(steps) > 2:
        group, version, rest = "", steps[1], steps[2:]
    elif steps[0] == "apis" and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    kind = registry.find(group, version, rest[0])
    if kind is None or (namespace and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and kind.namespaced and not namespace:
        return None
    return Target(kind, namespace, name, rest[2] if len(rest) > 2 else "", "/".join(rest[3:]))
