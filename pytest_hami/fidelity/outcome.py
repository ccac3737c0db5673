"""What a replay found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Disagreement:
    """One observation that the model does not reproduce.

    ``kind`` is the kind of the scenario, ``where`` names step, object and observable, ``expected`` is what the record
    holds, ``seen`` what the model gives. ``steps`` is how many steps of the scenario lead to it: fewer are easier to
    understand.
    """

    scenario: str
    kind: str
    where: str
    expected: str
    seen: str
    steps: int = 1


@dataclass(frozen=True)
class Replayed:
    """The replay of one record: placements decided, observations compared, and those that differ."""

    scenario: str
    kind: str
    placements: int
    comparisons: int
    disagreements: tuple[Disagreement, ...] = ()
