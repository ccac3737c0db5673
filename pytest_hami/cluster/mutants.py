"""The names of the defects that simulated parts can play, for the command line."""

from __future__ import annotations


def mutant_names() -> list[str]:
    """Return the names of all mutants, sorted."""
    from pytest_hami.simulator.mutants import MUTANTS

    return sorted(MUTANTS)


def part_of_mutant(name: str) -> str:
    """Return the part that plays a mutant."""
    from pytest_hami.simulator.mutants import MUTANTS

    return MUTANTS[name].part


def mutants_of(check: str) -> list[str]:
    """Return the names of the mutants that a check is proven to catch, sorted."""
    from pytest_hami.simulator.mutants import MUTANTS

    return sorted(name for name, mutant in MUTANTS.items() if mutant.caught_by == check and mutant.outcome != "passed")
