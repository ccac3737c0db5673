"""Defects that the simulated parts can play, to prove that the checks would notice them.

A mutant overrides one decision of a part's rules. Model code knows nothing of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_hami.simulator.mutants import disturbances, findings, node, scheduler
from pytest_hami.simulator.mutants.record import Mutant

MUTANTS: Mapping[str, Mutant] = {
    mutant.name: mutant for mutant in (*scheduler.ALL, *node.ALL, *findings.ALL, *disturbances.ALL)
}


class UnknownMutant(LookupError):
    """A mutant that does not exist; the text names those that look alike."""


def find(names: Iterable[str]) -> tuple[Mutant, ...]:
    """Return the mutants of these names. Raises UnknownMutant."""
    found = []
    for name in names:
        if name not in MUTANTS:
            close = difflib.get_close_matches(name, MUTANTS, n=3) or sorted(MUTANTS)
            raise UnknownMutant(f"unknown mutant {name!r}; expected one such as {', '.join(close)}")
        found.append(MUTANTS[name])
    return tuple(found)


def rules_for(part: str, names: Iterable[str], *arguments: object) -> Any | None:
    """Return the rules of ``part`` with the defects among ``names`` that are its own, None when there are none.

    ``arguments`` are those that the part's rules are made with.

    Several defects of one part are combined; where two override the same decision the first one named wins.
    Raises UnknownMutant.
    """
    bases = tuple(mutant.rules for mutant in find(names) if mutant.part == part)
    return type("MutantRules", bases, {})(*arguments) if bases else None
