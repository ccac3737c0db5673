"""Whether a pod fits a node and on which cards (HAMi, pkg/scheduler/score.go, pkg/device/nvidia/device.go)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.quantities import ContainerRequest
from pytest_hami.contract.reasons import Reason
from pytest_hami.simulator.hami.gosort import go_sort
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.score import Weights
from pytest_hami.simulator.hami.state import CORDON, Card

GPU_POLICY = "hami.io/gpu-scheduler-policy"
NUMA_BIND = "nvidia.com/numa-bind"
USE_TYPE = "nvidia.com/use-gputype"
AVOID_TYPE = "nvidia.com/nouse-gputype"
USE_UUID = "nvidia.com/use-gpuuuid"
AVOID_UUID = "nvidia.com/nouse-gpuuuid"
MODE = "nvidia.com/vgpu-mode"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})

Group = tuple[DeviceShare, ...]


@dataclass(frozen=True)
class Ask:
    """A pod's request: containers in order, its annotations, and what they select."""

    requests: tuple[tuple[str, bool, ContainerRequest | None], ...]
    annotations: Mapping[str, str]
    policy: str
    weights: Weights

    @property
    def inits(self) -> int:
        """The number of init containers."""
        return sum(is_init for _, is_init, _ in self.requests)

    @property
    def numa_bind(self) -> bool:
        """Whether several cards must share a NUMA node."""
        return self.annotations.get(NUMA_BIND, "") in _TRUE


@dataclass(frozen=True)
class NodeState:
    """A node for one decision: its cards in annotation order, its annotations and topology scores."""

    cards: list[Card]
    annotations: Mapping[str, str]
    scores: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class NodeFit:
    """The groups of the device string, and the node's score before this pod."""

    groups: tuple[Group, ...]
    score: float


@dataclass(frozen=True)
class Refusal:
    """Why a node does not fit: reasons counted over cards, or one bare text."""

    text: str
    reasons: frozenset[Reason] = frozenset()


QuotaTest = Callable[[int, int], bool]


def fit_node(ask: Ask, node: NodeState, quota: QuotaTest, rules: Rules) -> NodeFit | Refusal:
    """Return where a pod lands on a node; ``node.cards`` carry what the attempt took, if it was a single pass.

    HAMi places each init container alone, then the others one after another; before 2.10.0 all in one pass.
    """
    score = rules.node_score(node.cards)
    if not rules.places_init_alone():
        groups = _fit_pass(ask, node, ask.requests, node.cards, quota, rules)
        return groups if isinstance(groups, Refusal) else NodeFit(groups, score)
    result: list[Group] = []
    for init_pass in (True, False):
        requests = [asked for asked in ask.requests if asked[1] is init_pass]
        groups = _fit_pass(ask, node, requests, [card.copy() for card in node.cards], quota, rules, alone=init_pass)
        if isinstance(groups, Refusal):
            return groups
        result.extend(groups)
    return NodeFit(tuple(result), score)


def _fit_pass(
    ask: Ask,
    node: NodeState,
    requests: Sequence[tuple[str, bool, ContainerRequest | None]],
    cards: list[Card],
    quota: QuotaTest,
    rules: Rules,
    alone: bool = False,
) -> tuple[Group, ...] | Refusal:
    pads = rules.pads(frozenset(card.device.type for card in node.cards))
    groups: list[Group] = []
    for position, (_, _, request) in enumerate(requests, 1):
        if request is not None and request.count > 0:
            mine = [card.copy() for card in node.cards] if alone else cards
            outcome = _Fit(ask, request, node, groups, quota=quota, rules=rules).run(mine)
            if isinstance(outcome, Refusal):
                return outcome
            groups.append(outcome)
        if pads and len(groups) < position:
            groups.append(())
    return tuple(groups)


class _Fit:
    """One container on one node."""

    def __init__(
        self,
        ask: Ask,
        request: ContainerRequest,
        node: NodeState,
        groups: Sequence[Group],
        *,
        quota: QuotaTest,
        rules: Rules,
    ) -> None:
        self._ask = ask
        self._request = request
        self._node = node
        self._groups = tuple(groups)
        self._quota = quota
        self._rules = rules
        self._topology = rules.demands(ask.policy, "topology-aware")
        self._mutex = rules.demands(ask.policy, "mutex")
        self._cores = request.cores
        self._taken: list[DeviceShare] = []
        self._reasons: dict[Reason, int] = {}
        self._numa: int | None = None

    def run(self, cards: list[Card]) -> Group | Refusal:
        """Sort ``cards`` in place, take what fits and add the use to them."""
        ask, rules = self._ask, self._rules
        for card in cards:
            card.score = rules.card_score(card, self._request, ask.weights)
        go_sort(cards, key=lambda card: rules.card_key(card, ask.policy, ask.numa_bind))
        matching = [card for card in cards if rules.matches_vendor(card)]
        enough = rules.enough_cards(rules.countable(cards, matching), self._request.count)
        if not enough and not rules.may_give_parts(matching, ask.annotations.get(MODE)):
            return Refusal(Reason.NODE_INSUFFICIENT)
        for card in reversed(matching):
            if self._has_its_group(card):
                break
            reason = self._check(card)
            if reason is not None:
                self._count(reason, 1)
                continue
            memory = rules.memory_on(self._request, card.device.devmem)
            self._taken.append(DeviceShare(card.device.id, memory, self._cores))
            if not self._topology and len(self._taken) == self._request.count:
                return self._use(cards)
        if self._topology and len(self._taken) >= self._request.count:
            uuids = [share.uuid for share in self._taken]
            chosen = rules.pick_topology(uuids, self._request.count, self._node.scores)
            self._taken = [self._taken[position] for position in chosen]
            return self._use(cards)
        if self._taken:
            self._reasons[Reason.ALLOCATED_INSUFFICIENT] = rules.counted_cards(len(self._taken))
        return Refusal(rules.node_reason(self._reasons, len(matching)), frozenset(self._reasons))

    def _count(self, reason: Reason, cards: int) -> None:
        self._reasons[reason] = self._reasons.get(reason, 0) + cards

    def _use(self, cards: Sequence[Card]) -> Group:
        for share in self._taken:
            for card in self._rules.charged(cards, share.uuid):
                card.take(1, share.memory, share.cores)
        return tuple(self._taken)

    def _check(self, card: Card) -> Reason | None:
        rules, device, wishes = self._rules, card.device, self._ask.annotations
        if not rules.healthy(card):
            return Reason.NOT_HEALTHY
        if rules.cordoned(card, self._node.annotations.get(CORDON, "")):
            return Reason.CORDONED
        if not rules.type_match(device.type, wishes.get(USE_TYPE), wishes.get(AVOID_TYPE)):
            return Reason.TYPE_MISMATCH
        if not rules.mode_match(device.mode, wishes.get(MODE)):
            return Reason.TYPE_MISMATCH
        self._enter_group(device.numa)
        if not rules.uuid_match(device.id, wishes.get(USE_UUID), wishes.get(AVOID_UUID)):
            return Reason.UUID_MISMATCH
        if not rules.slots_left(device.count, card.used):
            return Reason.TIME_SLICING_EXHAUSTED
        if self._mutex and not rules.mutex_free(card.used):
            return Reason.EXCLUSIVE_CONFLICT
        return self._check_room(card)

    def _has_its_group(self, card: Card) -> bool:
        leaves = self._ask.numa_bind and self._topology and self._numa not in (None, card.device.numa)
        return leaves and self._rules.stays_in_group(len(self._taken), self._request.count)

    def _enter_group(self, numa: int) -> None:
        if not self._ask.numa_bind:
            return
        if self._numa is None or self._rules.numa_group_changes(self._numa, numa):
            if self._taken and not self._topology:
                self._count(Reason.NUMA_NOT_FIT, self._rules.counted_cards(len(self._taken)))
            self._taken = []
        self._numa = numa

    def _check_room(self, card: Card) -> Reason | None:
        rules, device = self._rules, card.device
        self._cores = rules.clamp_cores(self._cores)
        memory, cores = rules.memory_on(self._request, device.devmem), self._cores
        if not self._quota_fits(DeviceShare(device.id, memory, cores)):
            return Reason.QUOTA_NOT_FIT
        if not rules.memory_fits(device.devmem, card.memory, memory):
            return Reason.INSUFFICIENT_MEMORY
        if not rules.cores_fit(device.devcore, card.cores, cores):
            return Reason.INSUFFICIENT_CORE
        if rules.exclusive_conflict(device.devcore, card.used, cores):
            return Reason.EXCLUSIVE_CONFLICT
        if rules.compute_exhausted(device.devcore, card.cores, cores):
            return Reason.COMPUTE_UNITS_EXHAUSTED
        return None if rules.placeable(device.mode) else rules.mode_reason()

    def _quota_fits(self, share: DeviceShare) -> bool:
        # HAMi tests the allocations of this pass only.
        pending = (*self._taken, share)
        usage = self._rules.quota_use((*self._groups, pending), self._ask.inits)
        return self._quota(sum(one.memory for one in usage), sum(one.cores for one in usage))
