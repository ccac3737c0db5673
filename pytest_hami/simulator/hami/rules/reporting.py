"""What HAMi says: reasons, events, texts of the node lock, metrics (pkg/scheduler/event.go, cmd/scheduler/metrics.go)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_hami.contract.metrics import MIB
from pytest_hami.contract.reasons import Reason, format_node_reason
from pytest_hami.simulator.hami.rules.base import ReleaseRules
from pytest_hami.simulator.hami.state import Card, CardShare

UNFIT = "NodeUnfitPod"


class ReportRules(ReleaseRules):
    """What HAMi says: reasons, events, metrics."""

    def counted_cards(self, cards: int) -> int:
        """Return the number in the reason about cards that were collected in vain."""
        return cards if self.traits.collected_cards_counted else min(cards, 1)

    def mode_reason(self) -> Reason:
        """Return the reason for a card whose mode has no room."""
        return Reason.MIG_INFEASIBLE if self.traits.mig_reason else Reason.CUSTOM_FILTER

    def node_reason(self, counts: Mapping[Reason, int], cards: int) -> str:
        """Return the text for a refused node."""
        return format_node_reason(counts, cards)

    def told_reason(self, text: str) -> str:
        """Return what kube-scheduler is told about a node that does not fit."""
        return text if self.traits.detailed_reasons else UNFIT

    def reports_no_request(self) -> bool:
        """Whether a pod without a request gets an event."""
        return not self.traits.silent_without_request

    def reports_reason_events(self) -> bool:
        """Whether a refused pod gets one event for each distinct reason."""
        return True

    def reports_closing_event(self) -> bool:
        """Whether a refused pod gets the closing event."""
        return True

    def reports_success_event(self) -> bool:
        """Whether a placed pod gets an event."""
        return True

    def overview_follows_filter(self) -> bool:
        """Whether the metrics of cards show the last filter's attempt until the next register run."""
        return not self.traits.overview_at_register

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

    def labelled_cores(self, card: Card) -> int:
        """Return the label with a card's cores in percent."""
        return card.device.devcore if self.traits.total_cores_labelled else card.cores

    def reported_pod_memory(self, share: CardShare) -> float:
        """Return hami_vgpu_memory_allocated_bytes."""
        return share.memory * MIB

    def reported_pod_cores(self, share: CardShare) -> float:
        """Return hami_vgpu_core_allocated_ratio in percent."""
        return share.cores

    def reported_memory_ratio(self, card: Card) -> float | None:
        """Return hami_node_gpu_memory_allocated_ratio, None for a card without memory, which has none."""
        if card.device.devmem != 0:
            return card.memory / card.device.devmem
        if self.traits.zero_memory_has_no_ratio:
            return None
        return math.copysign(math.inf, card.memory) if card.memory else math.nan
