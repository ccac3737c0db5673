"""Defects of the HAMi scheduler: webhook, filter, choice, accounting, quota, events and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_hami.contract.quantities import ContainerRequest
from pytest_hami.contract.reasons import Reason
from pytest_hami.simulator.hami.rules import Rules, tokens
from pytest_hami.simulator.hami.state import Card, CardShare
from pytest_hami.simulator.mutants.record import Mutant, mutant

FIT = "HAMi 2.10.0, pkg/device/nvidia/device.go (Fit)"
WEBHOOK = "HAMi 2.10.0, pkg/device/nvidia/device.go (MutateAdmission)"
SCORE = "HAMi 2.10.0, pkg/scheduler/score.go"
POLICY = "HAMi 2.10.0, pkg/scheduler/policy"
METRICS = "HAMi 2.10.0, cmd/scheduler/metrics.go"
PODS = "HAMi 2.10.0, pkg/scheduler/scheduler.go (onAddPod, onUpdatePod, onDelPod)"


def _defect(
    name: str, defect: str, source: str, caught_by: str, shows: str, outcome: str = "failed"
) -> Callable[[type[Any]], Mutant]:
    return mutant(name, "hami-scheduler", defect, source=source, caught_by=caught_by, shows=shows, outcome=outcome)


# Admission


@_defect("pods-keep-default-scheduler", "A pod that asks for cards is not handed to HAMi's scheduler.",
         "HAMi 2.10.0, pkg/scheduler/webhook.go", "mock-02", "schedulerName")  # fmt: skip
class KeepsDefaultScheduler(Rules):
    def sets_scheduler(self, asks: bool) -> bool:
        return False


@_defect("cpu-pods-are-taken", "A pod that asks for no card is handed to HAMi's scheduler as well.",
         "HAMi 2.10.0, pkg/scheduler/webhook.go", "mock-24", "schedulerName")  # fmt: skip
class TakesCpuPods(Rules):
    def sets_scheduler(self, asks: bool) -> bool:
        return True


@_defect("percentage-unchecked", "A percentage above 100 is admitted.", WEBHOOK, "mock-05", "the pod was admitted")
class AnyPercentage(Rules):
    def percentage_valid(self, percent: int) -> bool:
        return True


@_defect(
    "card-implied-by-memory-only",
    "Cores alone do not ask for a card.",
    WEBHOOK,
    "mock-30",
    "nvidia.com/gpu of the stored container",
)
class CoresImplyNothing(Rules):
    def default_count(self, default: int, memory: bool, percentage: bool, cores: bool) -> int:
        return default if memory or percentage else 0


@_defect("card-implied-by-amount-only", "A percentage alone does not ask for a card.", WEBHOOK, "mock-30",
         "nvidia.com/gpu of the stored container")  # fmt: skip
class PercentageImpliesNothing(Rules):
    def default_count(self, default: int, memory: bool, percentage: bool, cores: bool) -> int:
        return default if memory or cores else 0


@_defect("whole-card-without-cores", "A card without sizes brings all memory but no cores.", WEBHOOK, "mock-31",
         "cores: expected 100, seen 0")  # fmt: skip
class NeverExclusive(Rules):
    def exclusive(self, memory: int | None, percent: int | None) -> bool:
        return False


@_defect("any-percentage-brings-cores", "Every percentage brings all cores of the card.", WEBHOOK, "mock-05",
         "cores: expected 0, seen 100")  # fmt: skip
class PercentageExclusive(Rules):
    def exclusive(self, memory: int | None, percent: int | None) -> bool:
        return percent is not None or memory is None


@_defect("quota-unchecked-at-admission", "The webhook admits what exceeds the namespace's quota.",
         "HAMi 2.10.0, pkg/scheduler/webhook.go (fitResourceQuota)", "mock-28", "the pod was admitted")  # fmt: skip
class WebhookIgnoresQuota(Rules):
    def webhook_checks_quota(self, memory: int, cores: int) -> bool:
        return False


@_defect("quota-counts-a-pod-as-one-card", "A pod with two cards is counted once against the quota.",
         "HAMi 2.10.0, pkg/scheduler/webhook.go (fitResourceQuota)", "mock-28", "the pod was admitted")  # fmt: skip
class QuotaPerPod(Rules):
    def quota_request(self, requests: Sequence[tuple[str, bool, ContainerRequest | None]]) -> tuple[int, int]:
        known = [request for _, _, request in requests if request is not None]
        return sum(request.memory for request in known), sum(request.cores for request in known)


@_defect("quota-off-by-one", "A quota admits one unit less than it promises.",
         "HAMi 2.10.0, pkg/device/quota.go (FitQuota)", "mock-28", "exceeding resource quota")  # fmt: skip
class QuotaOffByOne(Rules):
    def quota_fits(self, used: int, asked: int, limit: int) -> bool:
        return used + asked < limit


# Filter


@_defect("memory-off-by-one", "A card accepts one MiB more than it has left.", FIT, "mock-09", "CardInsufficientMemory")
class MemoryOffByOne(Rules):
    def memory_fits(self, total: int, used: int, asked: int) -> bool:
        return total - used + 1 >= asked


@_defect("memory-boundary-exclusive", "A card refuses the last MiB that it has.", FIT, "mock-06",
         "CardInsufficientMemory")  # fmt: skip
class MemoryBoundary(Rules):
    def memory_fits(self, total: int, used: int, asked: int) -> bool:
        return total - used > asked


@_defect("idle-card-takes-any-memory", "An idle card is not asked how much memory it has.", FIT, "mock-06",
         "CardInsufficientMemory")  # fmt: skip
class IdleTakesAll(Rules):
    def memory_fits(self, total: int, used: int, asked: int) -> bool:
        return used == 0 or super().memory_fits(total, used, asked)


@_defect(
    "percentage-rounds-up",
    "A percentage of a card's memory is rounded up.",
    FIT,
    "mock-05",
    "memory: expected 13516, seen 13517",
)
class RoundsUp(Rules):
    def memory_on(self, request: ContainerRequest, total: int) -> int:
        if request.memory:
            return super().memory_on(request, total)
        return -(-total * request.percent // 100)


@_defect(
    "cores-off-by-one", "A card accepts one percent more than it has left.", FIT, "mock-10", "CardInsufficientCore"
)
class CoresOffByOne(Rules):
    def cores_fit(self, total: int, used: int, asked: int) -> bool:
        return total - used + 1 >= asked


@_defect("cores-uncounted", "Cores of other tenants are not counted.", FIT, "mock-03", "CardInsufficientCore")
class CoresUncounted(Rules):
    def cores_fit(self, total: int, used: int, asked: int) -> bool:
        return total >= asked


@_defect("cores-not-clamped", "A request above 100 percent is not cut to one card.", FIT, "mock-07",
         "CardInsufficientCore", "changed")  # fmt: skip
class Unclamped(Rules):
    def clamp_cores(self, cores: int) -> int:
        return cores


@_defect("too-many-cards-unchecked", "A node is not asked whether it has as many cards as a container wants.", FIT,
         "mock-08", "NodeInsufficientDevice")  # fmt: skip
class AnyCount(Rules):
    def enough_cards(self, cards: int, asked: int) -> bool:
        return True


@_defect("two-cards-refused", "A container cannot get every card of a node.", FIT, "mock-04", "NodeInsufficientDevice")
class NeverAllCards(Rules):
    def enough_cards(self, cards: int, asked: int) -> bool:
        return asked == 1 or asked < cards


@_defect("shares-off-by-one", "A card takes one tenant more than it has shares.", FIT, "mock-22",
         "CardTimeSlicingExhausted")  # fmt: skip
class OneShareMore(Rules):
    def slots_left(self, count: int, used: int) -> bool:
        return count + 1 > used


@_defect("used-card-promised-whole", "A card in use is promised whole.", FIT, "mock-11",
         "ExclusiveDeviceAllocateConflict")  # fmt: skip
class NoExclusiveConflict(Rules):
    def exclusive_conflict(self, total: int, used_shares: int, asked: int) -> bool:
        return False


@_defect("exclusive-card-shared", "A card whose cores are all promised takes a pod without cores.", FIT, "mock-11",
         "CardComputeUnitsExhausted")  # fmt: skip
class NeverExhausted(Rules):
    def compute_exhausted(self, total: int, used: int, asked: int) -> bool:
        return False


@_defect("use-gputype-case-sensitive", "use-gputype compares upper and lower case.", FIT, "mock-12", "CardTypeMismatch")
class TypeCase(Rules):
    def type_match(self, kind: str, use: str | None, avoid: str | None) -> bool:
        if use is not None and use.strip() and not any(token in kind for token in tokens(use)):
            return False
        return super().type_match(kind, None, avoid)


@_defect("use-gputype-first-word-only", "use-gputype looks at the first word of its list.", FIT, "mock-12",
         "CardTypeMismatch")  # fmt: skip
class TypeFirstWord(Rules):
    def type_match(self, kind: str, use: str | None, avoid: str | None) -> bool:
        return super().type_match(kind, None if use is None else ",".join(tokens(use)[:1]), avoid)


@_defect("use-gputype-ignored", "use-gputype is not read.", FIT, "mock-13", "CardTypeMismatch")
class TypeIgnored(Rules):
    def type_match(self, kind: str, use: str | None, avoid: str | None) -> bool:
        return super().type_match(kind, None, avoid)


@_defect("nouse-gputype-ignored", "nouse-gputype is not read.", FIT, "mock-14", "cards")
class AvoidTypeIgnored(Rules):
    def type_match(self, kind: str, use: str | None, avoid: str | None) -> bool:
        return super().type_match(kind, use, None)


@_defect("use-gpuuuid-ignored", "use-gpuuuid is not read.", FIT, "mock-15", "cards")
class UuidIgnored(Rules):
    def uuid_match(self, uuid: str, use: str | None, avoid: str | None) -> bool:
        return super().uuid_match(uuid, None, avoid)


@_defect("use-gpuuuid-case-insensitive", "use-gpuuuid does not compare upper and lower case.", FIT, "mock-15",
         "CardUuidMismatch")  # fmt: skip
class UuidCase(Rules):
    def uuid_match(self, uuid: str, use: str | None, avoid: str | None) -> bool:
        return super().uuid_match(uuid.lower(), use and use.lower(), avoid and avoid.lower())


@_defect("nouse-gpuuuid-first-only", "nouse-gpuuuid looks at the first UUID of its list.", FIT, "mock-16",
         "CardUuidMismatch")  # fmt: skip
class AvoidFirstUuid(Rules):
    def uuid_match(self, uuid: str, use: str | None, avoid: str | None) -> bool:
        return super().uuid_match(uuid, use, None if avoid is None else ",".join(tokens(avoid)[:1]))


@_defect("nouse-gpuuuid-ignored", "nouse-gpuuuid is not read.", FIT, "mock-16", "cards")
class AvoidUuidIgnored(Rules):
    def uuid_match(self, uuid: str, use: str | None, avoid: str | None) -> bool:
        return super().uuid_match(uuid, use, None)


@_defect("offered-nodes-ignored", "The filter looks at every registered node, not at those that it was offered.",
         "HAMi 2.10.0, pkg/scheduler/scheduler.go (Filter)", "mock-25", "nodes: expected 1, seen 2")  # fmt: skip
class EveryNode(Rules):
    def candidates(self, offered: Sequence[str], registered: Iterable[str]) -> Sequence[str]:
        return sorted(registered)


# Choice


@_defect("card-packing-spreads", "Gpu policy binpack takes the emptier card.", POLICY, "mock-17", "cards")
class CardsSpread(Rules):
    def card_key(self, card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
        return super().card_key(card, "spread", numa_bind)


@_defect("card-spreading-packs", "Gpu policy spread, and any unknown word, takes the fuller card.", POLICY, "mock-18",
         "cards")  # fmt: skip
class CardsPacked(Rules):
    def card_key(self, card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
        return super().card_key(card, "binpack", numa_bind)


@_defect("unknown-card-policy-packs", "An unknown word as gpu policy packs.", POLICY, "mock-18", "cards")
class UnknownPacks(Rules):
    def card_key(self, card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
        return super().card_key(card, policy if policy == "spread" else "binpack", numa_bind)


@_defect("unknown-node-policy-spreads", "An unknown word as node policy spreads.", POLICY, "mock-19", "node")
class UnknownNodePolicy(Rules):
    def node_spreads(self, policy: str) -> bool:
        return policy != "binpack"


@_defect("node-spreading-packs", "Node policy spread takes the fuller node.", POLICY, "mock-20", "cards")
class NodesPacked(Rules):
    def node_spreads(self, policy: str) -> bool:
        return False


@_defect("node-score-of-first-card", "A node is scored by its first card alone.", SCORE, "mock-19", "score")
class ScoreOfFirst(Rules):
    def node_score(self, cards: Sequence[Card]) -> float:
        return super().node_score(cards[:1])


# Accounting


@_defect("memory-kept-after-delete", "A deleted pod keeps its memory, cores and share until a restart.", PODS,
         "mock-03", "hami_gpu_memory_allocated_bytes")  # fmt: skip
class KeepsDeleted(Rules):
    def releases_on_delete(self, pod: Mapping[str, Any]) -> bool:
        return False


@_defect("room-kept-after-success", "A pod that succeeded keeps its memory, cores and share.", PODS, "mock-10",
         "hami_gpu_memory_allocated_bytes")  # fmt: skip
class KeepsSucceeded(Rules):
    def releases_on_phase(self, phase: str) -> bool:
        return phase == "Failed"


@_defect("room-kept-after-failure", "A pod that failed keeps its memory, cores and share.", PODS, "mock-09",
         "hami_gpu_memory_allocated_bytes")  # fmt: skip
class KeepsFailed(Rules):
    def releases_on_phase(self, phase: str) -> bool:
        return phase == "Succeeded"


@_defect("restart-forgets-pods", "After a restart the pods that run are not counted.", PODS, "mock-23",
         "hami_gpu_memory_allocated_bytes")  # fmt: skip
class ForgetsPods(Rules):
    def counts_new(self, pod: Mapping[str, Any]) -> bool:
        return False


@_defect("positions-lost", "A share is written into the wrong container's position.",
         "HAMi 2.10.0, pkg/device/devices.go (EncodePodSingleDevice)", "mock-21", "groups", "changed")  # fmt: skip
class KeepsEveryPosition(Rules):
    def pads(self, types: frozenset[str]) -> bool:
        return True


# Reasons, events and metrics


@_defect("reason-names-cores-for-memory", "A node without enough memory is refused with the reason for missing cores.",
         "HAMi 2.10.0, pkg/device/common/common.go (GenReason)", "mock-09", "CardInsufficientCore")  # fmt: skip
class WrongReason(Rules):
    def node_reason(self, counts: Mapping[Reason, int], cards: int) -> str:
        renamed = dict(counts)
        if Reason.INSUFFICIENT_MEMORY in renamed:
            renamed[Reason.INSUFFICIENT_CORE] = renamed.pop(Reason.INSUFFICIENT_MEMORY)
        return super().node_reason(renamed, cards)


@_defect("reason-events-missing", "A refused pod gets no event for each reason.",
         "HAMi 2.10.0, pkg/scheduler/event.go", "mock-06", "FilteringFailed")  # fmt: skip
class NoReasonEvents(Rules):
    def reports_reason_events(self) -> bool:
        return False


@_defect("closing-event-missing", "A refused pod gets no closing event.", "HAMi 2.10.0, pkg/scheduler/event.go",
         "mock-08", "FilteringFailed")  # fmt: skip
class NoClosingEvent(Rules):
    def reports_closing_event(self) -> bool:
        return False


@_defect("success-event-missing", "A placed pod gets no event of the filter.", "HAMi 2.10.0, pkg/scheduler/event.go",
         "mock-02", "event FilteringSucceed")  # fmt: skip
class NoSuccessEvent(Rules):
    def reports_success_event(self) -> bool:
        return False


@_defect("shares-counted-once", "The metric of tenants on a card never exceeds one.", METRICS, "mock-22", "2 shares")
class SharesAtMostOne(Rules):
    def reported_shares(self, card: Card) -> float:
        return min(card.used, 1)


@_defect("memory-metric-in-megabytes", "The metric of promised memory counts a MiB as a million bytes.", METRICS,
         "mock-26", "hami_gpu_memory_allocated_bytes")  # fmt: skip
class MegabytesPromised(Rules):
    def reported_memory(self, card: Card) -> float:
        return card.memory * 1_000_000


@_defect("limit-metric-in-megabytes", "The metric of a card's memory counts a MiB as a million bytes.", METRICS,
         "mock-01", "memory_limit")  # fmt: skip
class MegabytesLimit(Rules):
    def reported_memory_limit(self, card: Card) -> float:
        return card.device.devmem * 1_000_000


@_defect("pod-metric-in-mebibytes", "The metric of a pod's memory is in MiB and not in bytes.", METRICS, "mock-26",
         "hami_vgpu_memory_allocated_bytes")  # fmt: skip
class PodMetricInMebibytes(Rules):
    def reported_pod_memory(self, share: CardShare) -> float:
        return share.memory


@_defect("core-metric-as-fraction", "The metric of promised cores is a fraction and not a percentage.", METRICS,
         "mock-07", "_core_allocated_ratio")  # fmt: skip
class CoreFraction(Rules):
    def reported_cores(self, card: Card) -> float:
        return card.cores / 100


@_defect("unhealthy-cards-used", "A card that its node calls unhealthy is used.", FIT,
         "contract-unhealthy-card", "CardNotHealth")  # fmt: skip
class UsesUnhealthyCards(Rules):
    def healthy(self, card: Card) -> bool:
        return True


ALL = tuple(value for value in list(vars().values()) if isinstance(value, Mutant))
