"""What the replay of one record of the node finds."""

from __future__ import annotations

import json
from typing import Any

from pytest_hami.fidelity.outcome import Disagreement, Replayed


class Findings:
    """Comparisons made and those that differ; ``step`` and ``where`` say where the replay is."""

    def __init__(self, scenario: str, kind: str) -> None:
        self.scenario, self.kind = scenario, kind
        self.placements = self.comparisons = 0
        self.disagreements: list[Disagreement] = []
        self.step, self.where = 1, ""

    def same(self, what: str, seen: Any, expected: Any) -> bool:
        """Compare what the model gives with what the record holds."""
        self.comparisons += 1
        if seen == expected:
            return True
        self.disagree(what, _text(expected), _text(seen))
        return False

    def disagree(self, what: str, expected: str, seen: str) -> None:
        """Note a disagreement."""
        where = f"{self.where} {what}".strip()
        self.disagreements.append(Disagreement(self.scenario, self.kind, where, expected, seen, self.step))

    def result(self) -> Replayed:
        """Return what was found."""
        return Replayed(self.scenario, self.kind, self.placements, self.comparisons, tuple(self.disagreements))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
