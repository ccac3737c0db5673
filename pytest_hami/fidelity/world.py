"""The cluster around the model: what API server, kube-scheduler and node agent do to it in a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_hami.contract import allocation, register
from pytest_hami.contract.releases import Release
from pytest_hami.simulator.apiserver.defaults import default
from pytest_hami.simulator.apiserver.patches import merge
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import FilterResult, HamiScheduler, PodEvent, SchedulerConfig

PodKey = tuple[str, str]
"""Namespace and name."""

REGISTER = "hami.io/node-nvidia-register"
_START = datetime(2026, 11, 29, tzinfo=UTC)


class RecordedChance(Rules):
    """The rules, with chance replaced by the record: of equal nodes the recorded one is taken."""

    recorded: str | None = None

    def break_tie(self, nodes: Sequence[str]) -> str:
        return next((node for node in nodes if node == self.recorded), nodes[-1])


@dataclass(frozen=True)
class Attempt:
    """One attempt to place a pod: what Filter answered, the events that HAMi told, and the error of Filter or Bind."""

    answer: FilterResult = field(default_factory=FilterResult)
    events: tuple[PodEvent, ...] = ()
    error: str = ""


class World:
    """An API server's objects, the model that watches them, and the steps that change them."""

    def __init__(self, scenario: Mapping[str, Any], release: Release, rules: RecordedChance) -> None:
        flags = dict(flag.lstrip("-").split("=", 1) for flag in scenario.get("scheduler_flags") or [])
        self.config = SchedulerConfig.from_flags(scenario.get("device_config") or {}, flags)
        self.rules = rules
        self.pods: dict[PodKey, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self._quotas: dict[PodKey, dict[str, Any]] = {}
        self._clock = _START
        self._created = 0
        self.restart()
        for node in scenario["fleet"]:
            self.add_node(node)

    def restart(self) -> None:
        """Start HAMi anew; it reads every object again."""
        self.hami = HamiScheduler(self.config, self.rules, now=lambda: self._clock)
        for node in self.nodes.values():
            self.hami.node_event("ADDED", node)
        for quota in self._quotas.values():
            self.hami.quota_event("ADDED", quota)
        for pod in self.pods.values():
            self.hami.pod_event("ADDED", pod)
        self.register()

    def register(self) -> None:
        """Make HAMi read the nodes."""
        for patch in self.hami.register():
            self._patch_node(patch.node, {"metadata": {"annotations": patch.annotations}})

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._clock += timedelta(seconds=seconds)

    def add_node(self, fleet: Mapping[str, Any]) -> None:
        """Create a node of the record's form."""
        devices = fleet.get("devices") or []
        notes = dict(fleet.get("annotations") or {})
        if "register" in fleet or devices:
            notes[REGISTER] = fleet.get("register") or _register_text(devices)
        count = fleet.get("allocatable", sum(device.get("count", 0) for device in devices))
        name = fleet["node"]
        self.nodes[name] = {
            "metadata": {"name": name, "labels": dict(fleet.get("labels") or {}), "annotations": notes},
            "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": str(count)} if count else {}},
        }
        if self.hami.node_event("ADDED", self.nodes[name]):
            self.register()

    def update_node(self, step: Mapping[str, Any]) -> None:
        """Change a node as the step says; HAMi reads the nodes afterwards unless the step says otherwise."""
        notes = dict(step.get("annotations") or {})
        if step.get("devices") is not None:
            notes[REGISTER] = _register_text(step["devices"])
        patch: dict[str, Any] = {"metadata": {"annotations": notes, "labels": step.get("labels") or {}}}
        if step.get("allocatable") is not None:
            patch["status"] = {"allocatable": {"nvidia.com/gpu": str(step["allocatable"])}}
        if step.get("unschedulable") is not None:
            patch["spec"] = {"unschedulable": step["unschedulable"]}
        self._patch_node(step["node"], patch)
        if step.get("register_run") is not False:
            self.register()

    def delete_node(self, name: str) -> None:
        """Remove a node."""
        if self.hami.node_event("DELETED", self.nodes.pop(name)):
            self.register()

    def _patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        self.nodes[name] = merge(self.nodes[name], patch)
        self.hami.node_event("MODIFIED", self.nodes[name])

    def set_quota(self, step: Mapping[str, Any]) -> None:
        """Create, change or (without ``hard``) delete a ResourceQuota."""
        key = (step["namespace"], step.get("name", "quota"))
        quota = {"metadata": {"namespace": key[0], "name": key[1]}, "spec": {"hard": step["hard"]}}
        if step["hard"] is None:
            self._quotas.pop(key, None)
            self.hami.quota_event("DELETED", quota)
            return
        known = key in self._quotas
        self._quotas[key] = quota
        self.hami.quota_event("MODIFIED" if known else "ADDED", quota)

    def submitted(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod as the API server would store it without HAMi, under a new UID."""
        self._created += 1
        stored: dict[str, Any] = merge(pod, {"metadata": {"uid": f"uid-{self._created}"}})
        default("Pod", stored)
        return stored

    def create(self, pod: dict[str, Any]) -> PodKey:
        """Store a pod."""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.pods[key] = pod
        self.hami.pod_event("ADDED", pod)
        return key

    def patch_pod(self, key: PodKey, patch: Mapping[str, Any]) -> None:
        """Change a pod by a merge patch."""
        self.pods[key] = merge(self.pods[key], patch)
        self.hami.pod_event("MODIFIED", self.pods[key])

    def delete(self, key: PodKey, grace: bool = False) -> None:
        """Remove a pod, or only mark it as terminating."""
        if grace:
            self.patch_pod(key, {"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}})
        else:
            self.hami.pod_event("DELETED", self.pods.pop(key))

    def schedule(self, key: PodKey, recorded: str | None) -> Attempt:
        """Make one attempt of kube-scheduler; of equal nodes the recorded one is chosen."""
        pod = self.pods[key]
        if not _extended_resources(pod):
            self.patch_pod(key, {"spec": {"nodeName": recorded}})
            return Attempt()
        names = self._candidates(pod)
        if not names:
            return Attempt()
        self.rules.recorded = recorded
        answer = self.hami.filter(pod, names)
        if answer.node_names is None:
            return Attempt(answer, answer.events, answer.error)
        node = answer.node_names[0] if answer.patch else str(recorded)
        if answer.patch and len(node) > 63:
            self.hami.rollback(pod["metadata"]["uid"])
            text = f'Pod "{key[1]}" is invalid: metadata.labels: Invalid value: "{node}": must be no more than 63 bytes'
            return Attempt(answer, (PodEvent("Warning", "FilteringFailed", text),), text)
        self.patch_pod(key, answer.patch or {})
        error = self._take_lock(key, node)
        if error:
            return Attempt(answer, (*answer.events, PodEvent("Warning", "BindingFailed", error)), error)
        notes = self.hami.bind_annotations(self.pods[key])
        self.patch_pod(key, {"metadata": {"annotations": notes}, "spec": {"nodeName": node}})
        bound = PodEvent("Normal", "BindingSucceed", f"Successfully binding node [{node}] to {key[0]}/{key[1]}")
        return Attempt(answer, (*answer.events, bound))

    def _candidates(self, pod: Mapping[str, Any]) -> list[str]:
        selector = pod["spec"].get("nodeSelector") or {}
        # kube-scheduler itself counts what its configuration does not leave to the extender.
        if any(not name.startswith("nvidia.com/") for name in _extended_resources(pod)):
            return []
        return [
            name
            for name, node in self.nodes.items()
            if not node["spec"].get("unschedulable")
            if selector.items() <= {"kubernetes.io/hostname": name, **node["metadata"]["labels"]}.items()
        ]

    def _take_lock(self, key: PodKey, node: str) -> str:
        if not self.hami.needs_lock(self.pods[key]):
            return ""
        notes = self.nodes[node]["metadata"]["annotations"]
        decision = lock.decide(notes.get(lock.LOCK), key, self._clock, self.config.node_lock_timeout, node)
        if isinstance(decision, lock.Refused):
            return decision.text
        if isinstance(decision, lock.CheckOwner) and (decision.namespace, decision.name) in self.pods:
            return lock.contention(node, self.config.node_lock_timeout)
        if not isinstance(decision, lock.Held):
            self._patch_node(node, {"metadata": {"annotations": {lock.LOCK: lock.value(self._clock, key)}}})
        return ""

    def complete_bind(self, key: PodKey) -> None:
        """Do what the node agent does: serve every container, report success, open the lock."""
        pod = self.pods[key]
        text = pod["metadata"]["annotations"].get("hami.io/vgpu-devices-to-allocate")
        if text is None:
            return
        while any(allocation.parse(text)):
            text = allocation.erase_next(text)
        done = {"hami.io/vgpu-devices-to-allocate": text, "hami.io/bind-phase": "success"}
        self.patch_pod(key, {"metadata": {"annotations": done}})
        node = pod["spec"]["nodeName"]
        held = self.nodes[node]["metadata"]["annotations"].get(lock.LOCK)
        if held is not None and lock.owned_by(held, key):
            self._patch_node(node, {"metadata": {"annotations": {lock.LOCK: None}}})


def _extended_resources(pod: Mapping[str, Any]) -> set[str]:
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return {name for one in containers for name in one["resources"].get("requests") or {} if "/" in name}


def _register_text(devices: Sequence[Mapping[str, Any]]) -> str:
    return register.encode([register.Device(**device) for device in devices])
