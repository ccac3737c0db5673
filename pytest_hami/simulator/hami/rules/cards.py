"""What decides about one card of a node (pkg/device/nvidia/device.go, Fit; pkg/device/devices.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_hami.contract.quantities import ContainerRequest, to_int32
from pytest_hami.simulator.hami.rules.base import ReleaseRules, tokens
from pytest_hami.simulator.hami.state import WORD, Card

MIG = "mig"


class CardRules(ReleaseRules):
    """What decides about one card of a node; a method that answers False gives the card's reason."""

    def candidates(self, offered: Sequence[str], registered: Iterable[str]) -> Sequence[str]:
        """Return the nodes that the filter looks at: those that kube-scheduler offers."""
        return offered

    def matches_vendor(self, card: Card) -> bool:
        """Whether the card can serve a request at all."""
        if self.traits.vendor_case_ignored:
            return WORD.lower() in card.device.type.lower()
        return WORD in card.device.type

    def countable(self, cards: Sequence[Card], matching: Sequence[Card]) -> int:
        """Return how many of a node's cards count against the number that a container asks."""
        return len(matching if self.traits.insufficient_by_vendor else cards)

    def enough_cards(self, cards: int, asked: int) -> bool:
        """Whether the node has as many cards as one container asks."""
        return asked <= cards

    def may_give_parts(self, cards: Sequence[Card], mode: str | None) -> bool:
        """Whether some card may be divided, so that the number of cards says nothing; ``mode`` is what the pod wants."""
        wanted = mode is None or MIG in mode
        return self.traits.mig_asked_beyond_cards and wanted and any(card.device.mode == MIG for card in cards)

    def charged(self, cards: Sequence[Card], uuid: str) -> Sequence[Card]:
        """Return the entries of a node that carry the use of a chosen card, for a UUID that is registered twice."""
        entries = [card for card in cards if card.device.id == uuid]
        return entries[:1] if self.traits.first_entry_charged else entries

    def healthy(self, card: Card) -> bool:
        """Whether the card takes new pods."""
        return card.device.health

    def cordoned(self, card: Card, cordon: str) -> bool:
        """Whether the node's cordon annotation names the card."""
        return self.traits.cordon and card.device.id in tokens(cordon)

    def type_match(self, kind: str, use: str | None, avoid: str | None) -> bool:
        """Whether a card type passes use-gputype and nouse-gputype: substrings, case ignored; None is no list."""
        upper = kind.upper()

        def named(text: str) -> bool:
            return any(token.upper() in upper for token in self._entries(text))

        if self._constrains(use) and not named(use or ""):
            return False
        return not (self._constrains(avoid) and named(avoid or ""))

    def mode_match(self, mode: str, wanted: str | None) -> bool:
        """Whether the text of vgpu-mode contains the card's mode."""
        return wanted is None or mode in wanted

    def uuid_match(self, uuid: str, use: str | None, avoid: str | None) -> bool:
        """Whether a UUID passes use-gpuuuid and nouse-gpuuuid: exact names; None is no list."""
        if self._constrains(use):
            if uuid not in self._entries(use or ""):
                return False
            if not self.traits.selectors_trimmed:
                return True
        return not (self._constrains(avoid) and uuid in self._entries(avoid or ""))

    def _entries(self, text: str) -> Sequence[str]:
        return tokens(text) if self.traits.selectors_trimmed else text.split(",")

    def _constrains(self, text: str | None) -> bool:
        return text is not None and (not self.traits.selectors_trimmed or text.strip() != "")

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
        """Whether the free MiB are enough; HAMi counts in 32 bits."""
        return to_int32(total - used) >= asked

    def cores_fit(self, total: int, used: int, asked: int) -> bool:
        """Whether the free percent are enough; HAMi counts in 32 bits."""
        return to_int32(total - used) >= asked

    def exclusive_conflict(self, total: int, used_shares: int, asked: int) -> bool:
        """Whether a request for a whole card meets a card in use; only cards of exactly 100 percent are protected."""
        return total == 100 and asked == 100 and used_shares > 0

    def compute_exhausted(self, total: int, used: int, asked: int) -> bool:
        """Whether a request without cores meets a card whose cores are all taken."""
        return total != 0 and used == total and asked == 0

    def placeable(self, mode: str) -> bool:
        """Whether the mode places a share: the model has no MIG profiles, so a mig card never does."""
        return mode != MIG

    def quota_fits(self, used: int, asked: int, limit: int) -> bool:
        """Whether a quota with this use admits that much more."""
        return used + asked <= limit

    def limit_counts(self, limit: int) -> bool:
        """Whether a configured limit is one."""
        return limit != 0 or self.traits.zero_quota_enforced
