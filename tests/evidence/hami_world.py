"""A stand-in for the API server, kube-scheduler and the node agent around the pure model, for replays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from pytest_hami.contract import allocation, register
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import FilterResult, HamiScheduler, PodEvent, SchedulerConfig


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
            parent = parent[int(part)] if isinstance(parent, list) else parent.setdefault(part, {})
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


def asked(pod: Mapping[str, Any]) -> set[str]:
    """The extended resources that a pod mentions; without one of HAMi's, kube-scheduler does not call HAMi."""
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec.get("containers", [])]
    return {name for one in containers for name in one["resources"].get("requests", {}) if "/" in name}


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
    return {(event["type"], event["reason"], sorted_nodes(event["message"])) for event in kept}


def sorted_nodes(message: str) -> str:
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
        # kube-scheduler itself counts what its configuration does not leave to the extender.
        missing = any(not name.startswith("nvidia.com/") for name in asked(pod))
        return [
            name
            for name, node in self.nodes.items()
            if not node["spec"].get("unschedulable") and not missing
            if selector.items() <= {"kubernetes.io/hostname": name, **node["metadata"]["labels"]}.items()
        ]

    def schedule(self, pod: dict[str, Any], recorded: str | None) -> tuple[FilterResult, list[PodEvent], str]:
        """One attempt of kube-scheduler: filter, patch, bind. Returns the answer, the events and the error text."""
        names = self.candidates(pod)
        if not asked(pod):
            merge(pod, {"spec": {"nodeName": recorded}})
            return FilterResult(), [], ""
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
