"""Replays a recorded scenario of the scheduler: webhook, filter, bind, accounting, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import objects, search
from pytest_hami.fidelity import observed as seen_as
from pytest_hami.fidelity.attempt import may_bind
from pytest_hami.fidelity.outcome import Disagreement, Replayed
from pytest_hami.fidelity.play import Play
from pytest_hami.fidelity.search import Action
from pytest_hami.fidelity.world import PASSING_NODE, PodKey, RecordedChance, World
from pytest_hami.simulator.apiserver.defaults import default
from pytest_hami.simulator.apiserver.patches import apply_json
from pytest_hami.simulator.hami.config import ConfigError

DENIED = 'admission webhook "vgpu.hami.io" denied the request: '
Record = Mapping[str, Any]


def replay(scenario: Record, release: Release, rules: type[RecordedChance] = RecordedChance) -> Replayed:
    """Return what the model of ``release`` makes of a scenario.

    A difference in words leaves the model's state as recorded, so the replay goes on; after any other the replay ends
    with the step, because everything later would differ too.
    """
    try:
        world = World(scenario, release, rules)
    except (ConfigError, ValueError) as error:
        return _stopped(scenario, "start configuration", "a scheduler that runs", str(error))
    play = Play(scenario, release, world)
    try:
        return _play(play, scenario).result()
    except Exception as error:
        # A defect may break the model anywhere; the other scenarios are still worth a replay.
        return _stopped(scenario, "model", "an answer", f"{type(error).__name__}: {error}")


def _stopped(scenario: Record, where: str, expected: str, seen: str) -> Replayed:
    found = Disagreement(str(scenario["id"]), str(scenario["kind"]), where, expected, seen)
    return Replayed(found.scenario, found.kind, 0, 0, (found,))


def _play(play: Play, scenario: Record) -> Play:
    recorded = scenario["metrics"]
    if "before" in recorded:
        play.note_overview()
        play.same_devices(recorded["before"])
    for number, step in enumerate(scenario["steps"], 1):
        if play.diverged:
            return play
        play.begin(number, step["op"])
        play = search.run(play, _step(play, step))
    if not play.diverged:
        play.begin(0, "end")
        _end(play, recorded)
    return play


def _end(play: Play, recorded: Record) -> None:
    for key in list(play.world.pods):
        if not play.world.node_of(key):
            play.world.delete(key)
    play.register()
    play.same_devices(recorded["after"])
    play.same_usage({name.removesuffix("_after"): value for name, value in recorded.items() if "_after" in name})


def _step(play: Play, step: Record) -> search.Step:
    observed = step["observed"]
    actions = _ACTIONS[step["op"]](step)
    waiting: dict[PodKey, Record] = {}
    tried, served = set(), set()
    for name, state in (observed.get("pending") or {}).items():
        namespace, _, pod = name.partition("/")
        key = (namespace, pod)
        if key not in play.world.pods or play.world.node_of(key):
            continue
        waiting[key] = state
        if state.get("scheduled") or state.get("events") or _other_condition(play, key, state):
            tried.add(key)
        if (state.get("annotations") or {}).get("hami.io/bind-phase") == "success":
            served.add(key)

    def look(course: Play) -> None:
        for key, state in waiting.items():
            course.same_waiting(key, state)
        if "devices" in observed:
            course.same_devices(observed["devices"])
        course.same_usage(observed, step["namespace"] if step["op"] == "quota" else None)

    return search.Step(actions, look, waiting, frozenset(tried), frozenset(served))


def _other_condition(play: Play, key: PodKey, state: Record) -> bool:
    """Whether the look tells another condition of a pod than the model's last attempt left."""
    conditions = (play.world.pods[key].get("status") or {}).get("conditions") or []
    return any(one["reason"] != state.get("pod_condition") for one in conditions)


def _create(step: Record) -> list[Action]:
    observed = step["observed"]
    key = objects.pod_key(step)

    def store(play: Play) -> None:
        plain = play.world.submitted(step["object"])
        stored = _admit(play, plain, step)
        if stored is None or play.diverged:
            return
        if isinstance(observed["mutated"], list):
            recorded = apply_json(plain, observed["mutated"])
            play.same("mutated", seen_as.pod_content(stored), seen_as.pod_content(recorded))
        play.world.create(stored)

    def place(play: Play) -> None:
        pod = play.world.pods.get(key)
        if pod is None or pod["spec"].get("schedulingGates"):
            return
        if pod["spec"]["schedulerName"] == play.world.config.scheduler_name:
            play.place(key, observed)
            return
        nodes = may_bind(play.world, pod) if pod["spec"]["schedulerName"] == "default-scheduler" else []
        node = observed["scheduled"]
        play.same("scheduled", node if node in nodes else next(iter(nodes), None), node)
        if node in nodes:
            play.world.patch_pod(key, {"spec": {"nodeName": node}})

    def serve(play: Play) -> None:
        if key in play.world.pods and play.world.node_of(key):
            play.world.complete_bind(key)

    return [store, place, *([serve] if observed.get("completed_by_agent") else [])]


def _admit(play: Play, plain: dict[str, Any], step: Record) -> dict[str, Any] | None:
    observed = step["observed"]
    ignore = [plain["metadata"].get("labels") or {}, step.get("ns_labels") or {}]
    if any(labels.get("hami.io/webhook") == "ignore" for labels in ignore):
        return plain if observed["admission"] == "allowed" else None
    admission = play.world.hami.admit(plain, plain["metadata"]["namespace"])
    if observed["admission"] == "denied" and not observed["message"].startswith(DENIED):
        # The API server's own validation refused the pod after the webhook had let it pass.
        play.same("admission", admission.allowed, True)
        return None
    play.same("admission", admission.allowed, observed["admission"] == "allowed")
    if play.diverged:
        return None
    if not admission.allowed:
        seen = (admission.code, admission.reason or None, DENIED + admission.message)
        play.same_words("denial", seen, (observed["code"], observed["reason"] or None, observed["message"]))
        return None
    stored: dict[str, Any] = apply_json(plain, admission.patch)
    default("Pod", stored)
    return stored


def _patch(step: Record, patch: Record) -> list[Action]:
    return [lambda play: play.world.patch_pod(objects.pod_key(step), patch)]


_FORCED: Sequence[Action] = (
    lambda play: play.world.add_passing_node(),
    Play.register,
    lambda play: play.world.delete_node(PASSING_NODE),
    Play.register,
)


def _update_node(step: Record) -> list[Action]:
    forced = [] if step.get("register_run") is False else _FORCED
    return [lambda play: play.world.update_node(step), *forced]


def _node_annotations(step: Record) -> list[Action]:
    def compare(play: Play) -> None:
        seen = seen_as.node_annotations(play.world.nodes[step["node"]])
        play.same("annotations", seen, step["observed"]["annotations"])

    return [compare]


def _observed_run(step: Record) -> list[Action]:
    """Return the forced run that a look at the cards needs."""
    return list(_FORCED) if "devices" in step["observed"] else []


_ACTIONS: Mapping[str, Callable[[Record], list[Action]]] = {
    "create": _create,
    "delete": lambda step: [lambda play: play.world.delete(objects.pod_key(step), bool(step.get("grace")))],
    "complete": lambda step: _patch(step, {"status": {"phase": "Succeeded"}}),
    "fail": lambda step: _patch(step, {"status": {"phase": "Failed"}}),
    "status": lambda step: _patch(step, {"status": step["status"]}),
    "patch_pod": lambda step: _patch(step, step["patch"]),
    "quota": lambda step: [lambda play: play.world.set_quota(step)],
    "update_node": _update_node,
    "register_run": lambda step: list(_FORCED),
    "restart_scheduler": lambda step: [lambda play: play.world.restart(), *_observed_run(step)],
    "add_node": lambda step: [lambda play: play.world.add_node(step["fleet_node"]), Play.register],
    "delete_node": lambda step: [
        lambda play: play.world.delete_node(step["node"]),
        Play.register,
        *_observed_run(step),
    ],
    "sleep": lambda step: [lambda play: play.world.sleep(step["seconds"])],
    "node_annotations": _node_annotations,
}
