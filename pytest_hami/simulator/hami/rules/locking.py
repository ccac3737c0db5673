"""What decides about the node lock (pkg/util/nodelock/nodelock.go, pkg/scheduler/scheduler.go, Bind)."""

from __future__ import annotations

from datetime import datetime

from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules.base import ReleaseRules


class LockRules(ReleaseRules):
    """What decides about the node lock."""

    def lock_decision(
        self, text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str
    ) -> lock.Decision:
        """Return what Bind does with a lock annotation; ``timeout`` in seconds."""
        return lock.decide(text, owner, now, timeout, node, self.traits)

    def releases_lock(self, text: str, owner: tuple[str, str]) -> bool:
        """Whether a pod whose bind failed gives a lock back: its own, or one without an owner."""
        return lock.owned_by(text, owner) or ("," not in text and self.traits.legacy_lock_released)

    def waits_in_group(self) -> bool:
        """Whether members of a pod group wait for each other's lock instead of failing."""
        return self.traits.lock_contention_suffix

    def binds_from_cache(self) -> bool:
        """Whether Bind looks pod and node up in HAMi's own cache (else it asks the API server)."""
        return self.traits.binds_from_own_cache


class CallRules(ReleaseRules):
    """What decides about calls that kube-scheduler never makes."""

    def filter_without_nodes(self) -> str:
        """Return what a filter call without nodes is answered; HAMi panics, which answers nothing (empty)."""
        return ""

    def filter_without_nodes_releases(self) -> bool:
        """Whether such a call gives up what its pod had reserved."""
        return True

    def answers_about_nodes(self) -> bool:
        """Whether the filter answers about full Node objects that come without their names."""
        return self.traits.simulation
