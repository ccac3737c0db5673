"""Replays a recorded scenario of the scheduler: webhook, filter, bind, accounting, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_hami.contract import metrics
from pytest_hami.contract.reasons import parse_failed_scheduling
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import observed as seen_as
from pytest_hami.fidelity.outcome import Disagreement, Replayed
from pytest_hami.fidelity.world import Attempt, PodKey, RecordedChance, World
from pytest_hami.simulator.apiserver.defaults import default
from pytest_hami.simulator.apiserver.patches import apply_json
from pytest_hami.simulator.hami.config import ConfigError

DENIED = 'admission webhook "vgpu.hami.io" denied the request: '
# A foreign lock decides when a waiting pod is tried again; the stand-in tries it once in each step.
TRIED_ELSEWHEN = {"ghost-refilter", "lock-held", "lock-owner-completed", "lock-timeout"}


def replay(scenario: Mapping[str, Any], release: Release, rules: RecordedChance | None = None) -> Replayed:
    """Return what the model of ``release`` makes of a scenario.

    A difference in words leaves the model's state as recorded, so the replay goes on; after any other the replay ends
    with the step, because everything later would differ too.
    """
    return _Replay(scenario, release, rules or RecordedChance()).run()


class _Diverged(Exception):
    """The model is no longer where the record is."""


class _Replay:
    def __init__(self, scenario: Mapping[str, Any], release: Release, rules: RecordedChance) -> None:
        self._scenario = scenario
        self._release = release
        self._rules = rules
        self._comparisons = 0
        self._placements = 0
        self._disagreements: list[Disagreement] = []
        self._step = 0
        self._where = "start"
        self._diverged = False

    def run(self) -> Replayed:
        try:
            self._play()
        except _Diverged:
            pass
        except ConfigError as error:
            self._disagree("configuration", "a scheduler that runs", str(error))
        except Exception as error:
            self._disagree("model", "an answer", f"{type(error).__name__}: {error}")
        return Replayed(
            str(self._scenario["id"]),
            str(self._scenario["kind"]),
            self._placements,
            self._comparisons,
            tuple(self._disagreements),
        )

    def _play(self) -> None:
        self._world = World(self._scenario, self._release, self._rules)
        recorded = self._scenario["metrics"]
        if "before" in recorded:
            self._same("devices", self._devices(), recorded["before"])
        self._end_step()
        for number, step in enumerate(self._scenario["steps"], 1):
            self._step, self._where = number, f"step {number} {step['op']}"
            getattr(self, f"_do_{step['op']}")(step)
            self._pending(step)
            self._metrics(step)
            self._end_step()
        self._where = "end"
        for key, pod in list(self._world.pods.items()):
            if not pod["spec"].get("nodeName"):
                self._world.delete(key)
        self._world.register()
        self._same("devices", self._devices(), recorded["after"])

    def _end_step(self) -> None:
        if self._diverged:
            raise _Diverged

    def _same(self, what: str, seen: Any, expected: Any) -> None:
        """Compare something that later decisions rest on."""
        if not self._same_words(what, seen, expected):
            self._diverged = True

    def _same_words(self, what: str, seen: Any, expected: Any) -> bool:
        self._comparisons += 1
        if seen == expected:
            return True
        self._disagree(what, _text(expected), _text(seen))
        return False

    def _disagree(self, what: str, expected: str, seen: str) -> None:
        where = f"{self._where} {what}"
        self._disagreements.append(
            Disagreement(
                str(self._scenario["id"]), str(self._scenario["kind"]), where, expected, seen, max(self._step, 1)
            )
        )

    def _devices(self) -> dict[str, dict[str, list[int]]]:
        return seen_as.device_usage(metrics.parse(self._world.hami.metrics()))

    def _metrics(self, step: Mapping[str, Any]) -> None:
        observed = step["observed"]
        if not observed.keys() & {"devices", "vgpu", "quota"}:
            return
        samples = metrics.parse(self._world.hami.metrics())
        if "devices" in observed:
            if observed.get("pending") and self._devices() != observed["devices"]:
                # The forced run is two runs (a node comes and goes); a retried pod may fall between them.
                self._world.register()
            self._same("devices", self._devices(), observed["devices"])
            self._world.register()
        if "vgpu" in observed:
            self._same("vgpu", seen_as.pod_usage(samples), observed["vgpu"])
        if "quota" in observed:
            quota = seen_as.quota_usage(samples)
            told = {step["namespace"]: observed["quota"]} if step["op"] == "quota" else observed["quota"]
            self._same("quota", {name: quota.get(name) for name in told}, told)

    def _pending(self, step: Mapping[str, Any]) -> None:
        for name, state in (step["observed"].get("pending") or {}).items():
            namespace, _, pod_name = name.partition("/")
            key = (namespace, pod_name)
            if self._node_of(key) or not (state.get("scheduled") or state.get("events")):
                continue
            self._retry(key, name, state)

    def _retry(self, key: PodKey, name: str, state: Mapping[str, Any]) -> None:
        attempt = self._attempt(key, state.get("scheduled"))
        self._same(f"{name} scheduled", self._node_of(key), state.get("scheduled"))
        # The record holds every event of the pod so far, refusals of earlier attempts among them.
        news = _event_keys(attempt)
        recorded = seen_as.recorded_events(state["events"])
        if self._scenario["id"] not in TRIED_ELSEWHEN:
            self._same_words(f"{name} new events", news - recorded, set())
        if self._node_of(key):
            if state["annotations"].get("hami.io/bind-phase") == "success":
                self._world.complete_bind(key)
            extra = {event for event in recorded - news if "Fail" not in event[1]}
            self._same_words(f"{name} events", extra, set())
        elif attempt.error:
            self._same_words(f"{name} error", attempt.error, state["pod_condition_message"])
        self._same(f"{name} annotations", seen_as.pod_annotations(self._world.pods[key]), state["annotations"])

    def _node_of(self, key: PodKey) -> str | None:
        node = self._world.pods[key]["spec"].get("nodeName")
        return str(node) if node else None

    def _attempt(self, key: PodKey, recorded: str | None) -> Attempt:
        self._placements += 1
        return self._world.schedule(key, recorded)

    def _do_create(self, step: Mapping[str, Any]) -> None:
        observed = step["observed"]
        plain = self._world.submitted(step["object"])
        stored = self._admit(plain, step)
        if stored is None:
            return
        if isinstance(observed["mutated"], list):
            recorded = apply_json(plain, observed["mutated"])
            self._same("mutated", seen_as.pod_content(stored), seen_as.pod_content(recorded))
        key = self._world.create(stored)
        ours = stored["spec"]["schedulerName"] == self._world.config.scheduler_name
        if not ours or stored["spec"].get("schedulingGates"):
            if observed["scheduled"]:
                self._world.patch_pod(key, {"spec": {"nodeName": observed["scheduled"]}})
            return
        self._place(key, step)

    def _admit(self, plain: dict[str, Any], step: Mapping[str, Any]) -> dict[str, Any] | None:
        observed = step["observed"]
        ignore = [plain["metadata"].get("labels") or {}, step.get("ns_labels") or {}]
        if any(labels.get("hami.io/webhook") == "ignore" for labels in ignore):
            return plain if observed["admission"] == "allowed" else None
        admission = self._world.hami.admit(plain, plain["metadata"]["namespace"])
        if observed["admission"] == "denied" and not observed["message"].startswith(DENIED):
            # The API server's own validation refused the pod after the webhook had let it pass.
            self._same("admission", admission.allowed, True)
            return None
        self._same("admission", admission.allowed, observed["admission"] == "allowed")
        if self._diverged:
            return None
        if not admission.allowed:
            seen = (admission.code, admission.reason or None, DENIED + admission.message)
            self._same_words("denial", seen, (observed["code"], observed["reason"] or None, observed["message"]))
            return None
        stored: dict[str, Any] = apply_json(plain, admission.patch)
        default("Pod", stored)
        return stored

    def _place(self, key: PodKey, step: Mapping[str, Any]) -> None:
        observed = step["observed"]
        attempt = self._attempt(key, observed["scheduled"])
        self._same("scheduled", self._node_of(key), observed["scheduled"])
        self._same("annotations", seen_as.pod_annotations(self._world.pods[key]), observed["annotations"])
        self._same_words("events", _event_keys(attempt), seen_as.recorded_events(observed["events"]))
        if attempt.error:
            self._same_words("error", attempt.error, observed["pod_condition_message"])
        elif attempt.answer.failed and observed["scheduled"] is None:
            told = parse_failed_scheduling(observed["pod_condition_message"]).reasons
            for text in sorted(set(attempt.answer.failed.values())):
                count = sum(text == other for other in attempt.answer.failed.values())
                self._same_words(f"reason {told}", (count, text) in told, True)
        if self._node_of(key) and observed.get("completed_by_agent"):
            self._world.complete_bind(key)

    def _do_delete(self, step: Mapping[str, Any]) -> None:
        self._world.delete((step["namespace"], step["pod"]), bool(step.get("grace")))

    def _do_complete(self, step: Mapping[str, Any]) -> None:
        self._world.patch_pod(_pod_key(step), {"status": {"phase": "Succeeded"}})

    def _do_fail(self, step: Mapping[str, Any]) -> None:
        self._world.patch_pod(_pod_key(step), {"status": {"phase": "Failed"}})

    def _do_status(self, step: Mapping[str, Any]) -> None:
        self._world.patch_pod(_pod_key(step), {"status": step["status"]})

    def _do_patch_pod(self, step: Mapping[str, Any]) -> None:
        self._world.patch_pod(_pod_key(step), step["patch"])

    def _do_quota(self, step: Mapping[str, Any]) -> None:
        self._world.set_quota(step)

    def _do_update_node(self, step: Mapping[str, Any]) -> None:
        self._world.update_node(step)

    def _do_register_run(self, step: Mapping[str, Any]) -> None:
        self._world.register()

    def _do_restart_scheduler(self, step: Mapping[str, Any]) -> None:
        self._world.restart()

    def _do_add_node(self, step: Mapping[str, Any]) -> None:
        self._world.add_node(step["fleet_node"])

    def _do_delete_node(self, step: Mapping[str, Any]) -> None:
        self._world.delete_node(step["node"])

    def _do_sleep(self, step: Mapping[str, Any]) -> None:
        self._world.sleep(step["seconds"])

    def _do_node_annotations(self, step: Mapping[str, Any]) -> None:
        seen = seen_as.node_annotations(self._world.nodes[step["node"]])
        self._same("annotations", seen, step["observed"]["annotations"])


def _pod_key(step: Mapping[str, Any]) -> PodKey:
    return step.get("namespace", "default"), step["pod"]


def _event_keys(attempt: Attempt) -> set[seen_as.EventKey]:
    return {seen_as.event_key(event.type, event.reason, event.message) for event in attempt.events}


def _text(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, set) else repr(value)
