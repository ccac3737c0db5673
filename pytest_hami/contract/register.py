"""The node annotations ``hami.io/node-nvidia-register`` and ``hami.io/node-nvidia-score``.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go and pkg/device/devices.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


class RegisterError(ValueError):
    """A register or score annotation that HAMi would not accept."""


@dataclass(frozen=True)
class Placement:
    """Where a MIG instance may lie on its card, in memory slices."""

    start: int
    size: int


@dataclass(frozen=True)
class MigProfile:
    """A size of MIG instances: ``memory`` in MiB, ``core`` in percent of a card."""

    name: str
    memory: int
    core: int
    slices: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class Device:
    """One registered card: ``count`` shares, ``devmem`` MiB, ``devcore`` percent.

    A field with a zero value is absent from the annotation, so index 0, NUMA node 0 and an unhealthy card are.
    """

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False
    profiles: tuple[MigProfile, ...] = ()


_FIELDS = {field.name: type(field.default) for field in fields(Device) if field.name != "profiles"}


def parse(text: str) -> tuple[Device, ...]:
    """Return the registered cards in annotation order; unknown fields are ignored. Raises RegisterError.

    >>> parse('[{"id":"GPU-a","count":10,"devmem":4096,"devcore":100,"type":"NVIDIA A10","health":true}]')[0].numa
    0
    """
    document = _json(text)
    if not isinstance(document, list):
        raise RegisterError(f"expected a JSON array, seen {text[:60]!r}")
    return tuple(_device(entry) for entry in document)


def _device(entry: Any) -> Device:
    if not isinstance(entry, dict):
        raise RegisterError(f"expected a JSON object for a card, seen {str(entry)[:60]!r}")
    values: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        value = entry.get(name)
        if value is None:
            continue
        if type(value) is not kind:
            raise RegisterError(f"field {name}: expected {kind.__name__}, seen {str(value)[:60]!r}")
        values[name] = value
    try:
        profiles = tuple(_profile(found) for found in entry.get("migProfiles") or ())
    except (TypeError, AttributeError):
        raise RegisterError(f"field migProfiles: expected profiles, seen {str(entry['migProfiles'])[:60]!r}") from None
    return Device(**values, profiles=profiles)


def _profile(entry: Mapping[str, Any]) -> MigProfile:
    places = tuple(Placement(place.get("start", 0), place.get("size", 0)) for place in entry.get("placements") or ())
    memory, core, slices = (entry.get(name, 0) for name in ("memoryMB", "core", "sliceCount"))
    return MigProfile(entry.get("name", ""), memory, core, slices, places)


def encode(devices: Sequence[Device]) -> str:
    """Return the annotation text as the plugin writes it: fixed field order, no blanks, zero values left out."""
    return go_json([_entry(device) for device in devices])


def _entry(device: Device) -> dict[str, Any]:
    entry = {name: getattr(device, name) for name in _FIELDS if name != "health"}
    entry["migProfiles"] = [_profile_entry(profile) for profile in device.profiles]
    entry["health"] = device.health
    return {name: value for name, value in entry.items() if value not in (0, "", False, [])}


def _profile_entry(profile: MigProfile) -> dict[str, Any]:
    return {
        "name": profile.name, "memoryMB": profile.memory, "core": profile.core, "sliceCount": profile.slices,
        "placements": [asdict(place) for place in profile.placements] or None,
    }  # fmt: skip


def go_json(value: Any) -> str:
    """Return JSON as Go's encoding/json writes it: no blanks, and three characters escaped, so that HTML may hold it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def parse_scores(text: str) -> Mapping[str, Mapping[str, int]]:
    """Return the pair scores by UUID and peer UUID. Raises RegisterError."""
    document = _json(text)
    try:
        return {
            str(entry["uuid"]): {str(k): int(v) for k, v in (entry.get("score") or {}).items()} for entry in document
        }
    except (TypeError, KeyError, ValueError, AttributeError):
        raise RegisterError(f"expected a JSON array of uuid and score, seen {text[:60]!r}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RegisterError(f"not JSON: {text[:60]!r}") from None
