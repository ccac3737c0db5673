"""Defects that the simulated parts can play, to prove that the checks would notice them.

A mutant overrides one decision of a part's rules. Model code knows nothing of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract.reasons import Reason
from pytest_hami.simulator.hami.rules import Rules as SchedulerRules


@dataclass(frozen=True)
class Mutant:
    """One defect: ``rules`` overrides decisions of ``part``; ``caught_by`` are ids of the checks that must fail.

    ``reference`` names the upstream source or issue of the behaviour that is broken.
    """

    name: str
    part: str
    defect: str
    reference: str
    caught_by: tuple[str, ...]
    rules: type[Any]


class UnknownMutant(LookupError):  # noqa: N818
    """A mutant that does not exist; the text names those that look alike."""


class _MemoryOffByOne(SchedulerRules):
    def memory_fits(self, total: int, used: int, asked: int) -> bool:
        return total - used + 1 >= asked


class _KeepsDeleted(SchedulerRules):
    def releases_on_delete(self) -> bool:
        return False


class _WrongReason(SchedulerRules):
    def node_reason(self, counts: Mapping[Reason, int], cards: int) -> str:
        renamed = dict(counts)
        if Reason.INSUFFICIENT_MEMORY in renamed:
            renamed[Reason.INSUFFICIENT_CORE] = renamed.pop(Reason.INSUFFICIENT_MEMORY)
        return super().node_reason(renamed, cards)


_ALL = (
    Mutant(
        name="memory-off-by-one",
        part="hami-scheduler",
        defect="A card accepts one MiB more than it has left.",
        reference="HAMi 2.10.0, pkg/device/nvidia/device.go (Fit)",
        caught_by=("mock-09",),
        rules=_MemoryOffByOne,
    ),
    Mutant(
        name="memory-kept-after-delete",
        part="hami-scheduler",
        defect="A deleted pod keeps its memory, cores and share until the scheduler restarts.",
        reference="HAMi 2.10.0, pkg/scheduler/scheduler.go (onDelPod)",
        caught_by=("mock-09",),
        rules=_KeepsDeleted,
    ),
    Mutant(
        name="reason-names-cores-for-memory",
        part="hami-scheduler",
        defect="A node without enough memory is refused with the reason for missing cores.",
        reference="HAMi 2.10.0, pkg/device/common/common.go (GenReason)",
        caught_by=("mock-09",),
        rules=_WrongReason,
    ),
)
MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in _ALL}


def find(names: Iterable[str]) -> tuple[Mutant, ...]:
    """Return the mutants of these names. Raises UnknownMutant."""
    found = []
    for name in names:
        if name not in MUTANTS:
            close = difflib.get_close_matches(name, MUTANTS, n=3) or sorted(MUTANTS)
            raise UnknownMutant(f"unknown mutant {name!r}; expected one such as {', '.join(close)}")
        found.append(MUTANTS[name])
    return tuple(found)


def rules_for(part: str, names: Iterable[str]) -> Any | None:
    """Return the rules of ``part`` with the defects among ``names`` that are its own, None when there are none.

    Several defects of one part are combined; where two override the same decision the first one named wins.
    Raises UnknownMutant.
    """
    bases = tuple(mutant.rules for mutant in find(names) if mutant.part == part)
    return type("MutantRules", bases, {})() if bases else None
