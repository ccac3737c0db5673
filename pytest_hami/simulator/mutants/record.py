"""The record of a mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One defect: ``rules`` overrides decisions of ``part``.

    ``caught_by`` is the check that must fail, with ``shows``, the name of the wrong observable, in its message.
    ``source`` names the upstream file or issue of the behaviour that is broken.
    """

    name: str
    part: str
    defect: str
    source: str
    caught_by: str
    shows: str
    rules: type[Any]


def mutant(
    name: str, part: str, defect: str, *, source: str, caught_by: str, shows: str
) -> Callable[[type[Any]], Mutant]:
    """Return a decorator that makes a mutant of a class of rules."""
    return lambda rules: Mutant(name, part, defect, source, caught_by, shows, rules)
