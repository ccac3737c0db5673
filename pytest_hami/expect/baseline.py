"""The baselines that every running and every refused pod must meet, as pure functions over observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract import allocation, quantities, reasons, releases
from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import container_env
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.register import Device
from pytest_hami.expect import observe
from pytest_hami.expect.failures import event_rows, require, require_equal

# The type that makes HAMi 2.10.0 keep the positions of containers without cards (pkg/device/devices.go).
EXACT_TYPE = "NVIDIA"


@dataclass(frozen=True)
class Placement:
    """The cards of a pod: groups as annotated, shares by container, and ``(is_init, share)`` for accounting."""

    groups: tuple[tuple[DeviceShare, ...], ...]
    by_container: Mapping[str, tuple[DeviceShare, ...]]
    shares: tuple[tuple[bool, DeviceShare], ...]


def missing_to_run(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], locks: Sequence[str] | None
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
        rest != "absent" and not rest.strip(";"),
        "only empty groups",
        rest,
        where=f"{where} annotation {observe.TO_ALLOCATE}",
    )
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
    pod: Mapping[str, Any], placed: Placement, config: DeviceConfig, registered: Sequence[Device]
) -> None:
    """Assert number, memory and cores of each container's cards against its stored request. Raises ClaimFailed."""
    memory = {device.id: device.devmem for device in registered}
    for _, container in observe.containers(pod):
        request = quantities.container_request(container, config)
        shares = placed.by_container.get(container["name"], ())
        where = f"pod {pod['metadata']['name']} container {container['name']} allocation"
        require_equal(
            {"cards": request.count if request else 0},
            {"cards": len(shares)},
            where,
            events=event_rows(()),
        )
        for share in shares:
            assert request is not None
            require_equal(
                {"memory": request.memory_on(memory[share.uuid]), "cores": min(request.cores, 100)},
                {"memory": share.memory, "cores": share.cores},
                f"{where} on {share.uuid}",
            )


def require_events(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
    """Assert the events of a placed pod: whole texts, this UID, no failed bind. Raises ClaimFailed."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    node = observe.node_name(pod)
    bound = observe.with_reason(events, "BindingSucceed")
    require(
        bound == (f"Successfully binding node [{node}] to {namespace}/{name}",),
        f"one event BindingSucceed for node {node}", bound, where=f"pod {name}", events=event_rows(events),
    )  # fmt: skip
    found = observe.with_reason(events, "FilteringSucceed")
    require(
        len(found) == 1 and found[0].startswith(f"find fit node({node}), "),
        f"one event FilteringSucceed for node {node}", found, where=f"pod {name}", events=event_rows(events),
    )  # fmt: skip
    failed = observe.with_reason(events, "BindingFailed")
    require(not failed, "no event BindingFailed", failed, where=f"pod {name}", events=event_rows(events))


def require_refusal(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], reason: str, nodes: int) -> None:
    """Assert that a refused pod left no trace and that its events name exactly ``reason``. Raises ClaimFailed."""
    where = f"pod {pod['metadata']['name']}"
    require(observe.phase(pod) == "Pending", "phase Pending", observe.phase(pod), where=where)
    notes = [key for key in observe.hami_annotations(pod) if key.startswith("hami.io/vgpu-")]
    require(not notes, "no annotation hami.io/vgpu-*", notes, where=where)
    parsed = reasons.parse_node_reason(reason)
    expected = {f"{nodes} nodes {found.value}" for _, _, found in parsed.counts}
    seen = set()
    closing = []
    for message in observe.with_reason(events, "FilteringFailed"):
        if message.startswith("no available node"):
            closing.append(message)
        else:
            seen.add(message.split("(", 1)[0])
    require(
        seen == expected,
        f"events FilteringFailed {sorted(expected)}",
        sorted(seen),
        where=where,
        events=event_rows(events),
    )
    require(
        bool(closing) and all(text.endswith(" nodes do not meet") for text in closing),
        "a closing event 'no available node, N nodes do not meet'", closing, where=where, events=event_rows(events),
    )  # fmt: skip


def expected_env(shares: Sequence[DeviceShare], *, oversubscribe: bool, log_level: str) -> dict[str, str]:
    """Return the environment that the device plugin promises a container with these shares."""
    return container_env(shares, oversubscribe=oversubscribe, log_level=log_level)


def env_of_interest(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the device plugin sets, without the random cache path."""
    return {
        key: value
        for key, value in env.items()
        if (
            key.startswith(("CUDA_", "NVIDIA_VISIBLE", "LIBCUDA_", "GPU_CORE"))
            and key != "CUDA_DEVICE_MEMORY_SHARED_CACHE"
        )
    }
