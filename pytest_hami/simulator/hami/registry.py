"""Which nodes and cards the scheduler knows (HAMi, pkg/scheduler/scheduler.go, pkg/device/nvidia/device.go)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pytest_hami.contract.quantities import parse_quantity
from pytest_hami.contract.register import RegisterError, parse, parse_scores
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.state import HANDSHAKE, REGISTER, SCORE, NodeRecord, meta, notes_of

OTHER_HANDSHAKES = tuple(f"{HANDSHAKE}-{vendor}" for vendor in ("dcu", "xpu", "va", "biren"))
_WORD = "Requesting"
_DELETED = "Deleted"
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


@dataclass(frozen=True)
class _Sign:
    """What a handshake annotation says, and whether it is stamped anew."""

    healthy: bool
    refresh: bool
    stamp: bool


class Registry:
    """The node cache and its state machine."""

    def __init__(self, count_name: str, selector: Mapping[str, str], rules: Rules) -> None:
        self._rules = rules
        self._count_name = count_name
        self._selector = dict(selector)
        self._seen: dict[str, _Seen] = {}
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.nodes: dict[str, NodeRecord] = {}

    def fork(self) -> Registry:
        """Return an independent registry with the same content."""
        other = Registry(self._count_name, self._selector, self._rules)
        other._seen, other.objects, other.nodes = dict(self._seen), dict(self.objects), dict(self.nodes)
        return other

    def event(self, kind: str, node: Mapping[str, Any]) -> bool:
        """Take a node event; True when a run must follow. An update waits for the next run."""
        name = str(meta(node).get("name"))
        if kind == "DELETED":
            self.objects.pop(name, None)
            self.nodes.pop(name, None)
            if self._rules.forgets_on_delete():
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
        node, rules = self.objects[name], self._rules
        notes = notes_of(node)
        record = read_devices(node)
        if record is None and not rules.judges_without_cards():
            return {}
        stamp = f"{_WORD}_{now.strftime(_TIME)}"
        patch: dict[str, str | None] = {}
        if rules.judges_without_cards():
            patch = {key: stamp for key in OTHER_HANDSHAKES if _WORD not in notes.get(key, "")}
        allocatable = self._allocatable(node)
        sign = self._handshake(notes.get(HANDSHAKE, ""), allocatable, now)
        if sign.stamp:
            patch[HANDSHAKE] = stamp
        healthy, stale = self._judge(name, allocatable, notes.get(REGISTER, ""), sign)
        if not healthy:
            if self.nodes.pop(name, None) is not None or rules.cleans_unknown():
                if rules.forgets_on_cleanup():
                    self._seen.pop(name, None)
                patch[HANDSHAKE] = rules.farewell(now.strftime(_TIME))
        elif stale and record is not None:
            self.nodes[name] = record
        return patch

    def _allocatable(self, node: Mapping[str, Any]) -> int:
        value = ((node.get("status") or {}).get("allocatable") or {}).get(self._count_name, 0)
        return parse_quantity(value) or 0

    def _judge(self, name: str, allocatable: int, text: str, sign: _Sign) -> tuple[bool, bool]:
        """Return whether a node is healthy and whether its cards are to be read again."""
        seen = self._seen.get(name, _Seen())
        if allocatable == 0 and seen.allocatable == 0:
            return sign.healthy, sign.refresh
        if allocatable != seen.allocatable:
            self._seen[name] = _Seen(allocatable, text)
            return (False, sign.refresh) if allocatable == 0 else (True, True)
        if text != seen.text and self._rules.notices_register_text():
            self._seen[name] = _Seen(allocatable, text)
            return sign.healthy, True
        return sign.healthy, sign.refresh

    def _handshake(self, text: str, allocatable: int, now: datetime) -> _Sign:
        """Return what the handshake annotation says: only a minute-old request of a node without cards is unhealthy."""
        rules = self._rules
        if not rules.stamps():
            return _Sign(True, False, False)
        _, separator, stamp = text.partition("_")
        told = _parse_time(stamp, now) if separator else None
        if _WORD in text:
            if told is None:
                return _Sign(rules.believes_bad_time() or allocatable > 0, False, False)
            return _Sign(now < told + _EXPIRY or allocatable > 0, False, False)
        if _DELETED in text and rules.recovers_deleted():
            over = told is not None and now >= told + _EXPIRY
            return _Sign(True, over, over)
        return _Sign(True, True, True)


def _parse_time(text: str, now: datetime) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=now.tzinfo)
    except ValueError:
        return None


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
