"""What a real system does now and then and gets over: told and counted, it fails no check about something else.

Sources: HAMi 2.10.0, pkg/scheduler/scheduler.go (Bind reads the pod from a cache), pkg/util/nodelock/nodelock.go; client-go,
tools/record/events_cache.go (25 events of one object; its type counts for itself since 0.32).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytest_hami.contract.releases import Traits
from pytest_hami.expect import observe

EVENT_LIMIT = 25
_UNKNOWN_POD = re.compile(r'pod "[^"]*" not found')
_CONTENTION = re.compile(r"node \S+ has been locked within")


class Kind(StrEnum):
    """The disturbances that are known."""

    LOST_WAKE_UP = "lost-wake-up"
    BIND_RACE = "bind-race"
    LOCK_CONTENTION = "lock-contention"
    EVENTS_DROPPED = "events-dropped"


@dataclass(frozen=True)
class Disturbance:
    """One disturbance of one pod: ``told`` is what the system said, or what was done about it."""

    kind: Kind
    pod: str
    told: str

    def to_dict(self) -> dict[str, str]:
        """Return plain data for the event stream."""
        return {"kind": str(self.kind), "pod": self.pod, "told": self.told[: observe.HOSTILE_LIMIT]}


def kind_of(message: str) -> Kind | None:
    """Return which disturbance an error of a bind is, None for one that is none.

    >>> kind_of("node w1 has been locked within 5m0s: node lock contention")
    <Kind.LOCK_CONTENTION: 'lock-contention'>
    """
    if _UNKNOWN_POD.match(message):
        return Kind.BIND_RACE
    return Kind.LOCK_CONTENTION if _CONTENTION.match(message) else None


def of_binds(
    history: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> tuple[tuple[Kind, str, int], ...]:
    """Return the disturbed binds of a pod as ``(kind, text, how often)``: an event counts, a state is seen once."""
    found: dict[str, int] = {}
    for state in history:
        refused = observe.unschedulable(state)
        if refused is not None and refused[0] == "SchedulerError":
            found.setdefault(refused[1], 1)
    told: dict[str, int] = {}
    for event in events:
        if event.get("reason") == "BindingFailed":
            text = str(event.get("message", ""))
            told[text] = told.get(text, 0) + observe.times(event)
    return tuple((kind, text, often) for text, often in (found | told).items() if (kind := kind_of(text)) is not None)


def may_miss_events(events: Sequence[Mapping[str, Any]], kind: str, traits: Traits) -> bool:
    """Return whether HAMi said so much about a pod that its recorder drops further events of a kind, such as ``Normal``."""
    own = [e for e in events if str(e.get("reason", "")).startswith(("Filtering", "Binding"))]
    counted = [e for e in own if e.get("type") == kind or not traits.event_limit_by_type]
    return sum(map(observe.times, counted)) >= EVENT_LIMIT
