"""Defects around the findings: of each a HAMi that mended it, which a check must report as changed, and one that is worse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pytest_hami.contract.allocation import Groups
from pytest_hami.contract.quantities import INT32_MAX
from pytest_hami.simulator.hami import accounting, lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.state import Card, CardShare
from pytest_hami.simulator.mutants.record import Mutant, mutant

FIT = "HAMi 2.10.0, pkg/device/nvidia/device.go (Fit)"
REQUEST = "HAMi 2.10.0, pkg/device/nvidia/device.go (GenerateResourceRequests)"
ENCODE = "HAMi 2.10.0, pkg/device/devices.go (EncodePodSingleDevice)"
INIT = "HAMi 2.10.0, pkg/device/initContainer.go"
PODS = "HAMi 2.10.0, pkg/scheduler/scheduler.go (onAddPod)"
FILTER = "HAMi 2.10.0, pkg/scheduler/scheduler.go (Filter)"
METRICS = "HAMi 2.10.0, cmd/scheduler/metrics.go"
LOCK = "HAMi 2.10.0, pkg/util/nodelock/nodelock.go"


def _mended(name: str, now: str, source: str, caught_by: str, shows: str) -> Callable[[type[Any]], Mutant]:
    return mutant(name, "hami-scheduler", now, source=source, caught_by=caught_by, shows=shows, outcome="changed")


def _worse(
    name: str, defect: str, source: str, caught_by: str, shows: str, outcome: str = "failed"
) -> Callable[[type[Any]], Mutant]:
    return mutant(name, "hami-scheduler", defect, source=source, caught_by=caught_by, shows=shows, outcome=outcome)


@_mended(
    "positions-kept", "Containers without cards keep their entries on every node.", ENCODE, "finding-s01", "[0, 1]"
)
class KeepsPositions(Rules):
    def pads(self, types: frozenset[str]) -> bool:
        return True


@_worse("entries-reversed", "The entries of the allocation are written in reverse order.", ENCODE, "finding-s01",
        "memory: expected 1024, seen 2048")  # fmt: skip
class ReversesEntries(Rules):
    def text_of(self, groups: Groups) -> str:
        return super().text_of(groups[::-1])


@_mended("init-shares-told-apart", "After its init containers a pod is counted with what the others hold.", INIT,
         "finding-s02", "4000 MiB, 50 %")  # fmt: skip
class KeepsAfterInit(Rules):
    def after_init(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        return super().after_init(groups, 0)


@_worse("usage-lost-at-start", "A pod without init containers loses its usage as well once it runs.", INIT, "finding-s02",
        "hami_gpu_memory_allocated_bytes")  # fmt: skip
class LosesAtStart(Rules):
    def init_done(self, pod: Mapping[str, Any]) -> bool:
        return (pod.get("status") or {}).get("phase") == "Running"

    def after_init(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        return ()


@_mended(
    "wrapping-numbers-denied", "The webhook denies cards and cores beyond 32 bits.", REQUEST, "finding-s05", "denied"
)
class DeniesWrapping(Rules):
    def amount_valid(self, name: str, amount: int) -> bool:
        return name == "nvidia.com/gpumem" or amount <= INT32_MAX


@_worse("wrapped-cores-are-credit", "Cores that wrapped below zero are taken off what a card has promised.", INIT,
        "finding-s05", "-2147483648", "changed")  # fmt: skip
class CreditsCores(Rules):
    def collapse(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        cores = {share.uuid: share.cores for group in groups for share in group}
        return tuple(
            dataclasses.replace(one, cores=min(one.cores, cores[one.uuid])) for one in super().collapse(groups, inits)
        )


@_mended("unreadable-memory-denied", "The webhook denies memory beyond 32 bits.", REQUEST, "finding-s06", "denied")
class DeniesUnreadable(Rules):
    def amount_valid(self, name: str, amount: int) -> bool:
        return name != "nvidia.com/gpumem" or amount <= INT32_MAX


@_worse("readable-memory-denied", "The webhook denies memory that every card has.", REQUEST, "finding-s06",
        "invalid nvidia.com/gpumem value 4096")  # fmt: skip
class DeniesReadable(Rules):
    def amount_valid(self, name: str, amount: int) -> bool:
        return name != "nvidia.com/gpumem" or not 1024 < amount <= INT32_MAX


@_mended("cordon-is-live", "A node's cordon is read anew for every pod.", FIT, "finding-s07", "CardCordoned")
class LiveCordon(Rules):
    def node_notes(self, cached: Mapping[str, str], live: Mapping[str, str]) -> Mapping[str, str]:
        return live


@_worse("cordon-ignored", "A card takes pods whatever the cordon says.", FIT, "finding-s07", "CardCordoned")
class IgnoresCordon(Rules):
    def cordoned(self, card: Card, cordon: str) -> bool:
        return False


@_mended("repeated-card-shown-once", "Of a card that is registered twice the metrics show the first.", METRICS,
         "finding-s08", "status: expected 500, seen 200")  # fmt: skip
class ShowsFirst(Rules):
    def repeated_series(self) -> str:
        return "first"


@_worse("repeated-card-hides-all", "A card that is registered twice takes the series of all cards away, without an error.",
        METRICS, "finding-s08", "metrics with the later node")  # fmt: skip
class HidesAll(Rules):
    def repeated_series(self) -> str:
        return "drop"


@_mended("topology-keeps-a-full-group", "topology-aware takes the cards of the first NUMA group that has enough.", FIT,
         "finding-s09", "placed: 1024 MiB")  # fmt: skip
class StaysInGroup(Rules):
    def stays_in_group(self, taken: int, asked: int) -> bool:
        return taken >= asked


@_worse(
    "every-card-a-group", "numa-bind takes every card for a NUMA group of its own.", FIT, "finding-s09", "NumaNotFit"
)
class EveryCardAGroup(Rules):
    def numa_group_changes(self, group: int, numa: int) -> bool:
        return True


@_mended("quota-counts-beside-init", "A quota sums up the containers of a pod that has init containers.",
         "https://github.com/Project-HAMi/HAMi/issues/3052", "finding-s10", "ResourceQuotaNotFit")  # fmt: skip
class CountsBesideInit(Rules):
    def quota_use(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        return accounting.collapse(groups, 0)


@_worse("quota-counts-one-container", "A quota is asked about each container of a pod alone.", FIT, "finding-s10",
        "refused: 1/2 CardUuidMismatch, 1/2 ResourceQuotaNotFit")  # fmt: skip
class CountsOneContainer(Rules):
    def quota_use(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        return super().quota_use(groups[-1:], 0)


@_mended("ghosts-ignored", "Annotations count on pods that were handed to HAMi, and on no other.", PODS, "finding-s11",
         "0 MiB, 0 % cores, 0 shares")  # fmt: skip
class IgnoresGhosts(Rules):
    def counts_new(self, pod: Mapping[str, Any]) -> bool:
        return super().counts_new(pod) and _is_hamis(pod)


@_worse("ghosts-outlive-their-pods", "What a pod with copied annotations holds is never given back.", PODS, "finding-s11",
        "hami_gpu_memory_allocated_bytes")  # fmt: skip
class ImmortalGhosts(Rules):
    def releases_on_delete(self, pod: Mapping[str, Any]) -> bool:
        return _is_hamis(pod)


@_mended("unreadable-lock-taken", "A lock that cannot be read is taken over.", LOCK, "finding-s12", "placed: 1024 MiB")
class TakesUnreadable(Rules):
    def lock_decision(
        self, text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str
    ) -> lock.Decision:
        found = super().lock_decision(text, owner, now, timeout, node)
        return lock.Take(text) if isinstance(found, lock.Refused) and "," not in str(text) else found


@_worse("old-lock-kept", "A lock is never too old.", LOCK, "finding-s12", "node lock contention")
class KeepsOldLock(Rules):
    def lock_decision(
        self, text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str
    ) -> lock.Decision:
        found = super().lock_decision(text, owner, now, timeout, node)
        old = text is not None and isinstance(found, lock.Take)
        return lock.Refused(lock.contention(node, timeout, self.traits)) if old else found


@_mended("call-without-nodes-refused", "A filter call without nodes is answered with an error and changes nothing.", FILTER,
         "finding-s13", "4000 MiB, 25 % cores, 1 shares")  # fmt: skip
class RefusesWithoutNodes(Rules):
    def filter_without_nodes(self) -> str:
        return "extender args name no nodes"

    def filter_without_nodes_releases(self) -> bool:
        return False


@_worse("call-without-nodes-robs", "A filter call without nodes is answered with an error, and its pod loses its share.",
        FILTER, "finding-s13", "answer: expected no answer, seen an error", "changed")  # fmt: skip
class RobsWithoutNodes(Rules):
    def filter_without_nodes(self) -> str:
        return "extender args name no nodes"


def _is_hamis(pod: Mapping[str, Any]) -> bool:
    return (pod.get("spec") or {}).get("schedulerName") == "hami-scheduler"


ALL = tuple(value for value in list(vars().values()) if isinstance(value, Mutant))
