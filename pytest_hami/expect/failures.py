"""Refuted claims and unusable observations, as typed objects that the report can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_hami.checks import Capability
from pytest_hami.text import clean, one_line

LINES = 40


@dataclass(frozen=True)
class Failure:
    """What was expected and what was seen, with the history that led there.

    ``reason`` is what the system itself said (a condition, an event, an error); ``where`` names object and field.
    """

    expected: str
    seen: str
    where: str = ""
    difference: str = ""
    reason: str = ""
    timeline: tuple[str, ...] = ()
    events: tuple[Mapping[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the event stream."""
        return asdict(self) | {"timeline": list(self.timeline), "events": [dict(event) for event in self.events]}

    def __str__(self) -> str:
        # This goes to a terminal, which must not obey what a cluster wrote.
        expected = f"expected {clean(self.expected)}"
        parts = [f"{clean(self.where)}: {expected}" if self.where else expected, f"seen: {clean(self.seen)}"]
        if self.difference:
            parts.append(f"difference: {clean(self.difference)}")
        if self.reason:
            parts.append(f"reason given: {clean(self.reason)}")
        if self.events:
            parts.append("events:")
            parts.extend(
                f"  {one_line(e.get('type', ''))} {one_line(e.get('reason', ''))}: {one_line(e.get('message', ''), 1000)}"
                for e in self.events[:LINES]
            )
        if self.timeline:
            parts.append("history:")
            parts.extend(f"  {one_line(line, 1000)}" for line in self.timeline[:LINES])
        return "\n".join(parts)


class MissingCapability(Exception):
    """A check went as far as this cluster can go: outcome ``skipped`` or ``unsupported``."""

    def __init__(self, capability: Capability) -> None:
        super().__init__(f"this cluster cannot show {capability}")
        self.capability = capability


class NotPromised(Exception):
    """A check asks for what the release under test does not promise: outcome ``unsupported``. The text says why."""


class Verdict(Exception):
    """Base of everything that ends a check with a typed failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class ClaimFailed(Verdict, AssertionError):
    """The claim was refuted: outcome ``failed``."""


class DeviationChanged(Verdict, AssertionError):
    """A known difference is gone or different: outcome ``changed``."""


class InvalidObservation(Verdict):
    """A guard failed, so the observation says nothing: outcome ``invalid``."""


class Inconclusive(Verdict):
    """Noise above the limit: outcome ``inconclusive``."""


def difference(expected: Mapping[str, object], seen: Mapping[str, object]) -> str:
    """Return the keys that differ, one ``key: expected -> seen`` each, in key order.

    >>> difference({"memory": 4096, "cores": 25}, {"memory": 0, "cores": 25})
    'memory: expected 4096, seen 0'
    """
    absent = "nothing"
    return "; ".join(
        f"{key}: expected {expected.get(key, absent)}, seen {seen.get(key, absent)}"
        for key in sorted({*expected, *seen})
        if expected.get(key, absent) != seen.get(key, absent)
    )


def require(condition: bool, expected: str, seen: object, where: str = "", **extra: Any) -> None:
    """Raise ClaimFailed unless ``condition`` holds."""
    if not condition:
        raise ClaimFailed(Failure(expected=expected, seen=str(seen), where=where, **extra))


def require_equal(expected: Mapping[str, object], seen: Mapping[str, object], where: str, **extra: Any) -> None:
    """Raise ClaimFailed naming each differing key unless both mappings are equal."""
    if dict(expected) != dict(seen):
        raise ClaimFailed(
            Failure(_flat(expected), _flat(seen), where=where, difference=difference(expected, seen), **extra)
        )


def _flat(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={values[key]}" for key in sorted(values)) or "nothing"


def event_rows(events: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], ...]:
    """Return core/v1 events as the rows that a report shows."""
    rows = []
    for event in events:
        time = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or ""
        component = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
        rows.append(
            {
                "time": str(time),
                "type": str(event.get("type", "")),
                "reason": str(event.get("reason", "")),
                "message": str(event.get("message", "")),
                "component": str(component),
            }
        )
    return tuple(sorted(rows, key=lambda row: row["time"]))
