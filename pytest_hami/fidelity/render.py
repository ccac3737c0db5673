"""The text that ``pytest-hami fidelity`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hami.fidelity.outcome import Disagreement, Replayed
from pytest_hami.text import one_line

_SMALLEST = 10
_VALUE = 400


def summary(replays: Sequence[Replayed]) -> str:
    """Return the closing line."""
    placements = sum(one.placements for one in replays)
    disagreements = sum(len(one.disagreements) for one in replays)
    return f"{len(replays)} scenarios, {placements} placements, {disagreements} disagreements"


def smallest(replays: Iterable[Replayed]) -> list[Disagreement]:
    """Return all disagreements, those with the fewest steps first, then the shortest."""
    found = [disagreement for one in replays for disagreement in one.disagreements]
    return sorted(found, key=lambda one: (one.steps, len(one.expected) + len(one.seen), one.scenario, one.where))


def agreement(replays: Sequence[Replayed]) -> list[str]:
    """Return one line for each kind of scenario: how many agree, with how many placements and comparisons."""
    kinds: dict[str, list[Replayed]] = {}
    for one in replays:
        kinds.setdefault(one.kind, []).append(one)
    width = max(map(len, kinds), default=0)
    lines = []
    for kind, those in kinds.items():
        agree = sum(not one.disagreements for one in those)
        placements, comparisons = sum(one.placements for one in those), sum(one.comparisons for one in those)
        lines.append(
            f"  {kind:<{width}}  {agree:>5} of {len(those):>5} agree ({_percent(agree, len(those))})"
            f"  {placements:>6} placements  {comparisons:>7} comparisons"
        )
    return lines


def disagreements(replays: Sequence[Replayed]) -> list[str]:
    """Return the smallest disagreements, four lines each, and how many more there are."""
    found = smallest(replays)
    lines = []
    for one in found[:_SMALLEST]:
        lines += [
            f"{one_line(one.scenario)} ({one_line(one.kind)}): {one_line(one.where)}",
            f"    recorded: {one_line(one.expected, _VALUE)}",
            f"    model:    {one_line(one.seen, _VALUE)}",
        ]
    if len(found) > _SMALLEST:
        lines.append(f"and {len(found) - _SMALLEST} more disagreements")
    return lines


def _percent(part: int, whole: int) -> str:
    return "100 %" if part == whole else f"{min(part / whole * 100, 99.9):.1f} %"
