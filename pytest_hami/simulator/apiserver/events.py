"""Events are one storage: stored as core/v1, shown as events.k8s.io/v1 on request."""

from __future__ import annotations

from typing import Any

_TO_CORE = {
    "regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
    "deprecatedCount": "count", "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
}  # fmt: skip
_TO_EVENTS = {core: name for name, core in _TO_CORE.items()}


def from_events_v1(event: dict[str, Any]) -> dict[str, Any]:
    """Return an events.k8s.io/v1 event as core/v1."""
    core = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return core | {"apiVersion": "v1", "kind": "Event"}


def to_events_v1(event: dict[str, Any]) -> dict[str, Any]:
    """Return a core/v1 event as events.k8s.io/v1."""
    shown = {_TO_EVENTS.get(key, key): value for key, value in event.items()}
    return shown | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
