"""Which nodes and cards the scheduler knows (HAMi 2.10.0, pkg/scheduler/scheduler.go, pkg/device/nvidia/device.go)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pytest_hami.contract.quantities import parse_quantity
from pytest_hami.contract.register import RegisterError, parse, parse_scores
from pytest_hami.simulator.hami.state import HANDSHAKE, REGISTER, SCORE, NodeRecord, meta, notes_of

OTHER_HANDSHAKES = tuple(f"{HANDSHAKE}-{vendor}" for vendor in ("dcu", "xpu", "va", "biren"))
_WORD = "Requesting"
_TIME = "%Y-%m-%d %H:%M:%S"
_EXPIRY = timedelta(seconds=60)


@dataclass(frozen=True)
class NodePatch:
    """A merge patch of a node's annotations; None removes a key."""

    node: str
    annotations: dict[str, str | None]


@dataclass(frozen=True)
class _Seen:
    """The allocatable count and the register text that the last run saw."""

    allocatable: int = 0
    text: str = ""


class Registry:
    """The node cache and its state machine."""

    def __init__(self, count_name: str, selector: Mapping[str, str]) -> None:
        self._count_name = count_name
        self._selector = dict(selector)
        self._seen: dict[str, _Seen] = {}
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.nodes: dict[str, NodeRecord] = {}

    def event(self, kind: str, node: Mapping[str, Any]) -> bool:
        """Take a node event; True when a run must follow. An update waits for the next run."""
        name = str(meta(node).get("name"))
        if kind == "DELETED":
            self.objects.pop(name, None)
            self.nodes.pop(name, None)
            self._seen.pop(name, None)
            return True
        self.objects[name] = node
        return kind == "ADDED"

    def run(self, now: datetime) -> list[NodePatch]:
        """Refresh the cache from all selected nodes and return the patches of the handshake annotations."""
        patches = []
        for name in sorted(self.objects):
            labels = meta(self.objects[name]).get("labels") or {}
            if any(labels.get(key) != value for key, value in self._selector.items()):
                continue
            patch = self._refresh(name, now)
            if patch:
                patches.append(NodePatch(name, patch))
        return patches

    def _refresh(self, name: str, now: datetime) -> dict[str, str | None]:
        node = self.objects[name]
        notes = notes_of(node)
        stamp = f"{_WORD}_{now.strftime(_TIME)}"
        patch: dict[str, str | None] = {key: stamp for key in OTHER_HANDSHAKES if _WORD not in notes.get(key, "")}
        if _WORD not in notes.get(HANDSHAKE, ""):
            patch[HANDSHAKE] = stamp
        allocatable = self._allocatable(node)
        healthy, stale = self._judge(name, allocatable, notes, now)
        if not healthy:
            if self.nodes.pop(name, None) is not None:
                self._seen.pop(name, None)
                patch[HANDSHAKE] = None
        elif stale:
            record = read_devices(node)
            if record is not None:
                self.nodes[name] = record
        return patch

    def _allocatable(self, node: Mapping[str, Any]) -> int:
        value = ((node.get("status") or {}).get("allocatable") or {}).get(self._count_name, 0)
        return parse_quantity(value) or 0

    def _judge(self, name: str, allocatable: int, notes: Mapping[str, str], now: datetime) -> tuple[bool, bool]:
        healthy, changed = _handshake(notes.get(HANDSHAKE, ""), allocatable, now)
        seen = self._seen.get(name, _Seen())
        text = notes.get(REGISTER, "")
        if allocatable == 0 and seen.allocatable == 0:
            return healthy, changed
        if allocatable != seen.allocatable:
            self._seen[name] = _Seen(allocatable, text)
            return (False, changed) if allocatable == 0 else (True, True)
        if text != seen.text:
            self._seen[name] = _Seen(allocatable, text)
            return healthy, True
        return healthy, changed


def _handshake(text: str, allocatable: int, now: datetime) -> tuple[bool, bool]:
    """Return (healthy, refresh): only a minute-old request of a node without cards is unhealthy."""
    if _WORD not in text:
        return True, True
    _, _, stamp = text.partition("_")
    try:
        asked = datetime.strptime(stamp, _TIME).replace(tzinfo=now.tzinfo)
    except ValueError:
        return True, False
    return now < asked + _EXPIRY or allocatable > 0, False


# Every register run reads every node, and the text of a card changes next to never.
_devices = functools.lru_cache(maxsize=1024)(parse)


def read_devices(node: Mapping[str, Any]) -> NodeRecord | None:
    """Return a node's record from its annotations, None when they are absent, empty or malformed."""
    notes = notes_of(node)
    try:
        devices = _devices(notes.get(REGISTER, ""))
        scores = parse_scores(notes[SCORE]) if SCORE in notes else {}
    except RegisterError:
        return None
    return NodeRecord(devices, node, scores) if devices else None
