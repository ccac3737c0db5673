"""How long a run still waits for what it has waited for in vain before."""

from __future__ import annotations

import re
from collections import Counter

# Texts, times and names differ from pod to pod, what is missing does not.
_PARTICULARS = re.compile(r"[=(][^;]*")
TRIES = 2


class Patience:
    """Shared by all checks of one run.

    A HAMi that never sends an event would cost each of the 150 cases its full time limit. What was waited for in vain
    ``TRIES`` times, in an otherwise equal state, is from then on waited for ``short`` seconds only: the run is red
    already, and the rest of it is over sooner.

    >>> patience = Patience(short=2)
    >>> patience.steps(25)
    (2, 23)
    >>> for _ in range(TRIES):
    ...     patience.waited_in_vain("event BindingSucceed; release of node lock=2026-11-30T10:00:00Z,a,b")
    >>> patience.has_ended("event BindingSucceed; release of node lock=2026-11-30T10:00:09Z,c,d")
    True
    >>> patience.has_ended("event BindingSucceed")
    False
    """

    def __init__(self, short: float) -> None:
        self._short = short
        self._vain: Counter[str] = Counter()

    def steps(self, limit: float) -> tuple[float, ...]:
        """Return ``limit`` in seconds as the parts after each of which ``has_ended`` is to be asked."""
        return (self._short, limit - self._short) if limit > self._short else (limit,)

    def has_ended(self, missing: str) -> bool:
        """Return whether this was waited for in vain often enough."""
        return self._vain[_PARTICULARS.sub("", missing)] >= TRIES

    def waited_in_vain(self, missing: str) -> None:
        """Note that a full time limit has passed without this."""
        self._vain[_PARTICULARS.sub("", missing)] += 1
