"""What HAMi counts against ResourceQuota objects (pkg/device/quota.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_hami.contract.quantities import DeviceConfig, parse_quantity
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.state import CardShare, meta, spec

_PREFIX = "limits."


@dataclass
class Entry:
    """Use and limit of one resource of a namespace: MiB (the limit before memoryFactor) or percent."""

    used: int = 0
    limit: int | None = None


class QuotaBook:
    """Limits and use by namespace and resource name."""

    def __init__(self, config: DeviceConfig, rules: Rules) -> None:
        self._config = config
        self._rules = rules
        self._objects: dict[tuple[str, str], dict[str, int]] = {}
        self.entries: dict[tuple[str, str], Entry] = {}

    def fork(self) -> QuotaBook:
        """Return an independent book with the same content."""
        other = QuotaBook(self._config, self._rules)
        other._objects = dict(self._objects)
        other.entries = {key: replace(entry) for key, entry in self.entries.items()}
        return other

    def apply(self, kind: str, quota: Mapping[str, Any]) -> None:
        """Take an event of a ResourceQuota; of two with the same key the last one counts."""
        namespace = str(meta(quota).get("namespace"))
        name = (namespace, str(meta(quota).get("name")))
        for resource in self._objects.pop(name, {}):
            self._entry(namespace, resource).limit = None
        if kind == "DELETED":
            return
        limits = self._limits(spec(quota).get("hard") or {})
        self._objects[name] = limits
        for resource, limit in limits.items():
            self._entry(namespace, resource).limit = limit

    def _limits(self, hard: Mapping[str, Any]) -> dict[str, int]:
        found = {}
        for resource in (self._config.memory_name, self._config.cores_name):
            value = parse_quantity(hard[_PREFIX + resource]) if _PREFIX + resource in hard else None
            if value is not None:
                found[resource] = value
        return found

    def _entry(self, namespace: str, resource: str) -> Entry:
        return self.entries.setdefault((namespace, resource), Entry())

    def fits(self, namespace: str, memory: int, cores: int) -> bool:
        """Whether a namespace may use that many more MiB and percent."""
        for resource, amount, factor in (
            (self._config.memory_name, memory, max(self._config.memory_factor, 1)),
            (self._config.cores_name, cores, 1),
        ):
            entry = self.entries.get((namespace, resource))
            if entry is None or entry.limit is None:
                continue
            if not self._rules.limit_counts(entry.limit):
                continue
            if not self._rules.quota_fits(entry.used, amount, entry.limit * factor):
                return False
        return True

    def add(self, namespace: str, usage: Iterable[CardShare]) -> None:
        """Count the use of a pod."""
        self._count(namespace, usage, 1)

    def remove(self, namespace: str, usage: Iterable[CardShare]) -> None:
        """Give back the use of a pod."""
        self._count(namespace, usage, -1)

    def _count(self, namespace: str, usage: Iterable[CardShare], sign: int) -> None:
        for share in usage:
            memory = self._entry(namespace, self._config.memory_name)
            cores = self._entry(namespace, self._config.cores_name)
            memory.used = self._rules.least_quota_use(memory.used + sign * share.memory)
            cores.used = self._rules.least_quota_use(cores.used + sign * share.cores)
