"""The facade of one test: its namespace, its pods, the ledger of what every leased card should carry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_hami.checks import Capability
from pytest_hami.contract import metrics, register, releases
from pytest_hami.contract.env import CACHE_PATTERN, HOOK_LIBRARY, PRELOAD_FILE
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.expect import baseline, observe
from pytest_hami.expect.accounting import NOTHING, Use, node_score, total
from pytest_hami.expect.expectations import Expectation, ExpectationError
from pytest_hami.expect.failures import (
    ClaimFailed,
    DeviationChanged,
    Failure,
    MissingCapability,
    require,
    require_equal,
)
from pytest_hami.expect.pods import Pod
from pytest_hami.expect.podspec import Container, pod_manifest
from pytest_hami.text import one_line

if TYPE_CHECKING:
    from pytest_hami.cluster.base import Cluster, Timing
    from pytest_hami.kube.client import KubeClient
    from pytest_hami.kube.journal import Journal


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
        self._hami.require_use({self._card.uuid: Use(memory, cores, shares)}, "as the check states")


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
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.nodes = tuple(nodes)
        self.deviations: list[Expectation] = []
        self.device_config = DeviceConfig()
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
        self._before: dict[str, Use] = {}
        self._namespaces = [namespace]
        self._create_namespace(namespace)
        found = metrics.card_usage(metrics.parse(self.cluster.scheduler_metrics(), metrics.USAGE_SERIES))
        self._before = {
            uuid: Use(c.memory, c.cores, c.shares) for (node, uuid), c in found.items() if node in self.node_names
        }

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
        self._await_quota(where, watched)

    def drop_quota(self, *, name: str = "limits", namespace: str | None = None) -> None:
        """Delete a ResourceQuota and wait until HAMi's live metrics show no limit."""
        where = namespace or self.namespace
        self.client.delete("ResourceQuota", name, where)
        self._await_quota(where, dict.fromkeys(key.removeprefix("limits.") for key in QUOTA_KEYS))

    def require_quota_used(self, **expected: int) -> None:
        """Assert what HAMi counts against the namespace: ``gpumem`` in MiB, ``gpucores`` in percent. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, poll

        def seen() -> dict[str, int]:
            found = metrics.quota_usage(metrics.parse(self.cluster.scheduler_metrics(), metrics.QUOTA_SERIES))
            return {key: int(found.get((self.namespace, f"nvidia.com/{key}"), (-1, None))[0]) for key in expected}

        with suppress(WaitTimeout):
            poll(lambda: seen() == expected, timeout=self.timing.settle, missing=lambda: "the quota's use")
        require_equal(expected, seen(), f"metric hami_resource_quota_used of namespace {self.namespace}")

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

    def require_hook(self, pod: Pod, container: str | None = None) -> None:
        """Assert that a container is preloaded with the hook library and has it mapped. Raises ClaimFailed."""
        where = f"{pod!r} container {container or 'main'}"
        preload = pod.exec(["cat", PRELOAD_FILE], container)
        require_equal({PRELOAD_FILE: HOOK_LIBRARY}, {PRELOAD_FILE: preload.stdout.strip()}, where)
        maps = pod.exec(["cat", "/proc/1/maps"], container).stdout
        require(HOOK_LIBRARY in maps, f"{HOOK_LIBRARY} mapped", maps[:300], where=f"{where} /proc/1/maps")

    def require_devices(self, pod: Pod, container: str | None = None) -> None:
        """Assert that a container sees the device nodes of its cards and of no other. Raises ClaimFailed."""
        name = container or pod.stored["spec"]["containers"][0]["name"]
        index = {card.uuid: card.index for card in self.cards}
        expected = sorted(f"nvidia{index[share.uuid]}" for share in pod.shares.get(name, ()))
        listed = pod.exec(["ls", "/dev"], container).stdout.split()
        seen = sorted(entry for entry in listed if entry.startswith("nvidia") and entry[6:].isdigit())
        require(seen == expected, f"device nodes {expected}", seen, where=f"{pod!r} container {name} /dev")

    def nvml_view(self, pod: Pod, container: str | None = None) -> list[tuple[int, str, int]]:
        """Return what NVML shows in a container: (index, UUID, total MiB) of each card. Raises ClaimFailed."""
        query = ["nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.free", "--format=csv,noheader,nounits"]
        result = pod.exec(query, container)
        require(result.code == 0, "exit code 0 of nvidia-smi", f"{result.code}: {result.stderr}", where=repr(pod))
        rows = [[field.strip() for field in line.split(",")] for line in result.stdout.splitlines() if line.strip()]
        require(
            all(len(row) == 4 and row[0].isdigit() and row[2].isdigit() and row[3].isdigit() for row in rows),
            "lines of index, uuid, total MiB, free MiB", result.stdout[:500], where=f"nvidia-smi in {pod!r}",
        )  # fmt: skip
        require(
            all(int(free) <= int(whole) for *_, whole, free in rows), "free memory up to the total", rows,
            where=f"nvidia-smi in {pod!r}",
        )  # fmt: skip
        view = [(int(index), uuid, int(whole)) for index, uuid, whole, _ in rows]
        self._notes.setdefault("nvml", []).extend(list(row) for row in view)
        return view

    def one_of(self, pods: Sequence[Pod]) -> Pod:
        """Return the one pod that was placed; the others must still wait. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        self.cluster.poke()
        # Whether none, one or several were placed is said below.
        with suppress(WaitTimeout):
            wait_until(
                self.journal,
                lambda: [pod for pod in pods if pod.node],
                timeout=self.timing.place,
                missing=lambda: "one of the waiting pods bound",
            )
        placed = [pod for pod in pods if pod.node]
        require(len(placed) == 1, f"one of {len(pods)} waiting pods placed", [repr(pod) for pod in placed])
        return placed[0]

    def require_capability(self, capability: Capability) -> None:
        """Skip the rest of a check on a cluster that lacks a capability."""
        if capability not in self.cluster.capabilities:
            raise MissingCapability(capability)

    def expected(self, name: str) -> Expectation:
        """Return what this release is expected to do. Raises ExpectationError for an unknown name."""
        if name not in self._expectations:
            raise ExpectationError(f"no expectation {name!r} for HAMi {self.cluster.release}")
        return self._expectations[name]

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
        self.require_shares(node)

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
        """Return the cards that a node's annotation registers. Raises ClaimFailed for a malformed one."""
        found = self.journal.find("Node", None, node) or {}
        text = observe.annotations(found).get(observe.REGISTER, "")
        try:
            return register.parse(text)
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
        """Assert the plugin's variables in every container that has cards, key by key."""
        for name, shares in pod.shares.items():
            if not shares or any(c["name"] == name for c in pod.stored["spec"].get("initContainers") or []):
                continue
            scaled = self._scaled.get(pod.node, 1.0) > 1
            expected = baseline.expected_env(
                shares, oversubscribe=scaled, log_level=self.device_config.lib_cuda_log_level
            )
            # As submitted: what the webhook adds to a container with cards is the core policy and nothing else.
            container = next(c for c in pod.submitted["spec"]["containers"] if c["name"] == name)
            expected |= baseline.env_of_interest({e["name"]: e.get("value", "") for e in container.get("env") or []})
            if self.device_config.gpu_core_policy not in {"", "default"}:
                expected["GPU_CORE_UTILIZATION_POLICY"] = self.device_config.gpu_core_policy
            env = pod.env(name)
            require_equal(expected, baseline.env_of_interest(env), f"{pod!r} container {name} env")
            cache = env.get(baseline.CACHE, "absent")
            require(
                bool(CACHE_PATTERN.fullmatch(cache)) and self._caches.setdefault(cache, (pod.uid, name)) == (pod.uid, name),
                "a cache path of its own, /usr/local/vgpu/<uuid>.cache", cache,
                where=f"{pod!r} container {name} {baseline.CACHE}",
            )  # fmt: skip

    def require_accounting(self, when: str, unless: Callable[[], bool] = lambda: False) -> None:
        """Assert that every leased card and every pod of this test carries exactly what the ledger says.

        Cards and pods that are not of this test stay untouched. The question is dropped as soon as ``unless`` holds.
        """
        held = total(pod.use for pod in self._pods)
        expected = {c.uuid: self._before.get(c.uuid, NOTHING) + held.get(c.uuid, NOTHING) for c in self.cards}
        self.require_use(expected, when, unless)

    def require_use(self, expected: Mapping[str, Use], when: str, unless: Callable[[], bool] = lambda: False) -> None:
        """Assert the metrics of the named cards and of the pods that hold any, giving HAMi the time of its snapshot.

        Raises ClaimFailed.
        """
        names = {c.uuid: f"{c.node}#{c.index} {c.uuid}" for c in self.cards}
        wanted = {names.get(uuid, uuid): str(use) for uuid, use in expected.items()}
        for pod in self._pods:
            for uuid, use in pod.use.items():
                wanted[f"{pod.namespace}/{pod.name} {uuid}"] = f"{use.memory} MiB, {use.cores} %"
        deadline = time.monotonic() + self.timing.settle
        readings = 0
        while True:
            seen = self._usage_rows(self.cluster.fresh_metrics(), set(expected), names)
            readings += 1
            if unless():
                return
            if seen == wanted or time.monotonic() > deadline:
                break
        self._notes.setdefault("usage", []).append({"when": when, "cards": seen, "readings": readings})
        require_equal(wanted, seen, f"{METRICS} {when}")

    def _usage_rows(self, text: str, uuids: set[str], names: Mapping[str, str]) -> dict[str, str]:
        try:
            samples = metrics.parse(text, metrics.ACCOUNTING_SERIES)
            cards, pods = metrics.card_usage(samples), metrics.pod_usage(samples)
        except metrics.MetricsError as error:
            raise ClaimFailed(Failure("sound metrics", str(error), where=METRICS)) from None
        rows = dict.fromkeys((names.get(uuid, uuid) for uuid in uuids), "no series")
        owner = {c.uuid: c.node for c in self.cards}
        for (node, uuid), card in cards.items():
            if uuid in uuids:
                row = names.get(uuid, uuid) if node == owner.get(uuid) else f"{node}: {uuid}"
                rows[row] = str(Use(card.memory, card.cores, card.shares))
        for (namespace, name), by_card in pods.items():
            if namespace in self._namespaces:
                rows |= {
                    f"{namespace}/{name} {u}": f"{memory} MiB, {cores} %" for u, (memory, cores) in by_card.items()
                }
        return rows

    def samples(self) -> tuple[metrics.Sample, ...]:
        """Return the HAMi scheduler's metrics after a register run."""
        return metrics.parse(self.cluster.fresh_metrics())

    def note(self, name: str, value: Any) -> None:
        """Add a value to the evidence of this case."""
        self._notes[name] = value

    def evidence(self) -> dict[str, Any]:
        """Return what was observed in this test."""
        return {"pods": [pod.evidence() for pod in self._pods], **self._notes}

    def restore(self) -> None:
        """Take back every reconfiguration of this test."""
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
                    pod.delete()
        finally:
            self.restore()
        alive = [pod for pod in self._pods if pod.current is not None]
        for namespace in {pod.namespace for pod in alive}:
            self.client.delete_all("Pod", namespace, grace_seconds=0)
        for pod in alive:
            pod.await_deleted()
        for namespace in self._namespaces:
            self.client.delete("Namespace", namespace)
        self.require_use({card.uuid: self._before.get(card.uuid, NOTHING) for card in self.cards}, "after clean-up")
        for name in sorted(self.node_names):
            self._require_no_lock(name)

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

    def _await_quota(self, namespace: str, limits: Mapping[str, int | None]) -> None:
        from pytest_hami.kube.wait import WaitTimeout, poll

        def seen() -> bool:
            found = metrics.quota_usage(metrics.parse(self.cluster.scheduler_metrics(), metrics.QUOTA_SERIES))
            return all(found.get((namespace, key), (0, None))[1] == limit for key, limit in limits.items())

        missing = f"metric hami_resource_quota_limit of namespace {namespace} equal to {dict(limits)}"
        try:
            poll(seen, timeout=self.timing.settle, missing=lambda: missing)
        except WaitTimeout:
            text = one_line([line for line in self.cluster.scheduler_metrics().splitlines() if namespace in line], 2000)
            raise ClaimFailed(
                Failure(missing, text or "no series of this namespace", where="HAMi's /metrics")
            ) from None

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
    metadata = pod["metadata"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != NONCE}
    return {**pod["spec"], "labels": labels, "annotations": metadata.get("annotations") or {}}


NONCE = "pytest-hami.io/nonce"
METRICS = "metrics hami_gpu_memory_allocated_bytes, _core_allocated_ratio, _shared_count, hami_vgpu_*"
QUOTA_KEYS = ("limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores")
