"""The pure model of HAMi 2.10.0 decides what the real scheduler was recorded to decide.

Each recorded scenario runs through the model with a small stand-in for the API server, kube-scheduler and the node
agent. Where HAMi leaves equal nodes to chance, the record is followed if it names one of the best.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hami_world import Follow, World, apply_patch, blur, hami_events, set_defaults, sorted_nodes, visible

from pytest_hami.contract import metrics
from pytest_hami.contract.reasons import parse_failed_scheduling
from pytest_hami.simulator.hami.config import ConfigError

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence" / "hami-2.10.0"
DENIED = 'admission webhook "vgpu.hami.io" denied the request: '
# A foreign lock decides when a waiting pod is tried again; the stand-in tries it once in each step.
TRIED_ELSEWHEN = {"ghost-refilter", "lock-held", "lock-owner-completed", "lock-timeout"}
KNOWN = {"extra-legacy-metrics": "the model does not serve the metric names of HAMi 2.9 and refuses the flag"}


def _scenarios(name: str) -> list[dict[str, Any]]:
    packed = EVIDENCE / f"{name}.jsonl.gz"
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else (EVIDENCE / f"{name}.jsonl").read_bytes()
    return [json.loads(line) for line in text.decode().splitlines()]


SYSTEMATIC = _scenarios("systematic")
EXTRA = _scenarios("extra")
RANDOM = _scenarios("random")
ALL = [*SYSTEMATIC, *EXTRA, *RANDOM]


class Replay:
    """Runs one scenario and compares after every step."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.world = World(scenario)
        self.compared = 0

    def run(self) -> int:
        """Return the number of comparisons made."""
        if "before" in self.scenario["metrics"]:
            self.same("metrics before", self.devices(), self.scenario["metrics"]["before"])
        for number, step in enumerate(self.scenario["steps"]):
            where = f"{self.scenario['id']} step {number} {step['op']}"
            getattr(self, f"do_{step['op']}")(step, where)
            self.pending(step, where)
            self.look(step, where)
        for key, pod in list(self.world.pods.items()):
            if not pod["spec"].get("nodeName"):
                self.world.remove(key, grace=False)
        self.world.register()
        self.same("metrics after", self.devices(), self.scenario["metrics"]["after"])
        return self.compared

    def same(self, what: str, seen: Any, expected: Any) -> None:
        self.compared += 1
        assert seen == expected, f"{what}: the record has {expected!r}, the model gives {seen!r}"

    def devices(self) -> dict[str, dict[str, list[int]]]:
        result: dict[str, dict[str, list[int]]] = {}
        for (node, uuid), card in metrics.card_usage(metrics.parse(self.world.hami.metrics())).items():
            values = [card.memory_limit, card.core_limit, card.memory << 20, card.shares, card.cores]
            result.setdefault(node, {})[uuid] = values
        return result

    def look(self, step: Mapping[str, Any], where: str) -> None:
        observed = step["observed"]
        if not observed.keys() & {"devices", "vgpu", "quota"}:
            return
        samples = metrics.parse(self.world.hami.metrics())
        if "devices" in observed:
            if observed.get("pending") and self.devices() != observed["devices"]:
                # The forced run is two runs (a node comes and goes); a retried pod may fall between them.
                self.world.register()
            self.same(f"{where} devices", self.devices(), observed["devices"])
            self.world.register()
        vgpu: dict[str, dict[str, list[float]]] = {}
        for sample in samples:
            if sample.name not in (metrics.VGPU_MEMORY, metrics.VGPU_CORES):
                continue
            labels = dict(sample.labels)
            card = f"{labels['device_uuid']}@{labels['node']}#{labels['container_index']}"
            pair = vgpu.setdefault(f"{labels['namespace']}/{labels['pod']}", {}).setdefault(card, [0, 0])
            pair[sample.name == metrics.VGPU_CORES] = sample.value
        if "vgpu" in observed:
            self.same(f"{where} vgpu", vgpu, observed["vgpu"])
        if "quota" in observed:
            quota: dict[str, dict[str, list[float | None]]] = {}
            for (namespace, resource), (used, limit) in metrics.quota_usage(samples).items():
                quota.setdefault(namespace, {})[resource] = [used, limit]
            told = {step["namespace"]: observed["quota"]} if step["op"] == "quota" else observed["quota"]
            self.same(f"{where} quota", {name: quota.get(name) for name in told}, told)

    def pending(self, step: Mapping[str, Any], where: str) -> None:
        for name, state in (step["observed"].get("pending") or {}).items():
            pod = self.world.pods[tuple(name.split("/"))]  # type: ignore[index]
            if pod["spec"].get("nodeName") or not (state.get("scheduled") or state.get("events")):
                continue
            _, events, error = self.world.schedule(pod, state.get("scheduled"))
            self.same(f"{where} {name} scheduled", pod["spec"].get("nodeName"), state.get("scheduled"))
            # The record holds every event of the pod so far, refusals of earlier attempts among them.
            news = {(event.type, event.reason, sorted_nodes(event.message)) for event in events}
            if self.scenario["id"] not in TRIED_ELSEWHEN:
                self.same(f"{where} {name} new events", news - hami_events(state["events"]), set())
            if pod["spec"].get("nodeName"):
                agent = state["annotations"].get("hami.io/bind-phase") == "success"
                if agent:
                    self.world.complete_bind(pod)
                extra = hami_events(state["events"]) - news
                self.same(f"{where} {name} events", {event for event in extra if "Fail" not in event[1]}, set())
            elif error:
                self.same(f"{where} {name} error", error, state["pod_condition_message"])
            self.same(
                f"{where} {name} annotations", blur(pod["metadata"].get("annotations") or {}), state["annotations"]
            )

    def do_create(self, step: Mapping[str, Any], where: str) -> None:
        observed = step["observed"]
        self.world.serial += 1
        pod = deepcopy(step["object"])
        meta = pod["metadata"]
        meta["uid"] = f"uid-{self.world.serial}"
        plain = set_defaults(deepcopy(pod))
        mutated = self.admit(plain, step, where)
        if mutated is None:
            return
        if isinstance(observed["mutated"], list):
            self.same(f"{where} mutated", visible(mutated), visible(apply_patch(plain, observed["mutated"])))
        self.world.pods[(meta["namespace"], meta["name"])] = mutated
        self.world.changed(mutated, {"status": {"phase": "Pending"}}, kind="ADDED")
        if mutated["spec"]["schedulerName"] != self.world.config.scheduler_name or mutated["spec"].get(
            "schedulingGates"
        ):
            if observed["scheduled"]:
                self.world.changed(mutated, {"spec": {"nodeName": observed["scheduled"]}})
            return
        self.place(mutated, step, where)

    def admit(self, plain: dict[str, Any], step: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        observed = step["observed"]
        ignore = [plain["metadata"].get("labels") or {}, step.get("ns_labels") or {}]
        if any(labels.get("hami.io/webhook") == "ignore" for labels in ignore):
            return deepcopy(plain) if observed["admission"] == "allowed" else None
        admission = self.world.hami.admit(plain, plain["metadata"]["namespace"])
        if observed["admission"] == "denied" and not observed["message"].startswith(DENIED):
            # The API server's own validation refused the pod after the webhook had let it pass.
            self.same(f"{where} admission", admission.allowed, True)
            return None
        self.same(f"{where} admission", admission.allowed, observed["admission"] == "allowed")
        if not admission.allowed:
            seen = (admission.code, admission.reason or None, DENIED + admission.message)
            self.same(f"{where} denial", seen, (observed["code"], observed["reason"] or None, observed["message"]))
            return None
        return set_defaults(apply_patch(plain, admission.patch))

    def place(self, pod: dict[str, Any], step: Mapping[str, Any], where: str) -> None:
        observed = step["observed"]
        answer, events, error = self.world.schedule(pod, observed["scheduled"])
        self.same(f"{where} scheduled", pod["spec"].get("nodeName"), observed["scheduled"])
        self.same(f"{where} annotations", blur(pod["metadata"].get("annotations") or {}), observed["annotations"])
        seen = {(event.type, event.reason, sorted_nodes(event.message)) for event in events}
        self.same(f"{where} events", seen, hami_events(observed["events"]))
        if error:
            self.same(f"{where} error", error, observed["pod_condition_message"])
        elif answer.failed and observed["scheduled"] is None:
            told = parse_failed_scheduling(observed["pod_condition_message"]).reasons
            for text in sorted(set(answer.failed.values())):
                count = sum(text == other for other in answer.failed.values())
                self.same(f"{where} reason {told}", (count, text) in told, True)
        if pod["spec"].get("nodeName") and observed.get("completed_by_agent"):
            self.world.complete_bind(pod)

    def do_delete(self, step: Mapping[str, Any], where: str) -> None:
        self.world.remove((step["namespace"], step["pod"]), bool(step.get("grace")))

    def _phase(self, step: Mapping[str, Any], phase: str) -> None:
        pod = self.world.pods[(step.get("namespace", "default"), step["pod"])]
        self.world.changed(pod, {"status": {"phase": phase}})

    def do_complete(self, step: Mapping[str, Any], where: str) -> None:
        self._phase(step, "Succeeded")

    def do_fail(self, step: Mapping[str, Any], where: str) -> None:
        self._phase(step, "Failed")

    def do_status(self, step: Mapping[str, Any], where: str) -> None:
        self.world.changed(self.world.pods[("default", step["pod"])], {"status": step["status"]})

    def do_patch_pod(self, step: Mapping[str, Any], where: str) -> None:
        self.world.changed(self.world.pods[("default", step["pod"])], step["patch"])

    def do_quota(self, step: Mapping[str, Any], where: str) -> None:
        key = (step["namespace"], step.get("name", "quota"))
        quota = {"metadata": {"namespace": key[0], "name": key[1]}, "spec": {"hard": step["hard"]}}
        kind = "DELETED" if step["hard"] is None else ("MODIFIED" if key in self.world.quotas else "ADDED")
        self.world.quotas[key] = quota
        if kind == "DELETED":
            del self.world.quotas[key]
        self.world.hami.quota_event(kind, quota)

    def do_update_node(self, step: Mapping[str, Any], where: str) -> None:
        self.world.update_node(step)

    def do_register_run(self, step: Mapping[str, Any], where: str) -> None:
        self.world.register()

    def do_restart_scheduler(self, step: Mapping[str, Any], where: str) -> None:
        self.world.start()

    def do_add_node(self, step: Mapping[str, Any], where: str) -> None:
        self.world.add_node(step["fleet_node"])

    def do_delete_node(self, step: Mapping[str, Any], where: str) -> None:
        if self.world.hami.node_event("DELETED", self.world.nodes.pop(step["node"])):
            self.world.register()

    def do_sleep(self, step: Mapping[str, Any], where: str) -> None:
        self.world.clock += timedelta(seconds=step["seconds"])

    def do_node_annotations(self, step: Mapping[str, Any], where: str) -> None:
        seen = dict(self.world.nodes[step["node"]]["metadata"]["annotations"])
        seen.pop("hami.io/node-nvidia-register", None)
        times = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?")
        blurred = {key: times.sub("<time>", value) for key, value in seen.items()}
        self.same(f"{where} annotations", blurred, step["observed"]["annotations"])


def test_the_record_is_complete() -> None:
    assert (len(SYSTEMATIC), len(EXTRA), len(RANDOM)) == (157, 13, 200)
    creates = [sum(step["op"] == "create" for one in part for step in one["steps"]) for part in (SYSTEMATIC, RANDOM)]
    assert creates == [1291, 3984]
    assert set(KNOWN) <= {scenario["id"] for scenario in ALL}


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: str(scenario["id"]))
def test_model_decides_as_recorded(scenario: dict[str, Any]) -> None:
    if scenario["id"] in KNOWN:
        with pytest.raises((AssertionError, ConfigError)):
            Replay(scenario).run()
    else:
        assert Replay(scenario).run() > len(scenario["steps"])


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("memory_fits", lambda self, total, used, asked: True),
        ("memory_fits", lambda self, total, used, asked: total - used > asked),
        ("exclusive_conflict", lambda self, total, used, asked: False),
        ("compute_exhausted", lambda self, total, used, asked: False),
        ("quota_fits", lambda self, used, asked, limit: used + asked < limit),
        ("releases_on_phase", lambda self, phase: False),
        ("keeps_terminating", lambda self: False),
        ("pads", lambda self, types: True),
        ("node_spreads", lambda self, policy: True),
        ("default_count", lambda self, default, memory, percentage, cores: 0),
        ("break_tie", lambda self, nodes: "no such node"),
    ],
)
def test_the_replay_notices_a_defect(method: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Follow, method, wrong, raising=False)
    failed = 0
    for scenario in SYSTEMATIC:
        try:
            Replay(scenario).run()
        except (AssertionError, KeyError):
            failed += 1
            break
    assert failed, f"no scenario notices a wrong {method}"
