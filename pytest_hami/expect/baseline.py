"""The baselines that every running and every refused pod must meet, as pure functions over observations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytest_hami.contract import allocation, quantities, reasons, releases
from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.events import EventError, FilterFailed, FilterSucceeded, NoAvailableNode, parse_event
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.register import Device
from pytest_hami.expect import observe
from pytest_hami.expect.disturbances import kind_of, may_miss_events
from pytest_hami.expect.failures import ClaimFailed, Failure, event_rows, require, require_equal

# The type that makes HAMi 2.10.0 keep the positions of containers without cards (pkg/device/devices.go).
EXACT_TYPE = "NVIDIA"
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
# HAMi and kube-scheduler both sign with the name of the scheduler that the pod was handed to.
COMPONENT = "hami-scheduler"
# Scores are told with two decimals.
ROUNDING = 0.011


@dataclass(frozen=True)
class Placement:
    """The cards of a pod: groups as annotated, shares by container, and ``(is_init, share)`` for accounting."""

    groups: tuple[tuple[DeviceShare, ...], ...]
    by_container: Mapping[str, tuple[DeviceShare, ...]]
    shares: tuple[tuple[bool, DeviceShare], ...]


def missing_to_run(
    pod: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    locks: Sequence[str] | None,
    traits: releases.Traits,
) -> list[str]:
    """Return by name what a pod still lacks to be running under HAMi; empty when nothing is missing.

    ``locks`` are the values of its node's lock, newest first, None where the history of the node has a gap. A pod with
    cards in an app container takes the lock and gives it back (HAMi 2.10.0, pkg/scheduler/scheduler.go, Bind).
    """
    missing = []
    if not observe.node_name(pod):
        missing.append("spec.nodeName")
    phase = observe.annotations(pod).get(observe.BIND_PHASE, "absent")
    if phase != "success":
        missing.append(f"annotation {observe.BIND_PHASE}=success (it is {phase})")
    if not may_miss_events(events, "Normal", traits):
        missing.extend(f"event {reason}" for reason in ("FilteringSucceed", "BindingSucceed")
                       if not observe.with_reason(events, reason))  # fmt: skip
    if observe.phase(pod) != "Running":
        missing.append(f"phase Running (it is {observe.phase(pod)})")
    elif not observe.is_ready(pod):
        missing.append("condition Ready")
    owner = f",{pod['metadata']['namespace']},{pod['metadata']['name']}"
    takes = any(asks_for_cards(container) for is_init, container in observe.containers(pod) if not is_init)
    if locks is not None and takes and observe.node_name(pod):
        if not any(lock.endswith(owner) for lock in locks):
            missing.append(f"node lock {observe.LOCK} taken by this pod")
        elif locks[0].endswith(owner):
            missing.append(f"release of node lock {observe.LOCK}={locks[0]}")
    return missing


def placement(pod: Mapping[str, Any], registered: Sequence[Device], traits: releases.Traits) -> Placement:
    """Return the cards of a pod after asserting annotations and container positions. Raises ClaimFailed."""
    where = f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
    notes = observe.annotations(pod)
    node = observe.node_name(pod)
    require_equal(
        {"annotation": node, "label": node},
        {
            "annotation": notes.get(observe.VGPU_NODE),
            "label": pod["metadata"].get("labels", {}).get(observe.VGPU_NODE),
        },
        f"{where} {observe.VGPU_NODE}",
    )
    rest = notes.get(observe.TO_ALLOCATE, "absent")
    require(
        bool(rest) and not rest.strip(";"), "only empty groups, at least one", rest,
        where=f"{where} annotation {observe.TO_ALLOCATE}",
    )  # fmt: skip
    text = notes.get(observe.ALLOCATED, "")
    try:
        groups = allocation.parse(text)
    except allocation.AllocationError as error:
        require(
            False,
            "a well-formed allocation",
            f"{text[:500]!r}: {error}",
            where=f"{where} annotation {observe.ALLOCATED}",
        )
        raise
    asking = [(c["name"], asks_for_cards(c)) for _, c in observe.containers(pod)]
    kept = traits.positions_kept_for_models or any(device.type == EXACT_TYPE for device in registered)
    try:
        by_container = allocation.assign(groups, asking, positions_kept=kept)
    except allocation.AllocationError as error:
        require(
            False,
            f"one group for each of {asking}",
            f"{text!r}: {error}",
            where=f"{where} annotation {observe.ALLOCATED}",
        )
        raise
    known = {device.id for device in registered}
    for share in (share for group in groups for share in group):
        require(share.uuid in known, f"a card of node {node}: {sorted(known)}", share.uuid, where=f"{where} allocation")
    for name, shares in by_container.items():
        uuids = [share.uuid for share in shares]
        require(
            len(uuids) == len(set(uuids)), "distinct cards in one container", uuids, where=f"{where} container {name}"
        )
    init = {c["name"]: is_init for is_init, c in observe.containers(pod)}
    return Placement(groups, by_container, tuple((init[n], s) for n, shares in by_container.items() for s in shares))


def asks_for_cards(container: Mapping[str, Any]) -> bool:
    """Return whether a stored container asks for at least one card."""
    resources = container.get("resources", {})
    value = (resources.get("limits") or {}).get("nvidia.com/gpu") or (resources.get("requests") or {}).get(
        "nvidia.com/gpu"
    )
    return value is not None and str(value) != "0"


def require_sizes(
    pod: Mapping[str, Any],
    placed: Placement,
    config: DeviceConfig,
    registered: Sequence[Device],
    traits: releases.Traits,
) -> None:
    """Assert number, memory and cores of each container's cards against its stored request. Raises ClaimFailed."""
    memory = {device.id: device.devmem for device in registered}
    for _, container in observe.containers(pod):
        request = quantities.container_request(container, config, traits)
        shares = placed.by_container.get(container["name"], ())
        where = f"pod {pod['metadata']['name']} container {container['name']} allocation"
        require_equal(
            {"cards": request.count if request else 0},
            {"cards": len(shares)},
            where,
        )
        for share in shares:
            assert request is not None
            require_equal(
                {"memory": request.memory_on(memory[share.uuid]), "cores": min(request.cores, 100)},
                {"memory": share.memory, "cores": share.cores},
                f"{where} on {share.uuid}",
            )


def require_bind_protocol(
    pod: Mapping[str, Any], history: Sequence[Mapping[str, Any]] | None, locks: Sequence[str] | None
) -> None:
    """Assert how a placed pod came to its cards: times, phases, what was to be allocated, the lock. Raises ClaimFailed.

    ``history`` are its states, oldest first, ``locks`` as for missing_to_run; each None where there is a gap.
    Source: HAMi 2.10.0, pkg/scheduler/scheduler.go (Filter, Bind) and pkg/util/util.go (PodAllocationTrySuccess).
    """
    where = f"pod {pod['metadata']['name']}"
    notes = observe.annotations(pod)
    times = {key: notes.get(key, "absent") for key in (observe.VGPU_TIME, observe.BIND_TIME)}
    require(all(text.isdigit() for text in times.values()), "two times in Unix seconds", times, where=where)
    require(
        int(times[observe.VGPU_TIME]) <= int(times[observe.BIND_TIME]), "vgpu-time up to bind-time", times, where=where
    )
    owner = f",{pod['metadata']['namespace']},{pod['metadata']['name']}"
    for taken in {lock.removesuffix(owner) for lock in locks or () if lock.endswith(owner)}:
        try:
            fresh = datetime.fromisoformat(taken) >= datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        except (TypeError, ValueError):
            fresh = False
        require(fresh, "a lock of the time when it was taken", taken, where=f"{where} node lock {observe.LOCK}")
    if history is None:
        return
    states = [observe.annotations(state) for state in history]
    phases = [phase for state in states if (phase := state.get(observe.BIND_PHASE))]
    require(
        [phase for phase, _ in itertools.groupby(phases)] == ["allocating", "success"],
        "bind-phase allocating, then success",
        phases,
        where=where,
    )
    # A choice whose bind did not succeed is followed by another one.
    chosen = [state for state in states if observe.TO_ALLOCATE in state]
    first = next((state for state in chosen if state.get(observe.BIND_PHASE) == "allocating"), next(iter(chosen), {}))
    require_equal(
        {observe.TO_ALLOCATE: notes.get(observe.ALLOCATED)},
        {observe.TO_ALLOCATE: first.get(observe.TO_ALLOCATE)},
        f"{where} when it was bound",
    )
    early = [s for s in states if s.get(observe.BIND_PHASE) == "success" and s.get(observe.TO_ALLOCATE, "").strip(";")]
    require(not early, "success after the last card was allocated", early[:1], where=where)


def require_events(
    pod: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    candidates: Mapping[str, float],
    *,
    disturbed: bool,
    traits: releases.Traits,
) -> None:
    """Assert the events of a placed pod: whole texts, this UID, no failed bind but a disturbed one. Raises ClaimFailed.

    ``candidates`` are the nodes that HAMi had to look at, each with the score that it had before this pod; ``disturbed``
    tells that a bind was tried again.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    node = observe.node_name(pod)
    bound = observe.with_reason(events, "BindingSucceed")
    dropped = may_miss_events(events, "Normal", traits)
    require(
        (dropped and not bound) or bound == (f"Successfully binding node [{node}] to {namespace}/{name}",),
        f"one event BindingSucceed for node {node}", bound, where=f"pod {name}", events=event_rows(events),
    )  # fmt: skip
    found = observe.with_reason(events, "FilteringSucceed")
    if disturbed:
        # Each try is told; those that were in vain may have named another node.
        found = tuple(text for text in found if f"({node})" in text)[-1:]
    try:
        parsed = [parse_event("FilteringSucceed", text) for text in found]
    except EventError as error:
        parsed = []
        require(False, "a well-formed event FilteringSucceed", error, where=f"pod {name}", events=event_rows(events))
    success = next((event for event in parsed if isinstance(event, FilterSucceeded)), None)
    failed = [text for text in observe.with_reason(events, "BindingFailed") if kind_of(text) is None]
    require(not failed, "no event BindingFailed", failed, where=f"pod {name}", events=event_rows(events))
    require_origin(
        events, name, {"FilteringSucceed": "Normal", "BindingSucceed": "Normal", "FilteringFailed": "Warning"}
    )
    if dropped and not found:
        return
    require(
        success is not None and len(found) == 1, f"one event FilteringSucceed for node {node}", found,
        where=f"pod {name}", events=event_rows(events),
    )  # fmt: skip
    assert success is not None
    fitting = list(success.scores)
    require_equal(
        {"node": node, "last": node, "strangers": [], "nodes": len(candidates)},
        {
            "node": success.node,
            "last": fitting[-1] if fitting else "",
            "strangers": sorted(set(fitting) - set(candidates)),
            "nodes": len(fitting) + success.not_fit,
        },
        f"pod {name} event FilteringSucceed",
        events=event_rows(events),
    )
    wrong = {n: score for n, score in success.scores.items() if abs(score - candidates[n]) > ROUNDING}
    expected = {n: round(candidates[n], 2) for n in wrong}
    require(
        not wrong, f"scores {expected}", wrong, where=f"pod {name} event FilteringSucceed", events=event_rows(events)
    )


def require_origin(events: Sequence[Mapping[str, Any]], pod: str, types: Mapping[str, str]) -> None:
    """Assert type and component of the events with these reasons. Raises ClaimFailed."""
    for row in event_rows(events):
        if row["reason"] in types:
            require_equal(
                {"type": types[row["reason"]], "component": COMPONENT},
                {"type": row["type"], "component": row["component"]},
                f"pod {pod} event {row['reason']}",
                events=event_rows(events),
            )


def require_refusal(
    pod: Mapping[str, Any],
    submitted: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    reason: str,
    text: str,
    nodes: Sequence[str],
) -> None:
    """Assert that a refused pod left no trace and was told exactly ``reason`` for exactly ``nodes``. Raises ClaimFailed.

    ``text`` is what of the reason reaches the condition.
    """
    where = f"pod {pod['metadata']['name']}"
    rows = event_rows(events)
    require(observe.phase(pod) == "Pending", "phase Pending", observe.phase(pod), where=where)
    traces = observe.traces(pod, submitted)
    require(not traces, "no annotation and no label hami.io/*", traces, where=where)
    refused = observe.unschedulable(pod)
    assert refused is not None
    require(refused[0] == "Unschedulable", "reason Unschedulable", refused[0], where=f"{where} condition PodScheduled")
    # The rest of the text is about nodes that come and go.
    part = f" {len(nodes)} {text}"
    told = [row for row in rows if row["reason"] == "FailedScheduling" and part in row["message"]]
    require(bool(told), f"an event FailedScheduling with{part}", "none", where=where, events=rows)
    parsed = reasons.parse_node_reason(reason)
    expected: set[object] = {
        FilterFailed(len(nodes), found.value, tuple(sorted(nodes))) for _, _, found in parsed.counts
    }
    expected.add(NoAvailableNode(len(nodes)))
    try:
        seen = {parse_event("FilteringFailed", message) for message in observe.with_reason(events, "FilteringFailed")}
    except EventError as error:
        raise ClaimFailed(Failure("well-formed events FilteringFailed", str(error), where=where, events=rows)) from None
    require(
        seen == expected, f"events FilteringFailed {sorted(map(str, expected))}", sorted(map(str, seen)),
        where=where, events=rows,
    )  # fmt: skip
    require_origin(events, where, {"FilteringFailed": "Warning", "FailedScheduling": "Warning"})


def env_of_interest(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the device plugin sets, without the random cache path."""
    return {
        key: value
        for key, value in env.items()
        if (key.startswith(("CUDA_", "NVIDIA_VISIBLE", "LIBCUDA_", "GPU_CORE", "LD_PRELOAD")) and key != CACHE)
    }
