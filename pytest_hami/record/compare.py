"""Holds a second recording of a scenario against the first: everything that chance does not decide must be equal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract.reasons import parse_failed_scheduling
from pytest_hami.fidelity import observed as seen_as

_CHOSEN = re.compile(r"find fit node\(.*?\)")
TIE = "a choice between equally scored nodes"
RETRIES = "when kube-scheduler tried waiting pods again"
QUOTA = "who enforces Kubernetes' own quotas"
RESOURCES = "which resources kube-scheduler left to HAMi"


@dataclass(frozen=True)
class Difference:
    """One observation that came out otherwise."""

    scenario: str
    where: str
    first: str
    second: str


@dataclass(frozen=True)
class Comparison:
    """What was compared: steps, observations, the differences, and the chance that ended the comparison early, if any."""

    steps: int
    observations: int
    differences: tuple[Difference, ...] = ()
    chance: str = ""


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Compare two recordings of one scenario, until chance has taken them apart."""
    if "managed_resources" in second and "managed_resources" not in first:
        return Comparison(0, 0, chance=RESOURCES)
    found: list[Difference] = []
    steps = observations = 0
    for number, (one, other) in enumerate(zip(first["steps"], second["steps"], strict=True), 1):
        pairs = list(_observations(one["observed"], other["observed"]))
        different = [(what, a, b) for what, a, b in pairs if a != b]
        if different and (chance := _chance(one["observed"], other["observed"])):
            return Comparison(steps, observations, tuple(found), chance)
        steps, observations = steps + 1, observations + len(pairs)
        for what, a, b in different:
            found.append(Difference(str(first["id"]), f"step {number} {one['op']} {what}", _text(a), _text(b)))
    for what in sorted(first["metrics"].keys() & second["metrics"].keys()):
        a, b = first["metrics"][what], second["metrics"][what]
        observations += 1
        if a != b:
            found.append(Difference(str(first["id"]), f"metrics {what}", _text(a), _text(b)))
    return Comparison(steps, observations, tuple(found))


def _observations(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what both tell, in one form: HAMi's own events and reasons only."""
    by_hami = any(seen_as.recorded_events(each.get("events") or ()) for each in (one, other))
    # Of nodes that HAMi has no say in kube-scheduler takes the one it likes.
    placed = ("scheduled",) if by_hami or not (one.get("scheduled") and other.get("scheduled")) else ()
    for what in ("admission", "code", "reason", "message", *placed, "annotations", "completed_by_agent", "devices"):
        # The answer code of a step is told only by some recordings.
        if what in one and what in other:
            yield what, one[what] or None, other[what] or None
    for what in ("vgpu", "quota"):
        if what in one or what in other:
            yield what, one.get(what) or {}, other.get(what) or {}
    if "mutated" in one:
        yield "mutated", _patch(one["mutated"]), _patch(other.get("mutated"))
    if "events" in one:
        yield "events", seen_as.recorded_events(one["events"]), seen_as.recorded_events(other.get("events") or ())
        yield "condition", _condition(one), _condition(other)
    waiting, again = one.get("pending") or {}, other.get("pending") or {}
    for name in sorted(waiting.keys() | again.keys()):
        for what in ("scheduled", "annotations"):
            yield f"{name} {what}", waiting.get(name, {}).get(what), again.get(name, {}).get(what)


def _patch(operations: Any) -> Any:
    return sorted(json.dumps(one, sort_keys=True) for one in operations) if isinstance(operations, list) else operations


def _condition(observed: Mapping[str, Any]) -> Any:
    reason, message = observed.get("pod_condition"), str(observed.get("pod_condition_message"))
    if reason == "SchedulerError":
        return reason, message
    if reason != "Unschedulable" or not any(event["reason"].startswith("Filter") for event in observed["events"]):
        # kube-scheduler's own words.
        return None
    return reason, sorted(parse_failed_scheduling(message).reasons)


def _chance(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if one.get("scheduled") != other.get("scheduled") and _scores(one) and _scores(one) == _scores(other):
        return TIE
    if any("exceeded quota" in str(each.get("message")) for each in (one, other)):
        return QUOTA
    return RETRIES if one.get("pending") or other.get("pending") else ""


def _scores(observed: Mapping[str, Any]) -> set[str]:
    """Return the scores that HAMi told of its nodes, whichever it chose."""
    events = seen_as.recorded_events(observed.get("events") or ())
    return {_CHOSEN.sub("", text) for _, reason, text in events if reason == "FilteringSucceed"}


def _text(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, set) else repr(value)
