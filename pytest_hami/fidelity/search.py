"""Finds the order of events in which a step can have happened.

kube-scheduler tries waiting pods again when it likes: before what a step does, after it, or in between, in any order,
and several times. A recording tells what came of it. A step agrees when some order leads to all that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.fidelity.attempt import TIME
from pytest_hami.fidelity.play import Play
from pytest_hami.fidelity.world import PodKey

Action = Callable[[Play], None]
# Enough for every recorded step; a step that needs more is told as a disagreement.
_MOST_TRIES = 4000


@dataclass(frozen=True)
class Step:
    """A step: its parts in order, the look at its end, and the pods that wait, with what the look told of them.

    ``tried`` are those of which the look tells that they were tried. ``served`` are those that the node agent had
    finished by then.
    """

    actions: Sequence[Action]
    look: Action
    waiting: Mapping[PodKey, Mapping[str, Any]] = field(default_factory=dict)
    tried: frozenset[PodKey] = frozenset()
    served: frozenset[PodKey] = frozenset()


def run(play: Play, step: Step) -> Play:
    """Return the course of a step that agrees with the record, else the plainest one with its disagreements."""
    if not step.waiting:
        return _plain(play, step)
    plain = _plain(play.fork(), step)
    if len(plain.disagreements) == len(play.disagreements):
        return plain
    budget = _Budget(_MOST_TRIES)
    for limits in _limits(step):
        for course in _courses(play, step, 0, limits, budget):
            return course
    return plain


def _plain(play: Play, step: Step) -> Play:
    """Do all parts, then try each pod once, in the order of the record."""
    for action in step.actions:
        action(play)
        if play.diverged:
            return play
    for key, state in step.waiting.items():
        if key in step.tried:
            play.try_again(key, state)
            if key in step.served and play.world.node_of(key):
                play.world.complete_bind(key)
    step.look(play)
    return play


def _limits(step: Step) -> Iterator[dict[PodKey, int]]:
    """Yield how often each pod may be tried, fewest first."""
    for often in (1, 2, 3):
        yield dict.fromkeys(step.tried, often)
        yield dict.fromkeys(step.waiting, often)


class _Budget:
    def __init__(self, tries: int) -> None:
        self.left = tries

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _courses(play: Play, step: Step, done: int, left: Mapping[PodKey, int], budget: _Budget) -> Iterator[Play]:
    """Yield the courses that agree after ``done`` parts, with that many tries left for each pod."""
    found = len(play.disagreements)
    if done < len(step.actions):
        further = play.fork()
        step.actions[done](further)
        if len(further.disagreements) == found:
            yield from _courses(further, step, done + 1, left, budget)
    else:
        end = play.fork()
        step.look(end)
        if len(end.disagreements) == found:
            yield end
    for key, tries in left.items():
        if tries == 0 or key not in play.world.pods or play.world.node_of(key) or not budget.spend():
            continue
        rest = {**left, key: tries - 1}
        # Where the pod holds cards from its last attempt, it matters whether the second is still the same.
        reserved = TIME in (play.world.pods[key]["metadata"].get("annotations") or {})
        for same_second in (False, True) if reserved else (False,):
            again = play.fork()
            again.try_again(key, step.waiting[key], same_second=same_second)
            if len(again.disagreements) > found:
                continue
            if again.world.node_of(key) and key in step.served:
                again.world.complete_bind(key)
            yield from _courses(again, step, done, rest, budget)
