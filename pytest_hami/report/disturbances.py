"""What disturbed pods and was got over, counted over a run."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_hami.report.model import Report

MEANINGS = {
    "lost-wake-up": "there was room for a waiting pod, and nothing tried it again until a node came",
    "bind-race": "bind did not know the pod yet, and was tried again",
    "lock-contention": "another pod held the lock of the node, and bind was tried again",
    "events-dropped": "after 25 events of a pod HAMi told no more of them",
}
NOTE = "Known to happen now and then, recognised, and not held against a check about something else."


@dataclass(frozen=True)
class Row:
    """How often one kind was seen, and in which checks."""

    kind: str
    meaning: str
    count: int
    checks: tuple[str, ...]


def rows(report: Report) -> tuple[Row, ...]:
    """Return a row for each kind that was seen, known ones first."""
    found: dict[str, list[str]] = {}
    for check in report.checks:
        for case in check.cases:
            for disturbance in case.disturbances:
                found.setdefault(disturbance.get("kind", ""), []).append(check.id)
    kinds = [kind for kind in MEANINGS if kind in found] + sorted(set(found) - set(MEANINGS))
    return tuple(Row(k, MEANINGS.get(k, ""), len(found[k]), tuple(dict.fromkeys(found[k]))) for k in kinds)
