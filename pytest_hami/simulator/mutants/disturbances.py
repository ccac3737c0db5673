"""What no check may fail for: disturbances that a real system gets over, and that every report must count."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.kube_scheduler import SchedulerRules
from pytest_hami.simulator.mutants.record import Mutant, mutant


def _disturbance(name: str, part: str, what: str, source: str, check: str, shows: str) -> Callable[[type[Any]], Mutant]:
    return mutant(name, part, what, source=source, caught_by=check, shows=shows, outcome="passed")


@_disturbance("wake-ups-lost", "kube-scheduler", "No end of a pod brings a waiting pod back into the queue.",
              "kube-scheduler 1.36 asks before HAMi's informer has seen the end", "mock-09", "lost-wake-up")  # fmt: skip
class LosesWakeUps(SchedulerRules):
    def wakes(self, kind: str) -> bool:
        return kind == "ADDED"


@_disturbance("locks-contended", "hami-scheduler", "The first bind of each pod finds the node locked by another one.",
              "HAMi 2.10.0, pkg/util/nodelock/nodelock.go", "mock-03", "lock-contention")  # fmt: skip
class MeetsHeldLocks(Rules):
    def lock_decision(
        self, text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str
    ) -> lock.Decision:
        met: set[tuple[str, str]] = self.__dict__.setdefault("_met", set())
        if owner in met:
            return super().lock_decision(text, owner, now, timeout, node)
        met.add(owner)
        return lock.Refused(lock.contention(node, timeout, self.traits))


ALL = tuple(value for value in list(vars().values()) if isinstance(value, Mutant))
