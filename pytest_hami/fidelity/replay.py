"""Hands each record to the replay of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import scheduler
from pytest_hami.fidelity.node import allocate, full_chain, lifecycle, preferred, register
from pytest_hami.fidelity.outcome import Disagreement, Replayed
from pytest_hami.fidelity.records import Kind, Record

Replay = Callable[[Mapping[str, Any], Release], Replayed]
"""A pure function from the data of a record and the release that made it to what was found."""

REPLAYS: Mapping[Kind, Replay] = {
    Kind.SCHEDULER: scheduler.replay,
    Kind.ALLOCATE: allocate.replay,
    Kind.PREFERRED: preferred.replay,
    Kind.REGISTER: register.replay,
    Kind.FULL_CHAIN: full_chain.replay,
    Kind.LIFECYCLE: lifecycle.replay,
}


def replay(record: Record, release: Release) -> Replayed:
    """Return what the model of ``release`` makes of a record."""
    play = REPLAYS.get(record.kind)
    if play is None:
        missing = Disagreement(record.id, record.kind, "replay", "a model of this kind of record", "none")
        return Replayed(record.id, record.kind, 0, 0, (missing,))
    return play(record.data, release)
