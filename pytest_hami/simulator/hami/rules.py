"""Every decision of the model as one small method, so that overriding a single method plays a defect of HAMi.

The methods are HAMi 2.10.0's behaviour. Sources: pkg/device/nvidia/device.go (Fit, MutateAdmission),
pkg/device/common/common.go, pkg/scheduler/score.go, pkg/scheduler/policy/, pkg/device/pods.go, pkg/device/quota.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pytest_hami.contract.allocation import Groups, encode
from pytest_hami.contract.metrics import MIB
from pytest_hami.contract.quantities import ContainerRequest
from pytest_hami.contract.reasons import Reason, format_node_reason
from pytest_hami.simulator.hami import accounting, lock, score
from pytest_hami.simulator.hami.lock import Decision
from pytest_hami.simulator.hami.state import WORD, Card, CardShare


def tokens(text: str) -> list[str]:
    """Return the entries of a comma list, blanks and empty entries dropped."""
    return [token for piece in text.split(",") if (token := piece.strip())]


class AdmissionRules:
    """What the webhook decides."""

    def takes_pod(self, name: str, own: str, force: bool) -> bool:
        """Whether a pod with this schedulerName is HAMi's business."""
        return name in ("", own) or own == "" or (name == "default-scheduler" and force)

    def percentage_valid(self, percent: int) -> bool:
        """Whether a memory percentage is accepted."""
        return 0 <= percent <= 100

    def amount_valid(self, name: str, amount: int) -> bool:
        """Whether the webhook accepts a number of cards, MiB or percent; HAMi does not look at them."""
        return True

    def default_count(self, default: int, memory: bool, percentage: bool, cores: bool) -> int:
        """Return the cards of a container that names none; 0 adds nothing."""
        return default if memory or percentage or cores else 0

    def exclusive(self, memory: int | None, percent: int | None) -> bool:
        """Whether a container without a core limit gets all cores of its cards."""
        return percent == 100 if percent is not None else memory is None

    def refuses_privileged(self, asks: bool) -> bool:
        """Whether a pod with a privileged container is refused."""
        return asks

    def refuses_node_name(self, node_name: str) -> bool:
        """Whether a pod that asks for cards may name its node."""
        return node_name != ""

    def sets_scheduler(self, asks: bool) -> bool:
        """Whether the pod is handed to HAMi's scheduler."""
        return asks

    def quota_request(self, requests: Sequence[tuple[str, bool, ContainerRequest | None]]) -> tuple[int, int]:
        """Return the MiB and percent that the webhook tests: the larger of the init maximum and the sum of the rest."""
        init, app = (0, 0), (0, 0)
        for _, is_init, request in requests:
            if request is None:
                continue
            memory, cores = request.memory * request.count, request.cores * request.count
            if is_init:
                init = (max(init[0], memory), max(init[1], cores))
            else:
                app = (app[0] + memory, app[1] + cores)
        return max(init[0], app[0]), max(init[1], app[1])

    def webhook_checks_quota(self, memory: int, cores: int) -> bool:
        """Whether the webhook tests a request against the quota."""
        return memory != 0 or cores != 0


class CardRules:
    """What decides about one card of a node; a method that answers False gives the card's reason."""

    def candidates(self, offered: Sequence[str], registered: Iterable[str]) -> Sequence[str]:
        """Return the nodes that the filter looks at: those that kube-scheduler offers."""
        return offered

    def matches_vendor(self, card: Card) -> bool:
        """Whether the card can serve a request at all."""
        return WORD.lower() in card.device.type.lower()

    def enough_cards(self, cards: int, asked: int) -> bool:
        """Whether the node has as many cards as one container asks."""
        return asked <= cards

    def healthy(self, card: Card) -> bool:
        """Whether the card takes new pods."""
        return card.device.health

    def cordoned(self, card: Card, cordon: str) -> bool:
        """Whether the node's cordon annotation names the card."""
        return card.device.id in tokens(cordon)

    def type_match(self, kind: str, use: str, avoid: str) -> bool:
        """Whether a card type passes use-gputype and nouse-gputype: substrings, case ignored."""
        lower = kind.lower()
        if use.strip() and not any(token.lower() in lower for token in tokens(use)):
            return False
        return not any(token.lower() in lower for token in tokens(avoid))

    def mode_match(self, mode: str, wanted: str | None) -> bool:
        """Whether the text of vgpu-mode contains the card's mode."""
        return wanted is None or mode in wanted

    def uuid_match(self, uuid: str, use: str, avoid: str) -> bool:
        """Whether a UUID passes use-gpuuuid and nouse-gpuuuid: exact names."""
        if use.strip() and uuid not in tokens(use):
            return False
        return uuid not in tokens(avoid)

    def node_notes(self, cached: Mapping[str, str], live: Mapping[str, str]) -> Mapping[str, str]:
        """Return the annotations of a node that count: those of when it was last read for another reason."""
        return cached

    def stays_in_group(self, taken: int, asked: int) -> bool:
        """Whether topology-aware is content with a NUMA group that has enough cards; HAMi goes on to the last group."""
        return False

    def numa_group_changes(self, group: int, numa: int) -> bool:
        """Whether a card of NUMA node ``numa`` abandons what was collected in ``group``."""
        return group != numa

    def slots_left(self, count: int, used: int) -> bool:
        """Whether the card has a free share."""
        return count > used

    def mutex_free(self, used: int) -> bool:
        """Whether the policy mutex accepts the card."""
        return used == 0

    def clamp_cores(self, cores: int) -> int:
        """Return the cores asked, at most those of one card."""
        return min(cores, 100)

    def memory_on(self, request: ContainerRequest, total: int) -> int:
        """Return the MiB that a request takes of a card: a percentage is rounded down."""
        return request.memory_on(total)

    def memory_fits(self, total: int, used: int, asked: int) -> bool:
        """Whether the free MiB are enough."""
        return total - used >= asked

    def cores_fit(self, total: int, used: int, asked: int) -> bool:
        """Whether the free percent are enough."""
        return total - used >= asked

    def exclusive_conflict(self, total: int, used_shares: int, asked: int) -> bool:
        """Whether a request for a whole card meets a card in use; only cards of exactly 100 percent are protected."""
        return total == 100 and asked == 100 and used_shares > 0

    def compute_exhausted(self, total: int, used: int, asked: int) -> bool:
        """Whether a request without cores meets a card whose cores are all taken."""
        return total != 0 and used == total and asked == 0

    def placeable(self, mode: str) -> bool:
        """Whether the mode places a share: the model has no MIG profiles, so a mig card never does."""
        return mode != "mig"

    def quota_fits(self, used: int, asked: int, limit: int) -> bool:
        """Whether a quota with this use admits that much more."""
        return used + asked <= limit


class ChoiceRules:
    """What orders cards and nodes."""

    def node_score(self, cards: Sequence[Card]) -> float:
        """Return the score of a node: its use before this pod."""
        return score.node_score(cards)

    def card_score(self, card: Card, request: ContainerRequest, weights: score.Weights) -> float:
        """Return the score of a card; the request counts only on cards whose type is exactly NVIDIA (issue 2870)."""
        return score.card_score(card, request if card.device.type == WORD else None, weights)

    def card_key(self, card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
        """Return the sort key of a card; the card that sorts last is preferred."""
        return score.card_key(card, policy, numa_bind)

    def node_spreads(self, policy: str) -> bool:
        """Whether the node with the lowest score wins; any unknown policy packs."""
        return policy == "spread"

    def node_key(self, node_score: float, policy: str) -> float:
        """Return the sort key of a node; the node that sorts last is chosen."""
        return -node_score if self.node_spreads(policy) else node_score

    def break_tie(self, nodes: Sequence[str]) -> str:
        """Return one of the nodes with equal best keys; HAMi leaves it to chance."""
        return nodes[-1]

    def pick_topology(
        self, uuids: Sequence[str], wanted: int, scores: Mapping[str, Mapping[str, int]]
    ) -> tuple[int, ...]:
        """Return the positions of the cards that topology-aware takes of those that fit."""
        return score.pick_topology(uuids, wanted, scores)


class AccountingRules:
    """What counts, how long, and how it is written down."""

    def pads(self, types: frozenset[str]) -> bool:
        """Whether a container without cards keeps its place in the device string (issues 2899 and 3079)."""
        return WORD in types

    def collapse(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what a pod holds of each card."""
        return accounting.collapse(groups, inits)

    def quota_use(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what the containers of one pass would use, the one being fitted last.

        HAMi classifies them by their place in the pass: with init containers the first others are taken for init ones,
        of which only the largest counts (issue 3052).
        """
        return self.collapse(groups, inits)

    def text_of(self, groups: Groups) -> str:
        """Return the allocation as it is written on the pod."""
        return encode(groups)

    def after_init(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what a pod holds of each card once its init containers succeeded."""
        return accounting.collapse(groups[inits:], 0)

    def init_done(self, pod: Mapping[str, Any]) -> bool:
        """Whether all init containers ended with exit code 0."""
        return accounting.init_done(pod)

    def releases_on_phase(self, phase: str) -> bool:
        """Whether a pod in this phase gives its room back."""
        return phase in ("Succeeded", "Failed")

    def releases_on_delete(self, pod: Mapping[str, Any]) -> bool:
        """Whether a deleted pod gives its room back."""
        return True

    def keeps_terminating(self) -> bool:
        """Whether a terminating pod holds its room until it is gone."""
        return True

    def counts_new(self, pod: Mapping[str, Any]) -> bool:
        """Whether an annotated pod that was not known counts."""
        return not (pod.get("metadata") or {}).get("deletionTimestamp")


class BindRules:
    """What decides about the node lock."""

    def lock_decision(
        self, text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str
    ) -> Decision:
        """Return what Bind does with a lock annotation; ``timeout`` in seconds."""
        return lock.decide(text, owner, now, timeout, node)


class CallRules:
    """What decides about calls that kube-scheduler never makes."""

    def filter_without_nodes(self) -> str:
        """Return what a filter call without nodes is answered; HAMi panics, which answers nothing (empty)."""
        return ""

    def filter_without_nodes_releases(self) -> bool:
        """Whether such a call gives up what its pod had reserved."""
        return True


class ReportRules:
    """What HAMi says: reasons, events, metrics."""

    def node_reason(self, counts: Mapping[Reason, int], cards: int) -> str:
        """Return the text for a refused node."""
        return format_node_reason(counts, cards)

    def reports_reason_events(self) -> bool:
        """Whether a refused pod gets one event for each distinct reason."""
        return True

    def reports_closing_event(self) -> bool:
        """Whether a refused pod gets the closing event."""
        return True

    def reports_success_event(self) -> bool:
        """Whether a placed pod gets an event."""
        return True

    def repeated_series(self) -> str:
        """Return what two series with the same labels do to the page: ``fail`` all of it, keep the ``first``, or ``drop``."""
        return "fail"

    def reported_shares(self, card: Card) -> float:
        """Return hami_gpu_shared_count."""
        return card.used

    def reported_memory(self, card: Card) -> float:
        """Return hami_gpu_memory_allocated_bytes."""
        return card.memory * MIB

    def reported_cores(self, card: Card) -> float:
        """Return hami_gpu_core_allocated_ratio in percent."""
        return card.cores

    def reported_memory_limit(self, card: Card) -> float:
        """Return hami_gpu_memory_limit_bytes."""
        return card.device.devmem * MIB

    def reported_pod_memory(self, share: CardShare) -> float:
        """Return hami_vgpu_memory_allocated_bytes."""
        return share.memory * MIB

    def reported_pod_cores(self, share: CardShare) -> float:
        """Return hami_vgpu_core_allocated_ratio in percent."""
        return share.cores


class Rules(AdmissionRules, CardRules, ChoiceRules, AccountingRules, BindRules, CallRules, ReportRules):
    """HAMi 2.10.0. A subclass that overrides one method is a HAMi with one defect."""
