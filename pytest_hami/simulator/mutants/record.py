"""The record of a mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One defect: ``rules`` overrides decisions of ``part``.

    ``caught_by`` is the check that must end with ``outcome``, with ``shows``, the name of the wrong observable, in its
    message. ``outcome`` is ``changed`` where the defect touches what the release is known to do differently,
    and ``passed`` for what is no defect but a disturbance, which the case must tell.
    ``source`` names the upstream file or issue of the behaviour that is broken.
    """

    name: str
    part: str
    defect: str
    source: str
    caught_by: str
    shows: str
    rules: type[Any]
    outcome: str = "failed"


def mutant(
    name: str, part: str, defect: str, *, source: str, caught_by: str, shows: str, outcome: str = "failed"
) -> Callable[[type[Any]], Mutant]:
    """Return a decorator that makes a mutant of a class of rules."""
    return lambda rules: Mutant(name, part, defect, source, caught_by, shows, rules, outcome)
