"""What orders cards and nodes (pkg/scheduler/score.go, pkg/scheduler/policy/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_hami.contract.quantities import ContainerRequest
from pytest_hami.simulator.hami import score
from pytest_hami.simulator.hami.rules.base import ReleaseRules, tokens
from pytest_hami.simulator.hami.state import WORD, Card


class ChoiceRules(ReleaseRules):
    """What orders cards and nodes."""

    def weights(self, text: str | None) -> score.Weights:
        """Return the weights of the annotation device-scoring-weights. Raises WeightsError."""
        return score.parse_weights(text if self.traits.scoring_weights else None)

    def demands(self, policy: str, word: str) -> bool:
        """Whether a card policy names ``mutex`` or ``topology-aware``, which filter besides ordering."""
        if self.traits.policy_lists:
            return word in tokens(policy)
        return word == "topology-aware" and policy == word

    def node_score(self, cards: Sequence[Card]) -> float:
        """Return the score of a node: its use before this pod."""
        return score.node_score(cards, guarded=self.traits.zero_totals_score_zero)

    def card_score(self, card: Card, request: ContainerRequest, weights: score.Weights) -> float:
        """Return the score of a card; the request counts only on cards whose type is exactly NVIDIA (issue 2870)."""
        if self.traits.request_scored_on_exact_type:
            return score.card_score(card, request if card.device.type == WORD else None, weights)
        return score.card_score_2_8(card, request)

    def card_key(self, card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
        """Return the sort key of a card; the card that sorts last is preferred."""
        if self.traits.score_before_numa:
            return score.card_key(card, policy, numa_bind)
        return score.single_key(card, policy, numa_first=True)

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
        return score.pick_topology(uuids, wanted, scores, needs_scores=not self.traits.topology_without_scores)
