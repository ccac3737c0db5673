"""The HAMi scheduler as a state machine without I/O (pkg/scheduler/scheduler.go).

A server around it feeds API events, asks for decisions, and performs the patches and events that come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pytest_hami.contract import events
from pytest_hami.contract.quantities import ContainerRequest, pod_requests
from pytest_hami.contract.reasons import UNREGISTERED, Reason
from pytest_hami.simulator.hami import exposition, webhook
from pytest_hami.simulator.hami.config import SchedulerConfig
from pytest_hami.simulator.hami.fit import GPU_POLICY, Ask, NodeFit, NodeState, Refusal, fit_node
from pytest_hami.simulator.hami.pods import PodBook
from pytest_hami.simulator.hami.quota import QuotaBook
from pytest_hami.simulator.hami.registry import NodePatch, Registry, read_devices
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.score import WEIGHTS, WeightsError
from pytest_hami.simulator.hami.state import (
    ALLOCATED,
    BIND_PHASE,
    BIND_TIME,
    TO_ALLOCATE,
    VGPU_NODE,
    VGPU_TIME,
    Card,
    NodeRecord,
    meta,
    notes_of,
    uid_of,
)
from pytest_hami.simulator.hami.webhook import Admission

__all__ = ["Admission", "FilterResult", "HamiScheduler", "NodePatch", "PodEvent", "SchedulerConfig"]

NODE_POLICY = "hami.io/node-scheduler-policy"


@dataclass(frozen=True)
class PodEvent:
    """An event to record on the pod."""

    type: str
    reason: str
    message: str


_NO_REQUEST = PodEvent("Warning", "FilteringFailed", "does not request any resource")


@dataclass(frozen=True)
class FilterResult:
    """The answer of Filter: nodes, or failures by node, or an error; the pod's merge patch, and events.

    ``node_names`` is None when no node fits. With a patch, the caller patches the pod first and calls ``rollback``
    when that fails.
    """

    node_names: tuple[str, ...] | None = None
    failed: dict[str, str] = field(default_factory=dict)
    error: str = ""
    patch: dict[str, Any] | None = None
    events: tuple[PodEvent, ...] = ()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class HamiScheduler:
    """One scheduler with empty memory; it is not safe for use from several threads."""

    def __init__(
        self, config: SchedulerConfig, rules: Rules | None = None, now: Callable[[], datetime] = _utc_now
    ) -> None:
        self.config = config
        self.rules = rules or Rules(config.traits)
        self.synced = False
        self._now = now
        self._quota = QuotaBook(config.devices, self.rules)
        self._pods = PodBook(self._quota, self.rules)
        self._registry = Registry(config.devices.count_name, config.node_label_selector, self.rules)
        self._overview: dict[str, list[Card]] = {}

    def fork(self, now: Callable[[], datetime]) -> HamiScheduler:
        """Return an independent scheduler with the same memory."""
        other = HamiScheduler(self.config, self.rules, now)
        other.synced = self.synced
        other._quota = self._quota.fork()
        other._pods = self._pods.fork(other._quota)
        other._registry = self._registry.fork()
        other._overview = dict(self._overview)
        return other

    def pod_event(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Take an ``ADDED``, ``MODIFIED`` or ``DELETED`` event of a pod."""
        self._pods.event(kind, pod)

    def node_event(self, kind: str, node: Mapping[str, Any]) -> bool:
        """Take a node event; True when ``register`` must run because of it."""
        if kind == "DELETED":
            self._overview.pop(str(meta(node).get("name")), None)
        return self._registry.event(kind, node)

    def quota_event(self, kind: str, quota: Mapping[str, Any]) -> None:
        """Take an event of a ResourceQuota."""
        self._quota.apply(kind, quota)

    def register(self) -> list[NodePatch]:
        """Refresh the node cache and the metrics of cards; HAMi does it every 15 s and when a node comes or goes."""
        patches = self._registry.run(self._now())
        self._overview = self._pods.cards(self._registry.nodes)
        self.synced = True
        return patches

    def admit(self, pod: Mapping[str, Any], namespace: str) -> Admission:
        """Return the webhook's answer to the creation of a pod."""
        return webhook.admit(
            pod,
            scheduler_name=self.config.scheduler_name,
            force_overwrite=self.config.force_overwrite,
            config=self.config.devices,
            quota_fits=lambda memory, cores: self._quota.fits(namespace, memory, cores),
            rules=self.rules,
        )

    def filter(self, pod: Mapping[str, Any], node_names: Sequence[str]) -> FilterResult:
        """Choose a node of ``node_names`` and cards on it, and reserve them."""
        requests = self._requests(pod)
        if requests is None:
            told = (_NO_REQUEST,) if self.rules.reports_no_request() else ()
            return FilterResult(node_names=tuple(node_names), events=told)
        self._pods.release(uid_of(pod), self.rules.filter_returns_quota())
        node_names = self.rules.candidates(node_names, self._registry.nodes)
        usage = self._pods.cards(self._registry.nodes)
        if self.rules.overview_follows_filter():
            self._overview = usage
        states = {
            name: NodeState(usage[name], self._node_notes(name, record), record.scores)
            for name in node_names
            if (record := self._registry.nodes.get(name)) is not None
        }
        outcome = self._evaluate(pod, requests, node_names, states)
        if isinstance(outcome, FilterResult):
            return outcome
        fits, _ = outcome
        chosen, ranking = self._choose(pod, fits)
        self._pods.reserve(pod, chosen, fits[chosen].groups)
        message = events.filter_succeeded(chosen, len(node_names) - len(fits), ranking)
        told = (PodEvent("Normal", "FilteringSucceed", message),) if self.rules.reports_success_event() else ()
        return FilterResult(node_names=(chosen,), patch=self._patch(chosen, fits[chosen]), events=told)

    def filter_nodes(self, pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> FilterResult:
        """Choose among full Node objects as if they were idle; nothing is reserved, patched or recorded."""
        names = [str(meta(node).get("name")) for node in nodes]
        requests = self._requests(pod)
        if requests is None:
            return FilterResult(node_names=tuple(names))
        states = {
            name: NodeState([Card(device) for device in record.devices], notes_of(node), record.scores)
            for name, node in zip(names, nodes, strict=True)
            if (record := read_devices(node)) is not None
        }
        outcome = self._evaluate(pod, requests, names, states)
        if isinstance(outcome, FilterResult):
            return FilterResult(failed=outcome.failed, error=outcome.error)
        fits, failed = outcome
        return FilterResult(node_names=(self._choose(pod, fits)[0],), failed=failed)

    def _node_notes(self, name: str, record: NodeRecord) -> Mapping[str, str]:
        return self.rules.node_notes(notes_of(record.node), notes_of(self._registry.objects[name]))

    def asks(self, pod: Mapping[str, Any]) -> bool:
        """Whether the filter sees a request in a pod."""
        return self._requests(pod) is not None

    def _requests(self, pod: Mapping[str, Any]) -> tuple[tuple[str, bool, ContainerRequest | None], ...] | None:
        found = pod_requests(pod, self.config.devices, self.rules.traits)
        requests = tuple(asked for asked in found if self.rules.gets_cards(asked[1]))
        return requests if any(request is not None for _, _, request in requests) else None

    def _evaluate(
        self,
        pod: Mapping[str, Any],
        requests: tuple[tuple[str, bool, ContainerRequest | None], ...],
        names: Sequence[str],
        states: Mapping[str, NodeState],
    ) -> tuple[dict[str, NodeFit], dict[str, str]] | FilterResult:
        notes = notes_of(pod)
        try:
            weights = self.rules.weights(notes.get(WEIGHTS))
        except WeightsError as error:
            text = f"calcScore failed {error} for pod {meta(pod).get('name')}"
            return FilterResult(error=text, events=(PodEvent("Warning", "FilteringFailed", text),))
        ask = Ask(requests, notes, notes.get(GPU_POLICY, self.config.gpu_policy), weights)
        namespace = str(meta(pod).get("namespace"))
        fits: dict[str, NodeFit] = {}
        refusals: dict[str, Refusal] = {}
        for name in names:
            if name not in states:
                refusals[name] = Refusal(UNREGISTERED)
                continue
            outcome = fit_node(
                ask, states[name], lambda memory, cores: self._quota.fits(namespace, memory, cores), self.rules
            )
            if isinstance(outcome, Refusal):
                refusals[name] = outcome
            else:
                fits[name] = outcome
        failed = {
            name: refusal.text if name not in states else self.rules.told_reason(refusal.text)
            for name, refusal in refusals.items()
        }
        if fits:
            return fits, failed
        return FilterResult(failed=failed, events=self._failure_events(refusals, len(names)))

    def _failure_events(self, refusals: Mapping[str, Refusal], count: int) -> tuple[PodEvent, ...]:
        nodes: dict[Reason, list[str]] = {}
        for name, refusal in refusals.items():
            for reason in refusal.reasons:
                nodes.setdefault(reason, []).append(name)
        texts = []
        if self.rules.reports_reason_events():
            texts = [events.filter_failed(reason, named) for reason, named in sorted(nodes.items())]
        if self.rules.reports_closing_event():
            texts.append(events.no_available_node(count))
        return tuple(PodEvent("Warning", "FilteringFailed", text) for text in texts)

    def _choose(self, pod: Mapping[str, Any], fits: Mapping[str, NodeFit]) -> tuple[str, list[tuple[str, float]]]:
        policy = notes_of(pod).get(NODE_POLICY, self.config.node_policy)
        keys = {name: self.rules.node_key(fit.score, policy) for name, fit in fits.items()}
        best = max((key for key in keys.values() if not math.isnan(key)), default=math.nan)
        chosen = self.rules.break_tie([name for name, key in keys.items() if key == best or math.isnan(key)])
        order = sorted((name for name in keys if name != chosen), key=lambda name: keys[name])
        return chosen, [(name, fits[name].score) for name in [*order, chosen]]

    def _patch(self, node: str, fit: NodeFit) -> dict[str, Any]:
        text = self.rules.text_of(fit.groups)
        notes = {VGPU_NODE: node, VGPU_TIME: self._unix(), TO_ALLOCATE: text, ALLOCATED: text}
        return {"metadata": {"annotations": notes, "labels": {VGPU_NODE: node}}}

    def _unix(self) -> str:
        return str(int(self._now().timestamp()))

    def rollback(self, uid: str) -> None:
        """Undo the reservation of a pod whose patch failed, or whose filter broke off."""
        self._pods.release(uid, self.rules.filter_returns_quota())

    def unknown(self, uid: str) -> None:
        """Take note that Bind met a pod or node which is not known."""
        if self.rules.releases_unknown():
            self._pods.release(uid)

    def bind_annotations(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """Return the annotations that Bind adds; times in Unix seconds."""
        return {BIND_TIME: self._unix(), BIND_PHASE: "allocating"}

    def needs_lock(self, pod: Mapping[str, Any]) -> bool:
        """Whether Bind takes the node lock: cards only in init containers take none (issue 2640)."""
        requests = pod_requests(pod, self.config.devices, self.rules.traits)
        return any(request is not None for _, is_init, request in requests if not is_init)

    def known_pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a pod as last seen, None when it was never seen or is gone."""
        for pod in self._pods.objects.values():
            if (meta(pod).get("namespace"), meta(pod).get("name")) == (namespace, name):
                return pod
        return None

    def known_node(self, name: str) -> bool:
        """Whether a Node object of that name exists, registered or not."""
        return name in self._registry.objects

    def metrics(self) -> str:
        """Return the exposition: cards as of the last ``register``, pods and quotas live. Raises CollisionError."""
        return exposition.render(
            self.config, self._overview, self._pods.records.values(), self._quota.entries, self.rules
        )
