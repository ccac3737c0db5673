"""The cluster around the model: the objects that an API server would hold, and what changes them in a recording."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_hami.contract import allocation
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import objects
from pytest_hami.simulator import predicates
from pytest_hami.simulator.apiserver.defaults import default
from pytest_hami.simulator.apiserver.patches import merge
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import HamiScheduler, SchedulerConfig

PodKey = tuple[str, str]
"""Namespace and name."""

# The recordings make HAMi look at the nodes by adding and removing a node that no pod tolerates.
PASSING_NODE = "passing"
_START = datetime(2026, 11, 29, tzinfo=UTC)


class RecordedChance(Rules):
    """The rules, with chance replaced by the record: of equal nodes the recorded one is taken."""

    recorded: str | None = None

    def break_tie(self, nodes: Sequence[str]) -> str:
        return next((node for node in nodes if node == self.recorded), nodes[-1])


class World:
    """An API server's objects, the model that watches them, and the steps that change them."""

    def __init__(self, scenario: Mapping[str, Any], release: Release, rules: type[RecordedChance]) -> None:
        flags = objects.flags(scenario)
        self.config = SchedulerConfig.from_flags(scenario.get("device_config") or {}, flags, str(release))
        self.rules = rules(self.config.traits)
        self.managed = _managed_resources(scenario, self.config.devices)
        self.pods: dict[PodKey, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.clock = _START
        self._quotas: dict[PodKey, dict[str, Any]] = {}
        self._created = 0
        self.restart()
        for node in scenario["fleet"]:
            self.add_node(node)
            self.register()

    def fork(self) -> World:
        """Return an independent world in the same state."""
        other = object.__new__(World)
        other.config, other.rules, other.managed = self.config, self.rules, self.managed
        other.pods, other.nodes = dict(self.pods), dict(self.nodes)
        other.clock, other._quotas, other._created = self.clock, dict(self._quotas), self._created
        other.hami = self.hami.fork(lambda: other.clock)
        return other

    def restart(self) -> None:
        """Start HAMi anew; it reads every object again."""
        self.hami = HamiScheduler(self.config, self.rules, now=lambda: self.clock)
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
            self.patch_node(patch.node, {"metadata": {"annotations": patch.annotations}})

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.clock += timedelta(seconds=seconds)

    def add_node(self, fleet: Mapping[str, Any]) -> None:
        """Create a node of the record's form; HAMi will read the nodes because of it."""
        self._create_node(objects.node(fleet), [])

    def add_passing_node(self) -> None:
        """Create the node that makes HAMi read the nodes."""
        self._create_node(objects.node({"node": PASSING_NODE}), [{"key": "passing", "effect": "NoSchedule"}])

    def _create_node(self, node: dict[str, Any], taints: Sequence[Mapping[str, str]]) -> None:
        name = node["metadata"]["name"]
        self.nodes[name] = {**node, "spec": {"taints": list(taints)} if taints else {}}
        self.hami.node_event("ADDED", self.nodes[name])

    def update_node(self, step: Mapping[str, Any]) -> None:
        """Change a node as the step says."""
        self.patch_node(step["node"], objects.node_patch(step))

    def delete_node(self, name: str) -> None:
        """Remove a node; HAMi will read the nodes because of it."""
        self.hami.node_event("DELETED", self.nodes.pop(name))

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a node by a merge patch."""
        self.nodes[name] = merge(self.nodes[name], patch)
        self.hami.node_event("MODIFIED", self.nodes[name])

    def set_quota(self, step: Mapping[str, Any]) -> None:
        """Create, change or (without ``hard``) delete a ResourceQuota."""
        key = (step["namespace"], step.get("name", "quota"))
        quota = {"metadata": {"namespace": key[0], "name": key[1]}, "spec": {"hard": step["hard"]}}
        if step["hard"] is None:
            self.hami.quota_event("DELETED", self._quotas.pop(key, quota))
            return
        known = key in self._quotas
        self._quotas[key] = quota
        self.hami.quota_event("MODIFIED" if known else "ADDED", quota)

    def submitted(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod as the API server would store it without HAMi, under a new UID."""
        self._created += 1
        stored: dict[str, Any] = merge(copy.deepcopy(pod), {"metadata": {"uid": f"uid-{self._created}"}})
        default("Pod", stored)
        return stored

    def create(self, pod: dict[str, Any]) -> PodKey:
        """Store a pod."""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.pods[key] = pod
        self.hami.pod_event("ADDED", pod)
        return key

    def patch_pod(self, key: PodKey, patch: Mapping[str, Any], *, seen: bool | None = None) -> None:
        """Change a pod by a merge patch; ``seen`` is whether HAMi is told, which else depends on whether anything changes."""
        before, self.pods[key] = self.pods[key], merge(self.pods[key], patch)
        if self.pods[key] != before if seen is None else seen:
            self.hami.pod_event("MODIFIED", self.pods[key])

    def delete(self, key: PodKey, grace: bool = False) -> None:
        """Remove a pod, or only mark it as terminating."""
        if grace:
            self.patch_pod(key, {"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}})
        else:
            self.hami.pod_event("DELETED", self.pods.pop(key))

    def node_of(self, key: PodKey) -> str | None:
        """Return the node that a pod is bound to."""
        node = self.pods[key]["spec"].get("nodeName")
        return str(node) if node else None

    def used(self) -> dict[str, dict[str, int]]:
        """Return what the pods on each node ask of it, as kube-scheduler counts."""
        used: dict[str, dict[str, int]] = {}
        for key, pod in self.pods.items():
            node = self.node_of(key)
            if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                taken = used.setdefault(node, {})
                for name, asked in predicates.requests(pod).items():
                    taken[name] = taken.get(name, 0) + asked
        return used

    def complete_bind(self, key: PodKey) -> None:
        """Do what the node agent does: serve every container, report success, open the lock."""
        pod = self.pods[key]
        text = (pod["metadata"].get("annotations") or {}).get("hami.io/vgpu-devices-to-allocate")
        if text is None:
            return
        done = {"hami.io/vgpu-devices-to-allocate": allocation.erase_all(text), "hami.io/bind-phase": "success"}
        self.patch_pod(key, {"metadata": {"annotations": done}})
        node = pod["spec"]["nodeName"]
        held = self.nodes[node]["metadata"]["annotations"].get(lock.LOCK)
        if held is not None and lock.owned_by(held, key):
            self.patch_node(node, {"metadata": {"annotations": {lock.LOCK: None}}})


def _managed_resources(scenario: Mapping[str, Any], config: DeviceConfig) -> tuple[str, ...]:
    """Return the resources that the recording's kube-scheduler left to HAMi, as the record has it.

    A configuration may give resources other names; whether kube-scheduler was told shows in its complaints.
    """
    if "managed_resources" in scenario:
        return tuple(scenario["managed_resources"])
    told = [str(step["observed"].get("pod_condition_message")) for step in scenario["steps"]]
    usual = _resource_names(DeviceConfig())
    renamed = _resource_names(config) - usual
    return tuple(sorted(usual | {name for name in renamed if not any(f"Insufficient {name}" in one for one in told)}))


def _resource_names(config: DeviceConfig) -> set[str]:
    return {config.count_name, config.memory_name, config.percentage_name, config.cores_name, config.priority_name}
