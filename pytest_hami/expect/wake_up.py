"""Waiting pods, and room that came free: the wake-up that may be lost."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_hami.expect import observe

if TYPE_CHECKING:
    from pytest_hami.expect.hami import Hami
    from pytest_hami.expect.pods import Pod

# A waiting pod is tried again within milliseconds of the room that it lacked, or not until something else happens.
WAKE_UP = 0.5
# The first one may have begun before HAMi knew of the room.
ATTEMPTS = 2


def await_wake_up(hami: Hami, pods: Sequence[Pod]) -> None:
    """Wait until one of these pods waits no longer; where nothing tries them again, force it, and tell so of that pod.

    kube-scheduler asks HAMi before HAMi has seen that the room is free, and then nobody asks again (HAMi 2.10.0, finding
    F-S3). So first HAMi has to say that the room is free; then attempts are forced. Nothing is retried after them.
    Raises ClaimFailed when HAMi does not give the room back.
    """

    def awake() -> list[Pod]:
        return [pod for pod in pods if not pod.waits]

    _wait(hami, awake, WAKE_UP)
    if awake():
        return
    begun = time.monotonic()
    names = " and ".join(pod.name for pod in pods)
    hami.ledger.require_accounting(f"before another attempt for {names}", unless=lambda: bool(awake()))
    for _ in range(ATTEMPTS):
        if awake():
            break
        tried = [observe.filter_attempts(pod.events) for pod in pods]
        hami.cluster.poke()
        _wait(hami, functools.partial(_decided, pods, tried), hami.timing.place)
    for pod in awake():
        pod.nudged(begun, f"not tried again within {WAKE_UP:g} s, placed after a node came")


def _decided(pods: Sequence[Pod], tried: Sequence[int]) -> bool:
    later = (observe.filter_attempts(pod.events) > before for pod, before in zip(pods, tried, strict=True))
    return any(not pod.waits for pod in pods) or all(later)


def _wait(hami: Hami, ready: Callable[[], object], limit: float) -> None:
    from pytest_hami.kube.wait import WaitTimeout, wait_until

    with suppress(WaitTimeout):
        wait_until(hami.journal, ready, timeout=limit, missing=lambda: "another attempt")
