"""What decides which nodes HAMi knows (pkg/scheduler/scheduler.go, register; pkg/device/nvidia/device.go, CheckHealth)."""

from __future__ import annotations

from pytest_hami.simulator.hami.rules.base import ReleaseRules


class NodeRules(ReleaseRules):
    """What decides which nodes HAMi knows."""

    def judges_without_cards(self) -> bool:
        """Whether a node without readable cards is judged, and stamped, like any other."""
        return self.traits.handshake_without_cards

    def stamps(self) -> bool:
        """Whether HAMi asks for a sign of life in the handshake annotation, and looks at it."""
        return self.traits.handshake_stamped

    def recovers_deleted(self) -> bool:
        """Whether ``Deleted_<time>`` needs a minute before the node is asked again (else it is asked at once)."""
        return not self.traits.handshake_removed

    def believes_bad_time(self) -> bool:
        """Whether a handshake with an unreadable time is a living one (else one that is long over)."""
        return self.traits.handshake_removed

    def farewell(self, stamp: str) -> str | None:
        """Return what becomes of the handshake annotation of a node that lost its cards; None removes it."""
        return None if self.traits.handshake_removed else f"Deleted_{stamp}"

    def cleans_unknown(self) -> bool:
        """Whether a node that lost its cards is cleaned up although it was not known."""
        return not self.traits.handshake_stamped

    def forgets_on_cleanup(self) -> bool:
        """Whether the last count of cards is forgotten when a node loses its cards."""
        return self.traits.node_forgotten

    def forgets_on_delete(self) -> bool:
        """Whether the last count of cards is forgotten when a node is deleted."""
        return self.traits.node_forgotten

    def notices_register_text(self) -> bool:
        """Whether a changed register annotation is read although the count of cards is the same."""
        return self.traits.register_change_noticed
