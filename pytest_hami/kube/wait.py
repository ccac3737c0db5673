"""The one wait: until a condition over the journal holds, with a timeout that says what was missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
POLL_INTERVAL = 0.005


class WaitTimeout(TimeoutError):
    """The time is over; the text names the missing thing and the history."""

    def __init__(self, missing: str, timeout: float, history: Sequence[str]) -> None:
        lines = "".join(f"\n  {line}" for line in history) or "\n  nothing"
        super().__init__(f"not seen within {timeout:g} s: {missing}; history:{lines}")
        self.missing = missing


class Waits(Protocol):
    """What can block until something new was observed."""

    def wait_for_news(self, seen: int, timeout: float) -> int:
        """Block until the number of observations exceeds ``seen`` or the time is over; return the number."""

    def news(self) -> int:
        """Return the number of observations so far."""


def wait_until(
    journal: Waits,
    ready: Callable[[], T],
    *,
    timeout: float,
    missing: Callable[[], str],
    history: Callable[[], Sequence[str]] = tuple,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return the first true value of ``ready``, asked again after each observation. Raises WaitTimeout, ClusterLost."""
    deadline = clock() + timeout
    while True:
        seen = journal.news()
        value = ready()
        if value:
            return value
        left = deadline - clock()
        if left <= 0:
            raise WaitTimeout(missing(), timeout, history())
        journal.wait_for_news(seen, left)


def poll(
    ready: Callable[[], T],
    *,
    timeout: float,
    missing: Callable[[], str],
    interval: float = POLL_INTERVAL,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the first true value of ``ready``, asked every ``interval`` seconds. Raises WaitTimeout.

    Only for what has no watch, such as a metrics endpoint.
    """
    deadline = clock() + timeout
    while True:
        value = ready()
        if value:
            return value
        if clock() >= deadline:
            raise WaitTimeout(missing(), timeout, ())
        sleep(interval)
