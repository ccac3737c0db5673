"""Reading a pod and its events, as pure functions over what the journal saw."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_TIME = "hami.io/bind-time"
VGPU_TIME = "hami.io/vgpu-time"
BIND_PHASE = "hami.io/bind-phase"
VGPU_NODE = "hami.io/vgpu-node"
REGISTER = "hami.io/node-nvidia-register"
HANDSHAKE = "hami.io/node-handshake"
LOCK = "hami.io/mutex.lock"
HOSTILE_LIMIT = 4096


def annotations(object_: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    return dict(object_.get("metadata", {}).get("annotations") or {})


def hami_annotations(object_: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``hami.io/*`` annotations, each cut to 4 KiB."""
    return {k: v[:HOSTILE_LIMIT] for k, v in sorted(annotations(object_).items()) if k.startswith("hami.io/")}


def traces(pod: Mapping[str, Any], submitted: Mapping[str, Any]) -> list[str]:
    """Return the annotations and labels ``hami.io/*`` that a pod has beyond what was submitted."""
    found = []
    for kind in ("annotations", "labels"):
        own = submitted.get("metadata", {}).get(kind) or {}
        stored = pod.get("metadata", {}).get(kind) or {}
        found += [
            f"{key}={str(stored[key])[:200]}" for key in sorted(stored) if key.startswith("hami.io/") and key not in own
        ]
    return found


def phase(pod: Mapping[str, Any]) -> str:
    """Return status.phase."""
    return str(pod.get("status", {}).get("phase", "Pending"))


def node_name(pod: Mapping[str, Any]) -> str:
    """Return spec.nodeName, or an empty text."""
    return str(pod.get("spec", {}).get("nodeName") or "")


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether condition Ready is True."""
    return any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in pod.get("status", {}).get("conditions", [])
    )


def unschedulable(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message of ``PodScheduled=False``, or None."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return None


def containers(pod: Mapping[str, Any]) -> tuple[tuple[bool, dict[str, Any]], ...]:
    """Return ``(is_init, container)`` in HAMi's order: init containers first."""
    spec = pod.get("spec", {})
    return tuple((True, c) for c in spec.get("initContainers") or []) + tuple(
        (False, c) for c in spec.get("containers") or []
    )


def with_reason(events: Iterable[Mapping[str, Any]], reason: str) -> tuple[str, ...]:
    """Return the messages of the events with this reason."""
    return tuple(str(e.get("message", "")) for e in events if e.get("reason") == reason)


def times(event: Mapping[str, Any]) -> int:
    """Return how often an event was told."""
    return int(event.get("count") or (event.get("series") or {}).get("count") or 1)


def filter_attempts(events: Iterable[Mapping[str, Any]]) -> int:
    """Return how often HAMi's filter ended without a node for a pod.

    HAMi 2.10.0 ends each such attempt with ``no available node, <N> nodes do not meet`` (pkg/scheduler/event.go); the
    recorder counts repetitions, and drops what goes beyond 25 events of one pod (client-go, spam filter).
    """
    return sum(
        times(e)
        for e in events
        if e.get("reason") == "FilteringFailed" and "no available node" in str(e.get("message", ""))
    )


def state_line(pod: Mapping[str, Any] | None) -> str:
    """Return one line that tells the state of a pod."""
    if pod is None:
        return "no such pod"
    parts = [f"phase {phase(pod)}"]
    if node_name(pod):
        parts.append(f"node {node_name(pod)}")
    if pod.get("metadata", {}).get("deletionTimestamp"):
        parts.append("terminating")
    refused = unschedulable(pod)
    if refused:
        parts.append(f"{refused[0]}: {refused[1][:300]}")
    status = pod.get("status", {})
    if status.get("reason"):
        parts.append(f"{status['reason']}: {str(status.get('message', ''))[:300]}")
    parts.append(f"ready {is_ready(pod)}")
    parts.extend(f"{key.removeprefix('hami.io/')}={value[:200]!r}" for key, value in hami_annotations(pod).items())
    return ", ".join(parts)


def changes(
    history: Sequence[tuple[float, str, Mapping[str, Any]]], start: float, nudges: Iterable[tuple[float, str]] = ()
) -> tuple[str, ...]:
    """Return the history of a pod as lines ``+seconds type state``, without repetitions, and with what was done to it."""
    lines: list[str] = []
    done = list(nudges)
    last = ""
    for time, kind, pod in history:
        while done and done[0][0] < time:
            at, text = done.pop(0)
            lines.append(f"+{max(0.0, at - start):.3f}s NUDGED {text}")
        state = state_line(pod)
        if state != last or kind == "DELETED":
            lines.append(f"+{max(0.0, time - start):.3f}s {kind} {state}")
        last = state
    return tuple(lines)
