"""One scenario on a cluster: what each step does there, and what is looked at after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_hami.contract import allocation, metrics
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.releases import Release, traits
from pytest_hami.fidelity import objects
from pytest_hami.fidelity import observed as seen_as
from pytest_hami.kube.client import NONCE
from pytest_hami.kube.errors import ApiError
from pytest_hami.kube.wait import poll, wait_until
from pytest_hami.record.difference import json_patch
from pytest_hami.record.sync import NAMESPACE, Sync
from pytest_hami.simulator.hami import lock

if TYPE_CHECKING:
    from pytest_hami.cluster.local import LocalCluster

PodKey = tuple[str, str]
Object = dict[str, Any]
Step = Mapping[str, Any]
_SERIES = metrics.ACCOUNTING_SERIES | metrics.QUOTA_SERIES
_TO_ALLOCATE, _PHASE = "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase"
_ENDED = frozenset({"Succeeded", "Failed"})
# What no pod waits for.
_WAKES_NOBODY = frozenset({"create", "quota", "node_annotations"})
# A real kube-scheduler leaves a refused pod alone for a second at first, then longer.
_QUIET = 1.5
_BOUND = "BindingSucceed"
_ORDINARY = "default-scheduler"


class Session:
    """The objects of one scenario in the cluster, until ``clear``."""

    def __init__(self, cluster: LocalCluster, sync: Sync, release: Release, scenario: Mapping[str, Any]) -> None:
        self._cluster, self._sync, self._release, self._scenario = cluster, sync, release, scenario
        self._client, self._journal = cluster.client, cluster.journal
        self._names = DeviceConfig.from_dict(scenario.get("device_config") or {})
        self._hami_name = objects.flags(scenario).get("scheduler-name", "hami-scheduler")
        self._namespaces = {"default", NAMESPACE}
        self._uids: dict[PodKey, str] = {}
        self._unserved: set[PodKey] = set()
        self._waiting: list[PodKey] = []
        self._told: dict[str, set[tuple[str, str, str]]] = {}
        self._nodes: list[str] = []
        self._quotas: set[PodKey] = set()
        self._own_namespaces: set[str] = set()
        self._actions: Mapping[str, Callable[[Object], Object]] = {
            "create": self._create, "delete": self._delete, "complete": self._complete, "fail": self._fail,
            "status": self._status, "patch_pod": self._patch_pod, "quota": self._quota, "update_node": self._update_node,
            "register_run": self._register_run, "restart_scheduler": self._restart, "add_node": self._add_node,
            "delete_node": self._delete_node, "sleep": self._sleep, "node_annotations": self._node_annotations,
        }  # fmt: skip

    @property
    def leaves_traces(self) -> bool:
        """Whether HAMi remembers something of this scenario when all its objects are gone."""
        return bool(self._own_namespaces)

    def play(self) -> Object:
        """Return ``steps`` and ``metrics`` as they were observed."""
        for fleet_node in self._scenario["fleet"]:
            self._store_node(fleet_node)
        before = self._devices(self._sync.nodes())
        steps = []
        for step in self._scenario["steps"]:
            if "pod" in step and objects.pod_key(step) not in self._uids:
                # Nothing can be done to a pod that was not admitted.
                continue
            done = {key: value for key, value in step.items() if key != "observed"}
            observed = self._step(done)
            steps.append({**done, "observed": observed})
        for namespace, name in self._uids:
            if not self._client.get("Pod", name, namespace)["spec"].get("nodeName"):
                self._client.delete("Pod", name, namespace, grace_seconds=0)
        self._sync.pods()
        after: Object = {"before": before, "after": self._devices(self._sync.nodes())}
        after |= {f"{name}_after": value for name, value in self._usage().items()}
        return {"steps": steps, "metrics": after}

    def clear(self) -> None:
        """Remove everything that the scenario created, and wait until HAMi has forgotten it."""
        for namespace, name in self._uids:
            self._client.delete("Pod", name, namespace, grace_seconds=0)
        for namespace, name in self._quotas:
            self._client.delete("ResourceQuota", name, namespace)
        self._sync.pods()
        for name in self._nodes:
            self._client.delete("Node", name)
        poll(
            lambda: not set(self._nodes) & self._devices(self._cluster.scheduler_metrics()).keys(),
            timeout=self._cluster.timing.settle,
            missing=lambda: "metrics without the scenario's nodes",
        )

    def _step(self, step: Object) -> Object:
        waited = list(self._waiting)
        observed = self._actions[step["op"]](step)
        self._sync.pods()
        if step["op"] not in _WAKES_NOBODY:
            for key in waited:
                if key in self._waiting and self._may_tell(self._uids[key]):
                    self._try_again(key)
        if waited:
            self._sync.pods()
            for key in waited:
                if key in self._uids:
                    self._await_events(self._uids[key], self._client.get("Pod", key[1], key[0]))
        pending = {"/".join(key): self._state(key) for key in waited if key in self._uids}
        if pending:
            observed["pending"] = pending
        usage = self._usage()
        if step["op"] == "quota" and "quota" in usage:
            usage["quota"] = usage["quota"].get(step["namespace"], {})
        return observed | usage

    def _try_again(self, key: PodKey) -> None:
        if not self._cluster.try_again([self._uids[key]]):
            self._await_quiet()
        if self._client.get("Pod", key[1], key[0])["spec"].get("nodeName"):
            self._waiting.remove(key)
            if key not in self._unserved:
                self._serve(key)

    def _may_tell(self, uid: str) -> bool:
        """Whether HAMi may still say something of a pod.

        client-go drops the 26th event of one object, and puts the tenth text of one reason together with those before
        (tools/record/events_cache.go, EventSourceObjectSpamFilter and EventAggregator).
        """
        events = self._journal.events_of(uid)
        texts = {event.get("message") for event in events if event.get("reason") == "FilteringFailed"}
        return sum(int(event.get("count") or 1) for event in events) <= 13 and len(texts) <= 4

    def _await_quiet(self) -> None:
        """Wait until a real kube-scheduler has nothing left to try."""
        seen = self._journal.news()
        while (now := self._journal.wait_for_news(seen, _QUIET)) > seen:
            seen = now

    def _create(self, step: Step) -> Object:
        key = objects.pod_key(step)
        self._ensure_namespace(key[0], step.get("ns_labels") or {})
        pod = {"apiVersion": "v1", "kind": "Pod", **step["object"]}
        plain = self._without_hami(pod)
        try:
            stored = self._client.create("Pod", pod, key[0])
        except ApiError as error:
            return {"admission": "denied", "code": error.code, "reason": error.reason or None, "message": error.message}
        uid = stored["metadata"]["uid"]
        self._uids[key] = uid
        if step.get("agent") is False:
            self._unserved.add(key)
        mutated = plain if isinstance(plain, str) else json_patch(_content(plain), _content(stored))
        first = self._first_decision(uid, stored)
        if first["spec"].get("schedulerName") == self._hami_name:
            self._await_events(uid, first)
        observed = {"admission": "allowed", "mutated": mutated, **self._decided(uid, first)}
        node = first["spec"].get("nodeName")
        if not node:
            if self._is_scheduled(stored):
                self._waiting.append(key)
        elif key not in self._unserved and self._serve(key):
            observed["completed_by_agent"] = True
        return observed

    def _without_hami(self, pod: Object) -> Object | str:
        """Return the pod as the API server would store it without HAMi, or why it would not."""
        metadata = {**pod["metadata"], "namespace": NAMESPACE}
        try:
            return self._client.create("Pod", {**pod, "metadata": metadata}, NAMESPACE, dry_run=True)
        except ApiError as error:
            return error.message

    def _is_scheduled(self, pod: Object) -> bool:
        """Whether any scheduler here takes the pod."""
        known = pod["spec"].get("schedulerName") in (self._hami_name, _ORDINARY)
        return known and not pod["spec"].get("schedulingGates")

    def _first_decision(self, uid: str, stored: Object) -> Object:
        """Return the pod when it was first bound or first refused."""
        if not self._is_scheduled(stored):
            return stored
        return (
            wait_until(
                self._journal,
                lambda: next((seen.object for seen in self._journal.history(uid) if _is_decided(seen.object)), None),
                timeout=self._cluster.timing.place,
                missing=lambda: f"a node or a refusal for pod {stored['metadata']['name']}",
                history=lambda: [str(seen.object.get("status")) for seen in self._journal.history(uid)],
            )
            or stored
        )

    def _await_events(self, uid: str, pod: Object) -> None:
        """Wait until the events of a pod are complete."""
        if pod["spec"].get("nodeName") and _PHASE in (pod["metadata"].get("annotations") or {}):
            # The pod is seen on its node before HAMi says so.
            wait_until(
                self._journal,
                lambda: any(event.get("reason") == _BOUND for event in self._journal.events_of(uid)),
                timeout=self._cluster.timing.settle,
                missing=lambda: f"event {_BOUND} of pod {pod['metadata']['name']}",
            )
        self._sync.events(self._names.count_name)

    def _decided(self, uid: str, pod: Object) -> Object:
        node = pod["spec"].get("nodeName")
        observed = {"scheduled": node or None, "annotations": seen_as.pod_annotations(pod)}
        condition = None if node else _refusal(pod)
        if condition:
            observed["pod_condition"] = condition.get("reason")
            observed["pod_condition_message"] = condition.get("message")
        observed["events"] = self._new_events(uid)
        return observed

    def _new_events(self, uid: str) -> list[Object]:
        """Return HAMi's events of a pod that were not returned before."""
        told = self._told.setdefault(uid, set())
        found = []
        for event in self._journal.events_of(uid):
            if not event.get("reason", "").startswith(("Filtering", "Binding")):
                continue
            one = {"reason": event["reason"], "type": event.get("type", ""), "message": event.get("message", "")}
            if (mark := (one["type"], one["reason"], one["message"])) not in told:
                told.add(mark)
                found.append(one)
        return sorted(found, key=lambda one: (one["reason"], one["message"]))

    def _state(self, key: PodKey) -> Object:
        pod = self._client.get("Pod", key[1], key[0])
        return self._decided(self._uids[key], pod)

    def _serve(self, key: PodKey) -> bool:
        """Do what a device plugin does after a bind; return whether there was anything to do."""
        namespace, name = key
        pod = self._client.get("Pod", name, namespace)
        text = (pod["metadata"].get("annotations") or {}).get(_TO_ALLOCATE)
        if text is None:
            return False
        done = {_TO_ALLOCATE: allocation.erase_all(text), _PHASE: "success"}
        self._client.patch("Pod", name, {"metadata": {"annotations": done}}, namespace)
        node = self._client.get("Node", pod["spec"]["nodeName"])
        held = (node["metadata"].get("annotations") or {}).get(lock.LOCK)
        if held is not None and lock.owned_by(held, key):
            self._client.patch("Node", node["metadata"]["name"], {"metadata": {"annotations": {lock.LOCK: None}}})
        return True

    def _delete(self, step: Object) -> Object:
        key = objects.pod_key(step)
        pod = self._client.get("Pod", key[1], key[0])
        if step.get("grace") and (not pod["spec"].get("nodeName") or pod["status"].get("phase") in _ENDED):
            # The API server waits only for a kubelet that has the pod running.
            del step["grace"]
        self._client.delete("Pod", key[1], key[0], grace_seconds=step.get("grace") or 0, missing_ok=False)
        if not step.get("grace"):
            del self._uids[key]
            self._waiting = [one for one in self._waiting if one != key]
        return {}

    def _complete(self, step: Step) -> Object:
        return self._status({**step, "status": {"phase": "Succeeded"}})

    def _fail(self, step: Step) -> Object:
        return self._status({**step, "status": {"phase": "Failed"}})

    def _status(self, step: Step) -> Object:
        namespace, name = objects.pod_key(step)
        body = {"status": step["status"]}
        self._client.patch("Pod", name, body, namespace, type="strategic", subresource="status")
        return {}

    def _patch_pod(self, step: Step) -> Object:
        namespace, name = objects.pod_key(step)
        self._client.patch("Pod", name, step["patch"], namespace)
        return {}

    def _quota(self, step: Step) -> Object:
        namespace, name = key = (step["namespace"], step.get("name", "quota"))
        self._ensure_namespace(namespace, {})
        if step["hard"] is None:
            self._client.delete("ResourceQuota", name, namespace)
            self._quotas.discard(key)
        elif key in self._quotas:
            change = [{"op": "replace", "path": "/spec/hard", "value": step["hard"]}]
            self._client.patch("ResourceQuota", name, change, namespace, type="json")
        else:
            quota = {
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": step["hard"]},
            }  # fmt: skip
            self._client.create("ResourceQuota", quota, namespace)
            self._quotas.add(key)
        self._sync.quotas(self._names.cores_name)
        return {}

    def _update_node(self, step: Step) -> Object:
        patch = objects.node_patch(step)
        status = patch.pop("status", None)
        if status is not None:
            self._client.patch("Node", step["node"], {"status": status}, subresource="status")
        self._client.patch("Node", step["node"], patch)
        return {} if step.get("register_run") is False else self._register_run(step)

    def _register_run(self, _step: Step) -> Object:
        return {"devices": self._devices(self._sync.nodes())}

    def _restart(self, step: Step) -> Object:
        self._cluster.restart("hami-scheduler")
        return self._register_run(step)

    def _add_node(self, step: Step) -> Object:
        self._store_node(step["fleet_node"])
        self._sync.nodes()
        return {}

    def _delete_node(self, step: Step) -> Object:
        self._client.delete("Node", step["node"], missing_ok=False)
        self._nodes.remove(step["node"])
        return self._register_run(step)

    def _sleep(self, step: Step) -> Object:
        threading.Event().wait(step["seconds"])
        return {}

    def _node_annotations(self, step: Step) -> Object:
        return {"annotations": seen_as.node_annotations(self._client.get("Node", step["node"]))}

    def _ensure_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        self._own_namespaces.add(name)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        try:
            self._client.create("Namespace", body)
        except ApiError as error:
            if error.code != 409:
                raise
            self._client.patch("Namespace", name, {"metadata": {"labels": dict(labels)}})

    def _store_node(self, fleet_node: Mapping[str, Any]) -> None:
        node = objects.node(fleet_node)
        node["status"] |= {
            "capacity": node["status"]["allocatable"],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Recorded", "message": ""}],
        }
        self._client.create("Node", {"apiVersion": "v1", "kind": "Node", **node})
        self._nodes.append(fleet_node["node"])

    def _samples(self, text: str) -> tuple[metrics.Sample, ...]:
        return metrics.read(text, _SERIES, self._release)

    def _devices(self, text: str) -> Object:
        return seen_as.device_usage(self._samples(text))

    def _usage(self) -> Object:
        """Return ``vgpu``, and ``quota`` of the namespaces that are the scenario's own."""
        samples = self._samples(self._cluster.scheduler_metrics())
        own = f"{NAMESPACE}/"
        pods = {name: used for name, used in seen_as.pod_usage(samples).items() if not name.startswith(own)}
        quotas = seen_as.quota_usage(samples, traits(self._release))
        found: Object = {"vgpu": pods}
        if told := {name: quotas[name] for name in sorted(self._own_namespaces) if name in quotas}:
            found["quota"] = told
        return found


def _content(pod: Object) -> Object:
    """Return what HAMi may change of a pod, without our own mark."""
    metadata = pod["metadata"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != NONCE}
    kept = {"annotations": metadata.get("annotations") or {}, "labels": labels}
    return {"metadata": {key: value for key, value in kept.items() if value}, "spec": pod["spec"]}


def _refusal(pod: Object) -> Object | None:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), None)


def _is_decided(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") or _refusal(pod))
