"""A pod under test: waiting for it and asserting on it, always by its own UID."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.reasons import Reason, ReasonError, parse_failed_scheduling
from pytest_hami.expect import baseline, decision, disturbances, observe
from pytest_hami.expect.accounting import Use, pod_use
from pytest_hami.expect.decision import Decision
from pytest_hami.expect.disturbances import Disturbance, Kind
from pytest_hami.expect.failures import ClaimFailed, Failure, event_rows, require, require_equal
from pytest_hami.expect.podspec import END_FILE
from pytest_hami.expect.wake_up import await_wake_up

if TYPE_CHECKING:
    from pytest_hami.expect.hami import Hami
    from pytest_hami.kube.exec import ExecResult

# The events that HAMi tells of a placed pod.
PLACED = ("FilteringSucceed", "BindingSucceed")


class Pod:
    """One created pod. The methods wait for a state and assert everything that belongs to it."""

    def __init__(
        self,
        hami: Hami,
        submitted: Mapping[str, Any],
        created: Mapping[str, Any],
        started: float,
        offered: tuple[str, ...] = (),
    ) -> None:
        self.offered = offered
        self._hami = hami
        self.submitted = submitted
        self.stored = created
        self.name: str = created["metadata"]["name"]
        self.namespace: str = created["metadata"]["namespace"]
        self.uid: str = created["metadata"]["uid"]
        self.use: dict[str, Use] = {}
        self.groups: tuple[tuple[DeviceShare, ...], ...] = ()
        self.shares: dict[str, tuple[DeviceShare, ...]] = {}
        self._started = started
        self._env: dict[str, dict[str, str]] = {}
        self._nudges: list[tuple[float, str]] = []

    def __repr__(self) -> str:
        return f"pod {self.namespace}/{self.name} ({self.uid[:8]})"

    @property
    def current(self) -> dict[str, Any] | None:
        """The pod as last seen, None once it is gone."""
        # The answer to the create can be ahead of the watch.
        return self._hami.journal.latest(self.uid) if self._hami.journal.history(self.uid) else dict(self.stored)

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        """The events of this UID."""
        return self._hami.journal.events_of(self.uid)

    @property
    def node(self) -> str:
        """The node that the pod is bound to."""
        return observe.node_name(self.current or {})

    @property
    def cards(self) -> tuple[str, ...]:
        """The UUIDs that the pod got, in allocation order, over all containers."""
        return tuple(share.uuid for group in self.groups for share in group)

    def timeline(self) -> tuple[str, ...]:
        """The history of this pod as lines."""
        seen = [(o.time, o.type, o.object) for o in self._hami.journal.history(self.uid)]
        return observe.changes(seen, self._started, self._nudges)

    def disturbances(self) -> list[Disturbance]:
        """Return what disturbed this pod on its way, one entry for each time."""
        name = f"{self.namespace}/{self.name}"
        found = [Disturbance(Kind.LOST_WAKE_UP, name, text) for _, text in self._nudges]
        for kind, text, often in self._disturbed_binds():
            found += [Disturbance(kind, name, text)] * often
        absent = [reason for reason in PLACED if not observe.with_reason(self.events, reason)]
        if self.use and absent and disturbances.may_miss_events(self.events, "Normal", self._hami.traits):
            told = f"no event {' and '.join(absent)} after {disturbances.EVENT_LIMIT} events of this pod"
            found.append(Disturbance(Kind.EVENTS_DROPPED, name, told))
        return found

    def running(
        self, *, memory: int | None = None, cores: int | None = None, cards: Sequence[str] | None = None
    ) -> Pod:
        """Wait until the pod runs, then assert baseline B; ``memory`` and ``cores`` of each share, ``cards`` the UUIDs.

        Baseline: node, annotations, phase, lock, container positions, requested sizes, events of this UID, environment
        of each container, and HAMi's metrics on every leased card. Raises ClaimFailed.
        """
        self._await_running()
        pod = self.current
        require(pod is not None, "a running pod", "it was deleted", where=repr(self))
        assert pod is not None
        registered, traits = self._hami.registered(observe.node_name(pod)), self._hami.traits
        placed = baseline.placement(pod, registered, traits)
        baseline.require_sizes(pod, placed, self._hami.device_config, registered, traits)
        disturbed = bool(self._disturbed_binds())
        baseline.require_events(pod, self.events, self._hami.scores(self), disturbed=disturbed, traits=traits)
        history = self._hami.journal.history(self.uid)
        gap = any(o.synthetic for o in history)
        locks = self._locks(observe.node_name(pod))
        baseline.require_bind_protocol(pod, None if gap else [o.object for o in history], locks)
        self._require_leased(pod)
        self.groups, self.shares = placed.groups, dict(placed.by_container)
        self.use = pod_use(placed.shares)
        for share in (share for group in self.groups for share in group):
            wanted = {"memory": memory, "cores": cores}
            seen = {"memory": share.memory, "cores": share.cores}
            expected = {key: value for key, value in wanted.items() if value is not None}
            require_equal(expected, {key: seen[key] for key in expected}, f"{self!r} allocation on {share.uuid}")
        if cards is not None:
            require(
                sorted(self.cards) == sorted(cards), f"cards {sorted(cards)}", sorted(self.cards),
                where=f"{self!r} annotation {observe.ALLOCATED}", timeline=self.timeline(),
                events=event_rows(self.events),
            )  # fmt: skip
        self._hami.require_env(self)
        self._hami.ledger.require_accounting(f"while {self.name} runs")
        return self

    def running_without_cards(self, *, handed_to_hami: bool = False) -> Pod:
        """Wait until the pod runs, and assert that HAMi gave it nothing: no trace, no allocation, metrics unchanged.

        ``handed_to_hami`` for a pod with ``gpu: 0``: HAMi binds it, which leaves phase and time (HAMi 2.10.0, Bind).
        """
        self._wait(
            lambda: (
                observe.is_ready(self.current or {}) or observe.phase(self.current or {}) in {"Failed", "Succeeded"}
            ),
            "condition Ready",
            self._hami.timing.place + self._hami.timing.start,
        )
        pod = self.current or {}
        if observe.phase(pod) != "Running":
            raise self._failure("phase Running", observe.state_line(pod))
        traces = observe.traces(pod, self.submitted)
        if handed_to_hami:
            traces = [trace for trace in traces if not trace.startswith("hami.io/bind-")]
        require(not traces, "no annotation and no label hami.io/*", traces, where=repr(self))
        self._require_leased(pod)
        self._hami.ledger.require_accounting(f"while {self.name} runs without cards")
        return self

    def told(self, reason: str, texts: Sequence[str]) -> None:
        """Assert that the events of this pod with a reason say exactly ``texts``. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        def seen() -> list[str]:
            return sorted(observe.with_reason(self.events, reason))

        # An event is written behind what it tells of.
        with suppress(WaitTimeout):
            wait_until(
                self._hami.journal,
                lambda: seen() == sorted(texts),
                timeout=self._hami.timing.settle,
                missing=lambda: f"events {reason}",
            )
        require(
            seen() == sorted(texts), f"events {reason} {sorted(texts)}", seen(), where=repr(self),
            events=event_rows(self.events),
        )  # fmt: skip

    def decided(self) -> Decision:
        """Wait for the first decision about this pod, and until its node has dealt with it. Raises ClaimFailed.

        Nothing of a baseline is asserted: what the pod holds must be told to the ledger by ``use``.
        """
        self._wait(lambda: decision.of_pod(self.current or {}, self.events), "a decision", self._hami.timing.place)
        found = decision.of_pod(self.current or {}, self.events)
        assert found is not None
        if self._bound():
            self._wait(
                lambda: observe.phase(self.current or {}) != "Pending", "a phase after Pending", self._hami.timing.start
            )
        return found

    def pending(self, reason: str, *, nodes: int = 1) -> Pod:
        """Wait until the pod is refused for ``reason`` on ``nodes`` nodes, force one more try, assert baseline BP.

        ``reason`` is the whole node reason, such as ``1/2 CardInsufficientMemory, 1/2 CardUuidMismatch``. Baseline: phase,
        condition, no node, no annotation of HAMi, the events of this UID, and unchanged metrics. Raises ClaimFailed.
        """
        self._await_refused(reason)
        self.use = {}
        attempts = observe.filter_attempts(self.events)
        poked = self._hami.cluster.poke()
        self._wait(
            lambda: self._bound() or observe.filter_attempts(self.events) > attempts,
            f"another filter attempt (event FilteringFailed) after {attempts}",
            self._hami.timing.place,
        )
        pod = self.current or {}
        refused = observe.unschedulable(pod)
        if self._bound() or refused is None:
            raise self._failure(f"still refused: {reason}", observe.state_line(pod))
        try:
            seen = parse_failed_scheduling(refused[1])
        except ReasonError as error:
            raise self._failure(f"a condition that names {reason}", str(error)) from None
        # What kube-scheduler says of nodes that it did not even offer to HAMi.
        told = [entry for entry in seen.reasons if not entry[1].startswith("node(s) ")]
        # Before 2.10 a node's own reason reaches the events of HAMi only.
        text = reason if self._hami.traits.detailed_reasons else Reason.NODE_UNFIT
        require(
            told == [(nodes, text)], f"{nodes} node(s) with {text}", refused[1], where=f"{self!r} condition PodScheduled",
            timeline=self.timeline(), events=event_rows(self.events),
        )  # fmt: skip
        candidates = self._hami.candidates(self)
        require(len(candidates) == nodes, f"{nodes} candidates", candidates, where=repr(self))
        baseline.require_refusal(pod, self.submitted, self.events, reason, text, candidates)
        self._hami.ledger.require_accounting(f"while {self.name} is refused", given=poked)
        return self

    def delete(self) -> None:
        """Delete the pod, wait until it is gone, and assert that HAMi took back what it held. Raises ClaimFailed."""
        self._hami.client.delete("Pod", self.name, self.namespace, grace_seconds=0)
        self.await_deleted()
        self._hami.require_release(self, "was deleted")

    def await_deleted(self) -> None:
        """Wait until the pod is gone. Raises ClaimFailed."""
        self._wait(lambda: self.current is None, "the DELETED event", self._hami.timing.delete)
        self.use = {}

    def end(self, how: str) -> None:
        """End the pod: ``delete`` it, or let it ``succeed`` or ``fail`` by itself. Raises ValueError for another word."""
        if how == "delete":
            self.delete()
            return
        codes = {"succeed": ("0", "Succeeded"), "fail": ("1", "Failed")}
        if how not in codes:
            raise ValueError(f"end: expected delete, succeed or fail, got {how!r}")
        code, phase = codes[how]
        self.exec(["sh", "-c", f"echo {code} > {END_FILE}"])
        self._wait(lambda: observe.phase(self.current or {}) == phase, f"phase {phase}", self._hami.timing.start)
        self.use = {}
        self._hami.require_release(self, f"ended as {phase}")

    def exec(self, argv: Sequence[str], container: str | None = None) -> ExecResult:
        """Run a command in a container (default: the first) and return its result."""
        from pytest_hami.kube.exec import exec_in

        name = container or self.stored["spec"]["containers"][0]["name"]
        return exec_in(self._hami.client, self.namespace, self.name, name, list(argv))

    def env(self, container: str | None = None) -> dict[str, str]:
        """Return the environment that a command in the container sees."""
        key = container or ""
        if key not in self._env:
            result = self.exec(["env"], container)
            require(result.code == 0, "exit code 0 of env", f"{result.code}: {result.stderr}", where=repr(self))
            self._env[key] = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        return self._env[key]

    def forget_env(self) -> None:
        """Read the environment of every container anew the next time."""
        self._env.clear()

    @property
    def waits(self) -> bool:
        """Whether this pod is there and has no node."""
        pod = self.current
        return pod is not None and observe.phase(pod) == "Pending" and not observe.node_name(pod)

    def nudged(self, when: float, text: str) -> None:
        """Remember that this pod was placed only because something was done; ``when`` by the monotonic clock."""
        self._nudges.append((when, text))

    @property
    def may_be_placed(self) -> bool:
        """Whether this pod is there, has not ended, and holds nothing yet."""
        pod = self.current
        return pod is not None and not self.use and observe.phase(pod) not in {"Succeeded", "Failed"}

    def evidence(self) -> dict[str, Any]:
        """Return what was observed of this pod, an allow-list of fields."""
        last = self.current or next((o.object for o in reversed(self._hami.journal.history(self.uid))), self.stored)
        seen = (observe.unschedulable(o.object) for o in reversed(self._hami.journal.history(self.uid)))
        refused = next(filter(None, seen), None)
        spec = self.stored["spec"]
        return {
            "name": self.name,
            "uid": self.uid,
            "node": observe.node_name(last),
            "phase": observe.phase(last),
            "scheduler": spec.get("schedulerName", ""),
            "limits": {c["name"]: c.get("resources", {}).get("limits", {}) for _, c in observe.containers(self.stored)},
            "selection": {
                k: v for k, v in observe.annotations(self.stored).items() if "nvidia.com/" in k or "policy" in k
            },
            "annotations": observe.hami_annotations(last),
            "refused": refused[1][: observe.HOSTILE_LIMIT] if refused else "",
            "events": [f"{row['reason']}: {row['message'][:1000]}" for row in event_rows(self.events)],
            "env": {
                name or "main": {k: v for k, v in env.items() if k.startswith(("CUDA_", "NVIDIA_", "GPU_CORE"))}
                for name, env in self._env.items()
            },
        }

    def _disturbed_binds(self) -> tuple[tuple[Kind, str, int], ...]:
        return disturbances.of_binds((o.object for o in self._hami.journal.history(self.uid)), self.events)

    def _bound(self) -> bool:
        return bool(observe.node_name(self.current or {}))

    def _await_running(self) -> None:
        self._run_or_be_stuck(after=-1)
        if not self._has_run() and self.waits:
            # The refusal may be older than the room that it lacked.
            await_wake_up(self._hami, [self])
        self._run_or_be_stuck(after=0)
        if not self._has_run():
            seen = observe.state_line(self.current)
            raise self._failure("the pod runs, with bind-phase=success", seen, reason=self._reason())

    def _run_or_be_stuck(self, *, after: int) -> None:
        limit = self._hami.timing.place + self._hami.timing.start
        self._wait(lambda: self._has_run() or self._stuck(after), self._missing_to_run, limit)

    def _await_refused(self, reason: str) -> None:
        def refused() -> bool:
            pod = self.current or {}
            found = observe.unschedulable(pod)
            return bool(found and observe.filter_attempts(self.events)) or self._bound()

        self._wait(refused, "condition PodScheduled=False and event FilteringFailed", self._hami.timing.place)
        if self._bound():
            raise self._failure(f"refused: {reason}", observe.state_line(self.current))

    def _has_run(self) -> bool:
        return not self._missing()

    def _stuck(self, attempts: int) -> bool:
        pod = self.current
        if pod is None or observe.phase(pod) in {"Failed", "Succeeded"}:
            return True
        refused = not observe.node_name(pod) and observe.unschedulable(pod) is not None
        return refused and (attempts < 0 or observe.filter_attempts(self.events) > attempts)

    def _missing(self) -> list[str]:
        pod = self.current
        if pod is None:
            return ["the pod"]
        return baseline.missing_to_run(pod, self.events, self._locks(observe.node_name(pod)), self._hami.traits)

    def _locks(self, node: str) -> list[str] | None:
        found = self._hami.journal.find("Node", None, node)
        if found is None:
            return []
        history = [o for o in self._hami.journal.history(found["metadata"]["uid"]) if o.time >= self._started]
        if any(o.synthetic for o in history):
            return None
        return [observe.annotations(o.object).get(observe.LOCK, "") for o in reversed(history)]

    def _missing_to_run(self) -> str:
        return "; ".join(self._missing())

    def _reason(self) -> str:
        pod = self.current or {}
        refused = observe.unschedulable(pod)
        return refused[1] if refused else str(pod.get("status", {}).get("message", ""))

    def _require_leased(self, pod: Mapping[str, Any]) -> None:
        node = observe.node_name(pod)
        require(
            node in self._hami.node_names, f"one of {sorted(self._hami.node_names)}", node, where=f"{self!r} nodeName"
        )

    def _wait(self, ready: Callable[[], object], missing: str | Callable[[], str], timeout: float) -> object:
        from pytest_hami.kube.wait import WaitTimeout, wait_until

        what, patience, waited = missing if callable(missing) else lambda: missing, self._hami.patience, 0.0
        for step in patience.steps(timeout):
            waited += step
            with suppress(WaitTimeout):
                return wait_until(
                    self._hami.journal, ready, timeout=step, missing=what, history=lambda: list(self.timeline())
                )  # fmt: skip
            if patience.has_ended(what()):
                break
        else:
            patience.waited_in_vain(what())
        self._hami.journal.require_live()
        raise self._failure(f"{what()} (within {waited:g} s)", observe.state_line(self.current))

    def _failure(self, expected: str, seen: str, *, reason: str = "") -> ClaimFailed:
        return ClaimFailed(
            Failure(
                expected=expected, seen=seen, where=repr(self), reason=reason or self._reason(),
                timeline=self.timeline(), events=event_rows(self.events),
            )
        )  # fmt: skip
