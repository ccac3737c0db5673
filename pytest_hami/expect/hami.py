"""The facade of one test: its namespace, its pods, the ledger of what every leased card should carry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_hami.checks import Capability
from pytest_hami.contract import metrics, register, releases
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.expect import containers, decision, observe
from pytest_hami.expect.accounting import Use, node_score, total
from pytest_hami.expect.decision import Decision
from pytest_hami.expect.disturbances import Disturbance
from pytest_hami.expect.expectations import Expectation, ExpectationError
from pytest_hami.expect.failures import (
    ClaimFailed,
    DeviationChanged,
    Failure,
    InvalidObservation,
    MissingCapability,
    NotPromised,
    require,
    require_equal,
)
from pytest_hami.expect.ledger import Ledger
from pytest_hami.expect.node_edits import NodeEdits
from pytest_hami.expect.patience import Patience
from pytest_hami.expect.pods import Pod
from pytest_hami.expect.podspec import Container, pod_manifest
from pytest_hami.expect.wake_up import await_wake_up

if TYPE_CHECKING:
    from pytest_hami.cluster.base import Cluster, Timing
    from pytest_hami.kube.client import KubeClient
    from pytest_hami.kube.journal import Journal

MONITOR_TICK = 5.0


@dataclass(frozen=True)
class LeasedCard:
    """A card of a leased node: memory in MiB, cores in percent."""

    uuid: str
    index: int
    type: str
    memory: int
    cores: int
    numa: int
    healthy: bool
    node: str


@dataclass(frozen=True)
class LeasedNode:
    """An exclusively leased node with the nodeSelector that pins a pod to it."""

    name: str
    cards: tuple[LeasedCard, ...]

    @property
    def selector(self) -> dict[str, str]:
        """The nodeSelector for this node."""
        return {"kubernetes.io/hostname": self.name}


class CardUsage:
    """What HAMi's metrics say about one card, waited for and compared."""

    def __init__(self, hami: Hami, card: LeasedCard) -> None:
        self._hami = hami
        self._card = card

    def equals(self, *, memory: int, cores: int, shares: int) -> None:
        """Assert memory in MiB, cores in percent and shares. Raises ClaimFailed."""
        self._hami.ledger.require_use({self._card.uuid: Use(memory, cores, shares)}, "as the check states")


class Hami:
    """What a test author uses: ``pod``, ``denied``, ``quota``, ``usage``, ``known``; cleans up after the test."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        nodes: Sequence[LeasedNode],
        fleet: str,
        labels: Mapping[str, str],
        expectations: Mapping[str, Expectation],
        patience: Patience,
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.patience = patience
        self.nodes = tuple(nodes)
        self.deviations: list[Expectation] = []
        self.device_config = DeviceConfig()
        self.node_edits = NodeEdits(cluster, labels)
        self.traits = releases.traits(releases.Release.parse(cluster.release))
        self._fleet = fleet
        self._labels = dict(labels)
        self._expectations = expectations
        self._pods: list[Pod] = []
        self._notes: dict[str, Any] = {}
        self._scaled: dict[str, float] = {}
        self._restore: list[str] = []
        self._opted_out: str | None = None
        self._caches: dict[str, tuple[str, str]] = {}
        self._oddities = len(cluster.journal.oddities)
        self._namespaces = [namespace]
        self._create_namespace(namespace)
        self.ledger = Ledger(cluster, self.traits, self.cards, self._pods, self._namespaces)

    @property
    def client(self) -> KubeClient:
        """The client of the cluster."""
        return self.cluster.client

    @property
    def journal(self) -> Journal:
        """The journal of the cluster."""
        return self.cluster.journal

    @property
    def timing(self) -> Timing:
        """The time limits of the cluster, in seconds."""
        return self.cluster.timing

    @property
    def node_names(self) -> frozenset[str]:
        """The names of the leased nodes."""
        return frozenset(node.name for node in self.nodes)

    @property
    def nodes_by_name(self) -> dict[str, LeasedNode]:
        """The leased nodes by name."""
        return {node.name: node for node in self.nodes}

    @property
    def cards(self) -> tuple[LeasedCard, ...]:
        """All leased cards."""
        return tuple(card for node in self.nodes for card in node.cards)

    def pod(
        self,
        *containers: Container,
        on: LeasedCard | LeasedNode | None = None,
        memory: int | None = None,
        cores: int | None = None,
        count: int | None = 1,
        percent: int | None = None,
        init: Sequence[Container] = (),
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        candidates: Sequence[LeasedNode] = (),
    ) -> Pod:
        """Create a pod: the given containers, or one that asks ``count`` cards of ``memory`` MiB and ``cores`` percent.

        ``on`` a card pins node and UUID, on a node pins the node; without it any leased node may be chosen.
        ``candidates`` are the nodes that rules in ``spec``, such as an affinity, leave over.
        """
        body = self.manifest(
            *containers, on=on, memory=memory, cores=cores, count=count, percent=percent, init=init,
            annotations=annotations, labels=labels, spec=spec, namespace=namespace,
        )  # fmt: skip
        from pytest_hami.kube.errors import ApiError

        started = time.monotonic()
        try:
            created = self.client.create("Pod", body)
        except ApiError as error:
            # A webhook's own refusal can carry any code; without it a 5xx is the cluster's trouble.
            if error.code >= 500 and not error.message.startswith("admission webhook"):
                raise
            name = body["metadata"]["name"]
            raise ClaimFailed(Failure("the pod is admitted", str(error), where=f"create pod {name}")) from error
        pod = Pod(self, body, created, started, tuple(node.name for node in candidates))
        self._pods.append(pod)
        return pod

    def attempt(self, *containers: Container, **how: Any) -> tuple[Decision, Pod | None]:
        """Create a pod as ``pod`` does and return what HAMi decided about it, and the pod unless it was denied."""
        from pytest_hami.kube.errors import ApiError

        pod = None
        try:
            pod = self.pod(*containers, **how)
        except ClaimFailed as error:
            answer = error.__cause__
            if not isinstance(answer, ApiError) or not answer.message.startswith("admission webhook"):
                raise
            found = decision.of_denial(answer.message)
        else:
            found = pod.decided()
        self._notes.setdefault("decisions", []).append(str(found))
        return found, pod

    def filter_answer(self, arguments: Mapping[str, Any]) -> str:
        """Call HAMi's extender with these ExtenderArgs: ``answered``, ``an error``, or ``no answer`` (connection closed)."""
        answer = self.cluster.filter(arguments)
        self._notes.setdefault("answers", []).append(answer)
        if answer is None:
            return "no answer"
        return "an error" if answer.get("Error") else "answered"

    def manifest(self, *containers: Container, **how: Any) -> dict[str, Any]:
        """Return the pod that ``pod`` would create."""
        on = how.get("on")
        notes = dict(how.get("annotations") or {})
        selector = {"pytest-hami.io/fleet": self._fleet}
        if isinstance(on, LeasedCard):
            notes.setdefault("nvidia.com/use-gpuuuid", on.uuid)
            selector = {"kubernetes.io/hostname": on.node}
        elif isinstance(on, LeasedNode):
            selector = on.selector
        sizes: dict[str, Any] = {key: how.get(key) for key in ("memory", "cores", "count", "percent")}
        return pod_manifest(
            f"pod-{len(self._pods) + len(self._notes.get('denied', [])) + 1}",
            how.get("namespace") or self.namespace,
            containers or (Container(**sizes),),
            init=how.get("init") or (),
            annotations=notes,
            labels=self._labels | dict(how.get("labels") or {}),
            node_selector=selector,
            spec=how.get("spec"),
        )

    def denied(self, message: str, *containers: Container, code: int = 403, **how: Any) -> None:
        """Assert that creating the pod is denied by HAMi's webhook with exactly ``message``. Raises ClaimFailed."""
        expected = f'admission webhook "vgpu.hami.io" denied the request: {message}'
        self._denied(code, containers, how, lambda seen: seen == expected, expected)

    def denied_by_kubernetes(self, *parts: str, code: int = 403, **how: Any) -> None:
        """Assert that Kubernetes itself refuses the pod with all ``parts`` in its message. Raises ClaimFailed."""
        self._denied(code, (), how, lambda seen: all(part in seen for part in parts), " and ".join(parts))

    def usage(self, card: LeasedCard) -> CardUsage:
        """Return the usage of a card as HAMi's metrics tell it."""
        return CardUsage(self, card)

    def quota(self, hard: Mapping[str, str], *, name: str = "limits", namespace: str | None = None) -> None:
        """Create a ResourceQuota, or replace its ``hard``, and wait until HAMi's live metrics show its limits."""
        where = namespace or self.namespace
        body = {
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": where, "labels": self._labels}, "spec": {"hard": dict(hard)},
        }  # fmt: skip
        if any(q["metadata"]["name"] == name for q in self.client.list("ResourceQuota", where)):
            self.client.delete("ResourceQuota", name, where)
        self.client.create("ResourceQuota", body)
        watched = {key.removeprefix("limits."): int(v) for key, v in hard.items() if key in QUOTA_KEYS}
        self.ledger.await_quota(where, watched)
        self._wake_pods()

    def drop_quota(self, *, name: str = "limits", namespace: str | None = None) -> None:
        """Delete a ResourceQuota and wait until HAMi's live metrics show no limit."""
        where = namespace or self.namespace
        self.client.delete("ResourceQuota", name, where)
        self.ledger.await_quota(where, dict.fromkeys(key.removeprefix("limits.") for key in QUOTA_KEYS))
        self._wake_pods()

    def _wake_pods(self) -> None:
        """Let kube-scheduler try waiting pods again: it knows nothing of HAMi's quotas and would not."""
        if any(pod.may_be_placed for pod in self._pods):
            self.cluster.poke()

    def other_namespace(self, suffix: str, labels: Mapping[str, str] | None = None) -> str:
        """Create another namespace for this test and return its name."""
        name = f"{self.namespace}-{suffix}"
        self._create_namespace(name, labels)
        self._namespaces.append(name)
        return name

    def mutations(self, pod: Pod) -> dict[str, tuple[Any, Any]]:
        """Return what HAMi changed in a pod: ``{field: (without HAMi, as stored)}`` of spec, labels and annotations.

        Without HAMi means a server-side dry run of the same pod in a namespace that opted out of the webhook, so that
        the API server's own defaulting cancels out.
        """
        if self._opted_out is None:
            self._opted_out = self.other_namespace("plain", {"hami.io/webhook": "ignore"})
        body = {**pod.submitted, "metadata": {**pod.submitted["metadata"], "namespace": self._opted_out}}
        plain, stored = _fields(self.client.create("Pod", body, dry_run=True)), _fields(pod.stored)
        changed = (key for key in sorted({*plain, *stored}) if plain.get(key) != stored.get(key))
        return {key: (plain.get(key), stored.get(key)) for key in changed if key != "nodeName"}

    def one_of(self, pods: Sequence[Pod]) -> Pod:
        """Return the one pod that was placed; the others must still wait. Raises ClaimFailed."""
        await_wake_up(self, pods)
        placed = [pod for pod in pods if pod.node]
        require(len(placed) == 1, f"one of {len(pods)} waiting pods placed", [repr(pod) for pod in placed])
        return placed[0]

    def require_capability(self, capability: Capability) -> None:
        """Skip the rest of a check on a cluster that lacks a capability."""
        if capability not in self.cluster.capabilities:
            raise MissingCapability(capability)

    def expected(self, name: str) -> Expectation:
        """Return what this release is expected to do. Raises ExpectationError for an unknown name.

        Raises NotPromised, which ends the case as ``unsupported``, where the release makes no such promise.
        """
        if name not in self._expectations:
            raise ExpectationError(f"no expectation {name!r} for HAMi {self.cluster.release}")
        found = self._expectations[name]
        if found.unsupported:
            raise NotPromised(f"HAMi {self.cluster.release}: {found.unsupported}")
        return found

    @contextmanager
    def known(self, name: str) -> Iterator[Any]:
        """Assert release-dependent behaviour: the block receives the expected value.

        When the release is known to deviate, a passing block makes the outcome ``deviation`` and a failing one
        ``changed``; otherwise the block's own result stands.
        """
        expectation = self.expected(name)
        try:
            yield expectation.value
        except ClaimFailed as error:
            if expectation.is_deviation:
                raise DeviationChanged(error.failure) from error
            raise
        if expectation.is_deviation:
            self.deviations.append(expectation)

    def configure_scheduler(self, flags: Mapping[str, str] | None = None, **device_config: Any) -> None:
        """Restart the HAMi scheduler with command-line flags and device-config values; restored after the test."""
        self._restore.append("")
        self.cluster.configure_scheduler(device_config, flags or {})
        self.device_config = DeviceConfig.from_dict(device_config)

    def configure_node(self, node: LeasedNode, **config: Any) -> None:
        """Restart a node's device plugin with node-config values; restored after the test."""
        self._restore.append(node.name)
        self._scaled[node.name] = float(config.get("devicememoryscaling", 1.0))
        self.cluster.configure_node(node.name, config)
        self._follow_registration(node)
        self.require_shares(node)

    def _follow_registration(self, node: LeasedNode) -> None:
        """Let the journal, whose watch may be behind, come up with the register annotation that the API server has."""
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        def registers(found: Mapping[str, Any] | None) -> str | None:
            return observe.annotations(found or {}).get(observe.REGISTER)

        stored = registers(self.client.get("Node", node.name))
        # What it registers is for the check to judge.
        with suppress(WaitTimeout):
            wait_until(
                self.journal,
                lambda: registers(self.journal.find("Node", None, node.name)) == stored,
                timeout=self.timing.settle,
                missing=lambda: f"the register annotation of node {node.name}",
            )

    def require_shares(self, node: LeasedNode) -> None:
        """Assert that a node advertises, in capacity and allocatable, the sum of its cards' shares. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        def seen() -> dict[str, str]:
            status = (self.journal.find("Node", None, node.name) or {}).get("status") or {}
            return {key: str((status.get(key) or {}).get("nvidia.com/gpu")) for key in ("capacity", "allocatable")}

        def expected() -> dict[str, str]:
            return dict.fromkeys(("capacity", "allocatable"), str(sum(d.count for d in self.registered(node.name))))

        with suppress(WaitTimeout):
            wait_until(
                self.journal,
                lambda: seen() == expected(),
                timeout=self.timing.settle,
                missing=lambda: "shares of the node",
            )
        require_equal(expected(), seen(), f"node {node.name} nvidia.com/gpu")

    def registered(self, node: str) -> tuple[register.Device, ...]:
        """Return the cards that a node's annotation registers, by index. Raises ClaimFailed for a malformed one.

        HAMi's device plugin writes them in the order of a Go map, another one with every scan (2.10.0, register.go).
        """
        found = self.journal.find("Node", None, node) or {}
        text = observe.annotations(found).get(observe.REGISTER, "")
        try:
            return tuple(sorted(register.parse(text), key=lambda device: device.index))
        except register.RegisterError as error:
            raise ClaimFailed(
                Failure("a well-formed register annotation", f"{text[:300]!r}: {error}", where=f"node {node}")
            ) from None

    def candidates(self, pod: Pod) -> list[str]:
        """Return the leased nodes that kube-scheduler offers to HAMi for a pod: those with cards that its selectors fit."""
        host = (pod.submitted["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
        offered = [host] if host else pod.offered or [node.name for node in self.nodes]
        return sorted(node.name for node in self.nodes if node.cards and node.name in offered)

    def scores(self, pod: Pod) -> dict[str, float]:
        """Return the score that each candidate had before ``pod``, from what the other pods of this test hold."""
        held = total(other.use for other in self._pods if other is not pod)
        return {name: node_score(held, self.registered(name)) for name in self.candidates(pod)}

    def require_env(self, pod: Pod) -> None:
        """Assert the plugin's variables in every container that has cards. Raises ClaimFailed."""
        containers.require_env(pod, self.device_config, self._scaled.get(pod.node, 1.0), self._caches)

    def require_release(self, pod: Pod, how: str) -> None:
        """Assert that HAMi took back what a pod held, unless another pod may have been given it. Raises ClaimFailed."""
        if not any(other.may_be_placed for other in self._pods if other is not pod):
            self.ledger.require_accounting(f"after {pod.name} {how}")

    def require_hook(self, pod: Pod, container: str | None = None) -> None:
        """Assert that a container is preloaded with the hook library. Raises ClaimFailed."""
        containers.require_hook(pod, container)

    def require_devices(self, pod: Pod, container: str | None = None) -> None:
        """Assert that a container sees the device nodes of its cards and of no other. Raises ClaimFailed."""
        containers.require_devices(pod, {card.uuid: card.index for card in self.cards}, container)

    def nvml_view(self, pod: Pod, container: str | None = None) -> list[tuple[int, str, int]]:
        """Return what NVML shows in a container: (index, UUID, total MiB) of each card. Raises ClaimFailed."""
        view = containers.nvml_view(pod, container)
        self._notes.setdefault("nvml", []).extend(list(row) for row in view)
        return view

    def require_quota_used(self, **expected: int) -> None:
        """Assert what HAMi counts against the namespace: ``gpumem`` in MiB, ``gpucores`` in percent. Raises ClaimFailed."""
        self.ledger.require_quota_used(self.namespace, expected)

    def samples(self) -> tuple[metrics.Sample, ...]:
        """Return the HAMi scheduler's metrics after a register run, under the names that they have in 2.10.0."""
        return metrics.read(self.cluster.fresh_metrics(), (), self.traits.release)

    def monitor_samples(
        self, node: str, until: Callable[[Mapping[str, Sequence[metrics.Sample]]], object]
    ) -> Mapping[str, Sequence[metrics.Sample]]:
        """Return the metrics of a node's HAMi monitor by name, as soon as they fulfil a condition. Raises ClaimFailed.

        It looks for new containers every five seconds (HAMi 2.10.0, cmd/vGPUmonitor/feedback.go).
        """
        from pytest_hami.kube.wait import WaitTimeout, poll

        found: dict[str, list[metrics.Sample]] = {}

        def fulfilled() -> bool:
            found.clear()
            for sample in metrics.parse(self.cluster.monitor_metrics(node)):
                found.setdefault(sample.name, []).append(sample)
            return bool(until(found))

        try:
            poll(fulfilled, timeout=MONITOR_TICK + self.timing.settle, missing=lambda: "the series", interval=0.1)
        except WaitTimeout:
            raise ClaimFailed(
                Failure("the series that the check waits for", ", ".join(sorted(found)), where=f"monitor of {node}")
            ) from None
        return found

    def note(self, name: str, value: Any) -> None:
        """Add a value to the evidence of this case."""
        self._notes[name] = value

    def disturbances(self) -> list[Disturbance]:
        """Return what disturbed the pods of this test and was got over."""
        return [found for pod in self._pods for found in pod.disturbances()]

    def evidence(self) -> dict[str, Any]:
        """Return what was observed in this test."""
        return {"pods": [pod.evidence() for pod in self._pods], "usage": self.ledger.readings, **self._notes}

    def restore(self) -> None:
        """Take back every edit of a node and every reconfiguration of this test."""
        self.node_edits.undo()
        for node in dict.fromkeys(self._restore):
            if node:
                self.cluster.configure_node(node, {})
            else:
                self.cluster.configure_scheduler({}, {})

    def clean_up(self) -> None:
        """Remove everything, restore, and assert that accounting and locks are as before. Raises ClaimFailed."""
        try:
            # Those that wait go first: one that is bound while it is deleted leaves the node locked (HAMi 2.10.0).
            for pod in self._pods:
                if pod.current is not None and not pod.node:
                    self.client.delete("Pod", pod.name, pod.namespace, grace_seconds=0)
                    pod.await_deleted()
        finally:
            self.restore()
        alive = [pod for pod in self._pods if pod.current is not None]
        for namespace in {pod.namespace for pod in alive}:
            self.client.delete_all("Pod", namespace, grace_seconds=0)
        for pod in alive:
            pod.await_deleted()
        for namespace in self._namespaces:
            self.client.delete("Namespace", namespace)
        self.ledger.require_untouched("after clean-up")
        for name in sorted(self.node_names):
            self._require_no_lock(name)
        odd = self.journal.oddities[self._oddities :]
        if odd:
            text = "; ".join(odd)
            raise InvalidObservation(
                Failure("sound objects from the watches", text, where="what is absent may be lost")
            )

    def _require_no_lock(self, name: str) -> None:
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        def lock() -> str | None:
            return observe.annotations(self.journal.find("Node", None, name) or {}).get(observe.LOCK)

        # Nodes have a watch of their own, which may be behind that of the pods.
        with suppress(WaitTimeout):
            wait_until(self.journal, lambda: lock() is None, timeout=self.timing.settle, missing=lambda: "no node lock")
        require(lock() is None, "no node lock", lock(), where=f"node {name} after clean-up")

    def _create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        self.client.create(
            "Namespace",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": self._labels | dict(labels or {})},
            },
        )

    def _denied(self, code: int, containers: Sequence[Container], how: Mapping[str, Any], fits: Any, text: str) -> None:
        body = self.manifest(*containers, **how)
        name = body["metadata"]["name"]
        self._notes.setdefault("denied", [])
        try:
            created = self.client.create("Pod", body)
        except Exception as error:
            seen_code, seen = getattr(error, "code", None), str(getattr(error, "message", error))
            if seen_code is None:
                raise
            self._notes["denied"].append({"pod": name, "code": seen_code, "message": seen})
            require(
                seen_code == code and bool(fits(seen)),
                f"{code}: {text}",
                f"{seen_code}: {seen}",
                where=f"create pod {name}",
            )
            return
        self._pods.append(Pod(self, body, created, time.monotonic()))
        raise ClaimFailed(Failure(f"denied with {code}: {text}", "the pod was admitted", where=f"create pod {name}"))


def _fields(pod: Mapping[str, Any]) -> dict[str, Any]:
    from pytest_hami.kube.client import NONCE

    metadata = pod["metadata"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != NONCE}
    return {**pod["spec"], "labels": labels, "annotations": metadata.get("annotations") or {}}


QUOTA_KEYS = ("limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores")
