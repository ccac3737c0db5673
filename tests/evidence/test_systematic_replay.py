"""The pure model of HAMi 2.10.0 decides what the real scheduler was recorded to decide.

Each recorded scenario runs through the model with a small stand-in for the API server, kube-scheduler and the node
agent. Where HAMi leaves equal nodes to chance, the record is followed if it names one of the best.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract import allocation, metrics, register
from pytest_hami.contract.reasons import parse_failed_scheduling
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import FilterResult, HamiScheduler, PodEvent, SchedulerConfig

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence" / "hami-2.10.0"
DENIED = 'admission webhook "vgpu.hami.io" denied the request: '
KNOWN: dict[str, str] = {}


def _scenarios(name: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((EVIDENCE / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


SYSTEMATIC = _scenarios("systematic")


class Follow(Rules):
    """The rules, with chance replaced by the record."""

    recorded: str | None = None

    def break_tie(self, nodes: Sequence[str]) -> str:
        return self.recorded if self.recorded in nodes else nodes[-1]


def merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merge(target[key], value)
        else:
            target[key] = deepcopy(value)


def apply_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    document = deepcopy(document)
    for operation in operations:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent = document
        for part in path:
            if isinstance(parent, list):
                parent = parent[int(part)]
            else:
                parent = parent.setdefault(part, {})
        if isinstance(parent, list):
            at = len(parent) if last == "-" else int(last)
            if operation["op"] == "add":
                parent.insert(at, operation["value"])
            elif operation["op"] == "replace":
                parent[at] = operation["value"]
            else:
                del parent[at]
        elif operation["op"] == "remove":
            del parent[last]
        else:
            parent[last] = operation["value"]
    return document


def set_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    """Do what the API server does to a pod that matters here: requests follow limits, a scheduler is named."""
    spec = pod["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        resources = container.setdefault("resources", {})
        for name in ("limits", "requests"):
            if name in resources:
                resources[name] = {key: str(value) for key, value in (resources[name] or {}).items()}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    return pod


def visible(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a pod that the record compares, empty containers of values left out."""

    def prune(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept for key, inner in value.items() if (kept := prune(inner)) not in ({}, [], None)}
        return [prune(one) for one in value] if isinstance(value, list) else value

    meta = pod["metadata"]
    kept = {"annotations": meta.get("annotations"), "labels": meta.get("labels"), "spec": pod["spec"]}
    return dict(prune(deepcopy(kept)))


def blur(annotations: Mapping[str, str]) -> dict[str, str]:
    """HAMi's annotations with the record's placeholders for times."""
    kept = {key: value for key, value in annotations.items() if key.startswith("hami.io/")}
    for key in kept.keys() & {"hami.io/vgpu-time", "hami.io/bind-time"}:
        kept[key] = "<unix>"
    return kept


def hami_events(events: Sequence[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    kept = [event for event in events if event["reason"].startswith(("Filtering", "Binding"))]
    return {(event["type"], event["reason"], _sorted_nodes(event["message"])) for event in kept}


def _sorted_nodes(message: str) -> str:
    """A success event with the nodes before the chosen one in a fixed order: equal scores come by chance."""
    match = re.fullmatch(r"(find fit node.* nodes fit\()(.*)\)", message)
    return f"{match[1]}{sorted(match[2].split(','))})" if match else message


class World:
    """The cluster around the model."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        flags = dict(flag.lstrip("-").split("=", 1) for flag in scenario.get("scheduler_flags") or [])
        self.config = SchedulerConfig.from_flags(scenario.get("device_config") or {}, flags)
        self.clock = datetime(2026, 11, 29, tzinfo=UTC)
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.quotas: dict[tuple[str, str], dict[str, Any]] = {}
        self.serial = 0
        self.rules = Follow()
        self.agentless: set[tuple[str, str]] = set()
        self.started: HamiScheduler | None = None
        self.start()
        for node in scenario["fleet"]:
            self.add_node(node)

    @property
    def hami(self) -> HamiScheduler:
        assert self.started is not None
        return self.started

    def start(self) -> None:
        self.started = HamiScheduler(self.config, self.rules, now=lambda: self.clock)
        for node in self.nodes.values():
            self.hami.node_event("ADDED", deepcopy(node))
        for quota in self.quotas.values():
            self.hami.quota_event("ADDED", deepcopy(quota))
        for pod in self.pods.values():
            self.hami.pod_event("ADDED", deepcopy(pod))
        self.register()

    def register(self) -> None:
        for patch in self.hami.register():
            merge(self.nodes[patch.node]["metadata"], {"annotations": patch.annotations})
            self.hami.node_event("MODIFIED", deepcopy(self.nodes[patch.node]))

    def add_node(self, fleet: Mapping[str, Any]) -> None:
        devices = fleet.get("devices") or []
        notes = dict(fleet.get("annotations") or {})
        if "register" in fleet or devices:
            notes["hami.io/node-nvidia-register"] = fleet.get("register") or _register(devices)
        count = fleet.get("allocatable", sum(device.get("count", 0) for device in devices))
        self.nodes[fleet["node"]] = {
            "metadata": {"name": fleet["node"], "labels": dict(fleet.get("labels") or {}), "annotations": notes},
            "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": str(count)} if count else {}},
        }
        if self.hami.node_event("ADDED", deepcopy(self.nodes[fleet["node"]])):
            self.register()

    def update_node(self, step: Mapping[str, Any]) -> None:
        node = self.nodes[step["node"]]
        merge(node["metadata"], {"annotations": step.get("annotations") or {}, "labels": step.get("labels") or {}})
        if step.get("devices") is not None:
            node["metadata"]["annotations"]["hami.io/node-nvidia-register"] = _register(step["devices"])
        if step.get("allocatable") is not None:
            node["status"]["allocatable"]["nvidia.com/gpu"] = str(step["allocatable"])
        if step.get("unschedulable") is not None:
            node["spec"]["unschedulable"] = step["unschedulable"]
        self.hami.node_event("MODIFIED", deepcopy(node))
        if step.get("register_run") is not False:
            self.register()

    def changed(self, pod: dict[str, Any], patch: Mapping[str, Any], kind: str = "MODIFIED") -> None:
        merge(pod, patch)
        self.hami.pod_event(kind, deepcopy(pod))

    def remove(self, key: tuple[str, str], grace: bool) -> None:
        pod = self.pods[key]
        if grace:
            self.changed(pod, {"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}})
        else:
            self.hami.pod_event("DELETED", deepcopy(self.pods.pop(key)))

    def candidates(self, pod: Mapping[str, Any]) -> list[str]:
        """The nodes that kube-scheduler's own filters leave, as far as the scenarios use them."""
        selector = pod["spec"].get("nodeSelector") or {}
        return [
            name
            for name, node in self.nodes.items()
            if not node["spec"].get("unschedulable")
            and all({"kubernetes.io/hostname": name, **node["metadata"]["labels"]}.get(k) == v for k, v in selector.items())
        ]

    def schedule(self, pod: dict[str, Any], recorded: str | None) -> tuple[FilterResult, list[PodEvent], str]:
        """One attempt of kube-scheduler: filter, patch, bind. Returns the answer, the events and the error text."""
        names = self.candidates(pod)
        if not names:
            return FilterResult(), [], ""
        self.rules.recorded = recorded
        answer = self.hami.filter(deepcopy(pod), names)
        events = list(answer.events)
        if answer.node_names is None:
            return answer, events, answer.error
        node = answer.node_names[0] if answer.patch else str(recorded)
        if answer.patch and len(node) > 63:
            self.hami.rollback(pod["metadata"]["uid"])
            text = (
                f'Pod "{pod["metadata"]["name"]}" is invalid: metadata.labels: Invalid value: "{node}": '
                "must be no more than 63 bytes"
            )
            return answer, [PodEvent("Warning", "FilteringFailed", text)], text
        self.changed(pod, answer.patch or {})
        error = self.take_lock(pod, node)
        if error:
            return answer, [*events, PodEvent("Warning", "BindingFailed", error)], error
        self.changed(pod, {"metadata": {"annotations": self.hami.bind_annotations(pod)}, "spec": {"nodeName": node}})
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        events.append(PodEvent("Normal", "BindingSucceed", f"Successfully binding node [{node}] to {name}"))
        return answer, events, ""

    def take_lock(self, pod: Mapping[str, Any], node: str) -> str:
        if not self.hami.needs_lock(pod):
            return ""
        notes = self.nodes[node]["metadata"]["annotations"]
        owner = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        decision = lock.decide(notes.get(lock.LOCK), owner, self.clock, self.config.node_lock_timeout, node)
        if isinstance(decision, lock.Refused):
            return decision.text
        if isinstance(decision, lock.CheckOwner) and (decision.namespace, decision.name) in self.pods:
            return lock.contention(node, self.config.node_lock_timeout)
        if not isinstance(decision, lock.Held):
            notes[lock.LOCK] = lock.value(self.clock, owner)
        return ""

    def complete_bind(self, pod: dict[str, Any]) -> None:
        """The node agent serves every container, then reports success and opens the lock."""
        text = pod["metadata"]["annotations"].get("hami.io/vgpu-devices-to-allocate")
        if text is None:
            return
        while any(allocation.parse(text)):
            text = allocation.erase_next(text)
        done = {"hami.io/vgpu-devices-to-allocate": text, "hami.io/bind-phase": "success"}
        self.changed(pod, {"metadata": {"annotations": done}})
        notes = self.nodes[pod["spec"]["nodeName"]]["metadata"]["annotations"]
        owner = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if lock.LOCK in notes and lock.owned_by(notes[lock.LOCK], owner):
            del notes[lock.LOCK]


def _register(devices: Sequence[Mapping[str, Any]]) -> str:
    return register.encode([register.Device(**device) for device in devices])


class Replay:
    """Runs one scenario and compares after every step."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.world = World(scenario)
        self.compared = 0

    def run(self) -> int:
        """Return the number of comparisons made."""
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
        samples = metrics.parse(self.world.hami.metrics())
        if "devices" in observed:
            self.same(f"{where} devices", self.devices(), observed["devices"])
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
            self.same(f"{where} quota", {name: quota.get(name) for name in observed["quota"]}, observed["quota"])

    def pending(self, step: Mapping[str, Any], where: str) -> None:
        for name, state in (step["observed"].get("pending") or {}).items():
            pod = self.world.pods[tuple(name.split("/"))]  # type: ignore[index]
            if pod["spec"].get("nodeName") or not (state.get("scheduled") or state.get("events")):
                continue
            _, events, error = self.world.schedule(pod, state.get("scheduled"))
            self.same(f"{where} {name} scheduled", pod["spec"].get("nodeName"), state.get("scheduled"))
            if pod["spec"].get("nodeName"):
                agent = state["annotations"].get("hami.io/bind-phase") == "success"
                if agent:
                    self.world.complete_bind(pod)
                news = {(event.type, event.reason, _sorted_nodes(event.message)) for event in events}
                extra = hami_events(state["events"]) - news
                self.same(f"{where} {name} events", {event for event in extra if "Fail" not in event[1]}, set())
            elif error:
                self.same(f"{where} {name} error", error, state["pod_condition_message"])
            self.same(f"{where} {name} annotations", blur(pod["metadata"].get("annotations") or {}), state["annotations"])

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
        if mutated["spec"]["schedulerName"] != self.world.config.scheduler_name or mutated["spec"].get("schedulingGates"):
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
        seen = {(event.type, event.reason, _sorted_nodes(event.message)) for event in events}
        self.same(f"{where} events", seen, hami_events(observed["events"]))
        if error:
            self.same(f"{where} error", error, observed["pod_condition_message"])
        elif answer.failed and observed["scheduled"] is None:
            told = parse_failed_scheduling(observed["pod_condition_message"]).reasons
            for text in sorted(set(answer.failed.values())):
                count = sum(text == other for other in answer.failed.values())
                self.same(f"{where} reason {told}", (count, text) in told, True)
        if pod["spec"].get("nodeName"):
            if observed.get("completed_by_agent"):
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
    assert len(SYSTEMATIC) == 157
    assert sum(step["op"] == "create" for scenario in SYSTEMATIC for step in scenario["steps"]) == 1291
    assert set(KNOWN) <= {scenario["id"] for scenario in SYSTEMATIC}


@pytest.mark.parametrize("scenario", SYSTEMATIC, ids=lambda scenario: str(scenario["id"]))
def test_model_decides_as_recorded(scenario: dict[str, Any]) -> None:
    replay = Replay(scenario)
    if scenario["id"] in KNOWN:
        with pytest.raises(AssertionError):
            replay.run()
    else:
        assert replay.run() > len(scenario["steps"]) // 2
