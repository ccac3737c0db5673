"""The model of each release decides what the real scheduler of that release was recorded to decide."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import records, scheduler
from pytest_hami.fidelity.world import RecordedChance

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence"
# Scenarios and creations of each file.
RECORDED = {
    "hami-2.10.0/systematic.jsonl.gz": (157, 1291),
    "hami-2.10.0/extra.jsonl": (13, 30),
    "hami-2.10.0/random.jsonl.gz": (200, 3984),
    "hami-2.9.0/systematic.jsonl.gz": (157, 1291),
    "hami-2.9.0/extra.jsonl": (13, 30),
    "hami-2.9.0/random.jsonl.gz": (100, 1956),
    "hami-2.8.3/systematic.jsonl.gz": (157, 1291),
    "hami-2.8.3/extra.jsonl": (12, 29),
    "hami-2.8.3/random.jsonl.gz": (100, 1956),
}


@cache
def recorded(name: str) -> list[records.Record]:
    return records.read(EVIDENCE / name)


ALL = [record for name in RECORDED for record in recorded(name)]


def named(record: records.Record) -> str:
    return f"{record.path.parent.name}-{record.id}"


@pytest.mark.parametrize("name", RECORDED)
def test_the_record_is_complete(name: str) -> None:
    found = recorded(name)
    creations = sum(step["op"] == "create" for one in found for step in one.data["steps"])
    assert (len(found), creations) == RECORDED[name]


@pytest.mark.parametrize("record", ALL, ids=named)
def test_model_decides_as_recorded(record: records.Record) -> None:
    found = scheduler.replay(record.data, records.release_of(record.path))
    assert not found.disagreements
    assert found.comparisons > len(record.data["steps"])


@pytest.mark.parametrize("release", ["2.10.0", "2.9.0", "2.8.3"])
@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("memory_fits", lambda self, total, used, asked: True),
        ("memory_fits", lambda self, total, used, asked: total - used > asked),
        ("exclusive_conflict", lambda self, total, used, asked: False),
        ("compute_exhausted", lambda self, total, used, asked: False),
        ("quota_fits", lambda self, used, asked, limit: used + asked < limit),
        ("releases_on_phase", lambda self, phase: False),
        ("keeps_terminating", lambda self: False),
        ("pads", lambda self, types: not RecordedChance(self.traits).pads(types)),
        ("node_spreads", lambda self, policy: True),
        ("default_count", lambda self, default, memory, percentage, cores: 0),
        ("break_tie", lambda self, nodes: "no such node"),
    ],
)
def test_the_replay_notices_a_defect(method: str, wrong: Any, release: str) -> None:
    rules = type("Defect", (RecordedChance,), {method: wrong})
    played = recorded(f"hami-{release}/systematic.jsonl.gz")
    noticed = any(scheduler.replay(one.data, Release.parse(release), rules).disagreements for one in played)
    assert noticed, f"no scenario notices a wrong {method}"
