"""The scheduler's flags and device configuration (HAMi, cmd/scheduler/main.go)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.releases import NEWEST, Release, Traits, traits

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class ConfigError(ValueError):
    """A flag or value that the scheduler does not know."""


@dataclass(frozen=True)
class SchedulerConfig:
    """What the scheduler of ``release`` was started with; times in seconds."""

    scheduler_name: str = "hami-scheduler"
    node_policy: str = "binpack"
    gpu_policy: str = "spread"
    force_overwrite: bool = True
    node_label_selector: dict[str, str] = field(default_factory=dict)
    node_lock_timeout: float = 300.0
    node_lock_retry_timeout: float = 28.0
    legacy_metrics: bool = False
    release: str = NEWEST
    devices: DeviceConfig = field(default_factory=DeviceConfig)

    @classmethod
    def from_flags(
        cls, device_config: Mapping[str, Any], flags: Mapping[str, Any], release: str = NEWEST
    ) -> SchedulerConfig:
        """Return the configuration from the keys of device-config's ``nvidia:`` section and from command-line flags.

        Flag names may carry their dashes. Raises ConfigError for a flag that ``release`` does not know, ValueError for
        an unknown key.
        """
        values: dict[str, Any] = {}
        known = _known_flags(traits(Release.parse(release)))
        for name, value in flags.items():
            key = name.lstrip("-")
            if key not in known:
                raise ConfigError(f"unknown scheduler flag {name!r}; known are {', '.join(sorted(known))}")
            if key in _FLAGS:
                values[_FLAGS[key]] = _flag(_FLAGS[key], value)
        return cls(**values, devices=DeviceConfig.from_dict(device_config), release=release)

    @property
    def traits(self) -> Traits:
        """How this release differs from others."""
        return traits(Release.parse(self.release))


def _known_flags(of: Traits) -> frozenset[str]:
    missing = set() if of.legacy_metrics else {"legacy-metrics"}
    if not of.lock_contention_suffix:
        missing.add("node-lock-retry-timeout")
    return frozenset({*_FLAGS, *_WITHOUT_EFFECT, *(_DEFAULTS if of.default_flags else ())} - missing)


# How fast HAMi talks to the API server and what it logs changes no decision.
_WITHOUT_EFFECT = frozenset({"kube-qps", "kube-burst", "kube-timeout", "v", "debug"})
_DEFAULTS = frozenset({"default-mem", "default-cores", "default-gpu"})
_FLAGS = {
    "scheduler-name": "scheduler_name",
    "node-scheduler-policy": "node_policy",
    "gpu-scheduler-policy": "gpu_policy",
    "force-overwrite-default-scheduler": "force_overwrite",
    "node-label-selector": "node_label_selector",
    "node-lock-timeout": "node_lock_timeout",
    "node-lock-retry-timeout": "node_lock_retry_timeout",
    "legacy-metrics": "legacy_metrics",
}


def _flag(name: str, value: Any) -> Any:
    if name in ("force_overwrite", "legacy_metrics"):
        return str(value) in _TRUE
    if name == "node_label_selector" and isinstance(value, str):
        pairs = (pair.partition("=") for pair in value.split(",") if pair)
        return {key: text for key, _, text in pairs}
    if name in ("node_lock_timeout", "node_lock_retry_timeout"):
        return parse_duration(value)
    return value


def parse_duration(value: str | float) -> float:
    """Return the seconds of a Go duration. Raises ConfigError.

    >>> parse_duration("5m0s"), parse_duration("4s"), parse_duration(7)
    (300.0, 4.0, 7.0)
    """
    if not isinstance(value, str):
        return float(value)
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ConfigError(f"expected a duration such as 5m0s, seen {value!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
