"""Where the time of a placement goes, read from the history of a pod."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_hami.kube.journal import Observation

CHOSEN = ("hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/vgpu-devices-allocated")
BIND_PHASE = "hami.io/bind-phase"


@dataclass(frozen=True)
class Placement:
    """Seconds of one pod, phase by phase, as an observer of the API saw them; together they are ``total``.

    ``create``: the POST, webhook included. ``filter``: until HAMi's first choice is written on the pod, kube-scheduler's
    queue included. ``back_off``: from the first choice to the last, when a bind did not succeed. ``lock``: until the node
    is locked and the pod says ``allocating``. ``bind``: until the pod has its node. ``allocate``: until ``success``.
    """

    create: float
    filter: float
    back_off: float
    lock: float
    bind: float
    allocate: float

    @property
    def total(self) -> float:
        """From before the POST to ``success``."""
        return self.create + self.filter + self.back_off + self.lock + self.bind + self.allocate


def placement_of(create: float, history: Sequence[Observation]) -> Placement | None:
    """Return the phases of a pod whose POST took ``create`` seconds; None until it was placed and served."""
    if not history:
        return None
    choices: list[float] = []
    marks: dict[str, float] = {}
    before: tuple[str | None, ...] = (None,) * len(CHOSEN)
    for seen in history:
        notes = seen.object["metadata"].get("annotations") or {}
        choice = tuple(notes.get(key) for key in CHOSEN)
        if all(choice) and choice != before and "bound" not in marks:
            choices.append(seen.time)
            # What followed an earlier choice was undone.
            marks.clear()
        before = choice
        if choices and notes.get(BIND_PHASE) in {"allocating", "success"}:
            marks.setdefault("locked", seen.time)
        if choices and seen.object["spec"].get("nodeName"):
            marks.setdefault("bound", seen.time)
        if notes.get(BIND_PHASE) == "success":
            marks.setdefault("served", seen.time)
    if not choices or marks.keys() != {"locked", "bound", "served"}:
        return None
    times = [history[0].time, choices[0], choices[-1], marks["locked"], marks["bound"], marks["served"]]
    return Placement(create, *(later - earlier for earlier, later in itertools.pairwise(times)))


def figures(
    placements: Sequence[Placement],
    *,
    nodes: int,
    seconds: float,
    plain_create: float,
    events: Iterable[Mapping[str, Any]],
) -> dict[str, float]:
    """Return the figures of a run of placements by name, milliseconds where nothing else is said.

    ``seconds`` is the time from the first POST to the last ``success``, ``plain_create`` the time of a lone POST that no
    webhook saw, ``events`` those of the pods. Raises ValueError without placements.
    """
    if not placements:
        raise ValueError("expected at least one placement")
    totals = sorted(placement.total for placement in placements)

    def middle(phase: Callable[[Placement], float]) -> float:
        return round(1000 * statistics.median(map(phase, placements)), 1)

    contended = sum(int(e.get("count") or 1) for e in events if e.get("reason") == "BindingFailed")
    return {
        "nodes": nodes,
        "pods": len(placements),
        "pods per second": round(len(placements) / seconds, 1),
        "p50": round(1000 * statistics.median(totals), 1),
        "p90": round(1000 * totals[min(len(totals) - 1, int(0.9 * len(totals)))], 1),
        "max": round(1000 * totals[-1], 1),
        "create": middle(lambda placement: placement.create),
        "beyond a plain create": round(max(middle(lambda placement: placement.create) - 1000 * plain_create, 0.0), 1),
        "filter": middle(lambda placement: placement.filter),
        "lock": middle(lambda placement: placement.lock),
        "bind": middle(lambda placement: placement.bind),
        "allocate": middle(lambda placement: placement.allocate),
        "back-off in all, s": round(sum(placement.back_off for placement in placements), 1),
        "BindingFailed": contended,
    }
