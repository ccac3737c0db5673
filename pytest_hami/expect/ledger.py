"""What this test holds on each card, and whether HAMi's metrics say the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_hami.contract import metrics
from pytest_hami.expect.accounting import NOTHING, Use, total
from pytest_hami.expect.failures import ClaimFailed, Failure, require_equal
from pytest_hami.text import one_line

if TYPE_CHECKING:
    from pytest_hami.cluster.base import Cluster
    from pytest_hami.contract.releases import Traits
    from pytest_hami.expect.hami import LeasedCard
    from pytest_hami.expect.pods import Pod

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
# The scheduler looks at its nodes every 15 s, whatever happens.
POKED_READINGS, TICK = 4, 16.0
METRICS = "metrics hami_gpu_memory_allocated_bytes, _core_allocated_ratio, _shared_count, hami_vgpu_*"


class Ledger:
    """The leased cards, what they carried before, and the pods of this test; ``pods`` and ``namespaces`` may grow."""

    def __init__(
        self,
        cluster: Cluster,
        traits: Traits,
        cards: Sequence[LeasedCard],
        pods: Sequence[Pod],
        namespaces: Sequence[str],
    ) -> None:
        self.readings: list[dict[str, Any]] = []
        self._cluster = cluster
        self._traits = traits
        self._cards = tuple(cards)
        self._pods = pods
        self._namespaces = namespaces
        owner = {(card.node, card.uuid) for card in cards}
        found = metrics.card_usage(self._live(metrics.USAGE_SERIES))
        self._before = {key[1]: Use(c.memory, c.cores, c.shares) for key, c in found.items() if key in owner}

    def require_accounting(self, when: str, unless: Callable[[], bool] = lambda: False, given: str = "") -> None:
        """Assert that every leased card and every pod of this test carries exactly what the ledger says.

        Cards and pods that are not of this test stay untouched. The question is dropped as soon as ``unless`` holds.
        ``given`` are metrics of a register run that may have seen it already, read before any others. Raises ClaimFailed.
        """
        held = total(pod.use for pod in self._pods)
        expected = {c.uuid: self._before.get(c.uuid, NOTHING) + held.get(c.uuid, NOTHING) for c in self._cards}
        self.require_use(expected, when, unless, given)

    def require_untouched(self, when: str) -> None:
        """Assert that every leased card carries what it carried before this test. Raises ClaimFailed."""
        self.require_use({card.uuid: self._before.get(card.uuid, NOTHING) for card in self._cards}, when)

    def require_use(
        self,
        expected: Mapping[str, Use],
        when: str,
        unless: Callable[[], bool] = lambda: False,
        given: str = "",
    ) -> None:
        """Assert the metrics of the named cards and of the pods that hold any, giving HAMi the time of its snapshot.

        Raises ClaimFailed.
        """
        names = {c.uuid: f"{c.node}#{c.index} {c.uuid}" for c in self._cards}
        wanted = {names.get(uuid, uuid): str(use) for uuid, use in expected.items()}
        for pod in self._pods:
            for uuid, use in pod.use.items():
                wanted[f"{pod.namespace}/{pod.name} {uuid}"] = f"{use.memory} MiB, {use.cores} %"
        deadline = time.monotonic() + self._cluster.timing.settle
        readings = 0
        read = self._cluster.fresh_metrics
        while True:
            seen = self._usage_rows(given or read(), set(expected), names)
            readings += 1
            if unless():
                return
            if seen == wanted or time.monotonic() > deadline:
                break
            # Each reading wakes every waiting pod, and HAMi tells of 25 events of a pod only.
            time.sleep(0 if given else min(FIRST_PAUSE * 2**readings, LONGEST_PAUSE))
            given = ""
            if readings == POKED_READINGS and self._shows_attempts():
                read, deadline = self._cluster.scheduler_metrics, time.monotonic() + TICK
        self.readings.append({"when": when, "cards": seen, "readings": readings})
        require_equal(wanted, seen, f"{METRICS} {when}")

    def _shows_attempts(self) -> bool:
        """Return whether the filter's attempts for waiting pods are in the metrics of cards until the next register run.

        A poke causes that run and the next attempt at once, so that only the scheduler's own tick shows the cards alone.
        """
        return not self._traits.overview_at_register and any(pod.waits for pod in self._pods)

    def _live(self, names: frozenset[str]) -> tuple[metrics.Sample, ...]:
        return metrics.read(self._cluster.scheduler_metrics(), names, self._traits.release)

    def _usage_rows(self, text: str, uuids: set[str], names: Mapping[str, str]) -> dict[str, str]:
        try:
            samples = metrics.read(text, metrics.ACCOUNTING_SERIES, self._traits.release)
            cards, pods = metrics.card_usage(samples), metrics.pod_usage(samples)
        except metrics.MetricsError as error:
            raise ClaimFailed(Failure("sound metrics", str(error), where=METRICS)) from None
        rows = dict.fromkeys((names.get(uuid, uuid) for uuid in uuids), "no series")
        owner = {c.uuid: c.node for c in self._cards}
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

    def require_quota_used(self, namespace: str, expected: Mapping[str, int]) -> None:
        """Assert what HAMi counts against a namespace: ``gpumem`` in MiB, ``gpucores`` in percent. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, poll

        def seen() -> dict[str, int]:
            found = metrics.quota_usage(self._live(metrics.QUOTA_SERIES))
            return {key: int(found.get((namespace, f"nvidia.com/{key}"), (-1, None))[0]) for key in expected}

        with suppress(WaitTimeout):
            poll(
                lambda: seen() == dict(expected), timeout=self._cluster.timing.settle, missing=lambda: "the quota's use"
            )
        require_equal(expected, seen(), f"metric hami_resource_quota_used of namespace {namespace}")

    def await_quota(self, namespace: str, limits: Mapping[str, int | None]) -> None:
        """Wait until HAMi's live metrics show these limits of a namespace, None for no limit. Raises ClaimFailed."""
        from pytest_hami.kube.wait import WaitTimeout, poll

        def seen() -> bool:
            found = metrics.quota_limits(self._live(metrics.QUOTA_SERIES), self._traits)
            return all(fits(found.get((namespace, key)), limit) for key, limit in limits.items())

        def fits(shown: int | None, limit: int | None) -> bool:
            # Without a series of its own a limit that is gone is told as 0.
            return shown == limit or (limit is None and shown == 0 and not self._traits.quota_limit_metric)

        missing = f"limits of namespace {namespace} equal to {dict(limits)}"
        try:
            poll(seen, timeout=self._cluster.timing.settle, missing=lambda: missing)
        except WaitTimeout:
            text = one_line(
                [line for line in self._cluster.scheduler_metrics().splitlines() if namespace in line], 2000
            )
            raise ClaimFailed(
                Failure(missing, text or "no series of this namespace", where="HAMi's /metrics")
            ) from None
