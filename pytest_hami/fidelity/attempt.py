"""One attempt of kube-scheduler to place a pod: its own filters, HAMi's filter, HAMi's bind, the pod's condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract.events import bind_succeeded
from pytest_hami.fidelity.world import PodKey, World
from pytest_hami.simulator import predicates
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.scheduler import FilterResult, PodEvent

_LABEL_LIMIT = 63
TIME = "hami.io/vgpu-time"


@dataclass(frozen=True)
class Attempt:
    """What came of an attempt: HAMi's events, and the condition of a pod that was not placed.

    ``failed`` holds HAMi's reason by node; ``condition`` is reason and message of PodScheduled=False.
    """

    events: tuple[PodEvent, ...] = ()
    failed: Mapping[str, str] | None = None
    condition: tuple[str, str] | None = None


def may_bind(world: World, pod: Mapping[str, Any]) -> list[str]:
    """Return the nodes that kube-scheduler alone would accept, without any extender."""
    used = world.used()
    return [
        name for name, node in world.nodes.items() if not predicates.first_refusal(pod, node, used.get(name, {}), ())
    ]


def attempt(
    world: World, key: PodKey, recorded: str | None, *, loses_race: bool = False, same_second: bool = False
) -> Attempt:
    """Try to place a pod; among what chance decides ``recorded`` is followed.

    ``loses_race``: HAMi's bind does not know the pod yet, because its cache is late. ``same_second``: HAMi writes the same
    time as in its last attempt; where it chooses the same cards, the pod does not change and nobody is told of it.
    """
    pod = world.pods[key]
    if pod["spec"]["schedulerName"] != world.config.scheduler_name:
        # The other scheduler's pod, which HAMi is not asked about.
        return _bind_alone(world, key, may_bind(world, pod), {}, recorded)
    refused = {
        name: predicates.first_refusal(pod, node, {}, world.managed) for name, node in sorted(world.nodes.items())
    }
    names = [name for name, why in refused.items() if not why]
    if not predicates.mentions(pod, world.managed):
        return _bind_alone(world, key, names, refused, recorded)
    if not names:
        return _refuse(world, key, "Unschedulable", _message(refused, {}))
    world.rules.recorded = recorded
    answer = world.hami.filter(pod, names)
    if answer.error:
        return _refuse(world, key, "SchedulerError", answer.error, answer.events)
    if answer.node_names is None:
        return _refuse(world, key, "Unschedulable", _message(refused, answer.failed), answer.events, answer.failed)
    return _place(world, key, answer, recorded, loses_race, same_second)


def _bind_alone(
    world: World, key: PodKey, names: list[str], refused: Mapping[str, str], recorded: str | None
) -> Attempt:
    if not names:
        return _refuse(world, key, "Unschedulable", _message(refused, {}))
    world.patch_pod(key, {"spec": {"nodeName": recorded if recorded in names else names[0]}})
    return Attempt()


def _place(
    world: World, key: PodKey, answer: FilterResult, recorded: str | None, loses_race: bool, same_second: bool
) -> Attempt:
    pod = world.pods[key]
    uid = pod["metadata"]["uid"]
    if answer.patch is None:
        # HAMi saw no request and left all nodes; kube-scheduler's own scores decide, which the model does not play.
        node = recorded if recorded in (answer.node_names or ()) else (answer.node_names or ("",))[0]
    else:
        node = (answer.node_names or ("",))[0]
        if len(node) > _LABEL_LIMIT:
            world.hami.rollback(uid)
            text = f'Pod "{key[1]}" is invalid: metadata.labels: Invalid value: "{node}": must be no more than 63 bytes'
            return _refuse(world, key, "SchedulerError", text, (PodEvent("Warning", "FilteringFailed", text),))
        world.patch_pod(key, answer.patch, seen=not (same_second and _repeats(pod, answer.patch)))
    if loses_race:
        world.hami.unknown(uid)
        return _refuse(world, key, "SchedulerError", f'pod "{key[1]}" not found', answer.events)
    error = _take_lock(world, key, node)
    if error:
        failed = PodEvent("Warning", "BindingFailed", error)
        return _refuse(world, key, "SchedulerError", error, (*answer.events, failed))
    world.patch_pod(key, {"metadata": {"annotations": world.hami.bind_annotations(world.pods[key])}})
    world.patch_pod(key, {"spec": {"nodeName": node}})
    bound = PodEvent("Normal", "BindingSucceed", bind_succeeded(node, *key))
    return Attempt((*answer.events, bound))


def _repeats(pod: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Whether a patch writes nothing but the time anew."""
    notes = pod["metadata"].get("annotations") or {}
    return all(notes.get(name) == text for name, text in patch["metadata"]["annotations"].items() if name != TIME)


def _take_lock(world: World, key: PodKey, node: str) -> str:
    if not world.hami.needs_lock(world.pods[key]):
        return ""
    text = world.nodes[node]["metadata"]["annotations"].get(lock.LOCK)
    timeout = world.config.node_lock_timeout
    decision = world.rules.lock_decision(text, key, world.clock, timeout, node)
    error = ""
    if isinstance(decision, lock.Refused):
        error = decision.text
    elif isinstance(decision, lock.CheckOwner) and (decision.namespace, decision.name) in world.pods:
        error = lock.contention(node, timeout, world.config.traits)
    elif not isinstance(decision, lock.Held):
        world.patch_node(node, {"metadata": {"annotations": {lock.LOCK: lock.value(world.clock, key)}}})
    if error and text is not None and world.rules.releases_lock(text, key):
        world.patch_node(node, {"metadata": {"annotations": {lock.LOCK: None}}})
    return error


def _message(refused: Mapping[str, str], failed: Mapping[str, str]) -> str:
    own = [why for why in refused.values() if why]
    return predicates.failed_scheduling(len(refused), [*own, *failed.values()], len(own))


def _refuse(
    world: World,
    key: PodKey,
    reason: str,
    message: str,
    events: tuple[PodEvent, ...] = (),
    failed: Mapping[str, str] | None = None,
) -> Attempt:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    # kube-scheduler writes a condition down only when it is another one; HAMi reads the pod again when it does.
    if (world.pods[key].get("status") or {}).get("conditions") != [condition]:
        world.patch_pod(key, {"status": {"conditions": [condition]}})
    return Attempt(events, failed, (reason, message))
