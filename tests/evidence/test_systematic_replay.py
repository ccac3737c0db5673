"""The pure model of HAMi 2.10.0 decides what the real scheduler was recorded to decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import records, scheduler
from pytest_hami.fidelity.world import RecordedChance

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence" / "hami-2.10.0"
NEWEST = Release(2, 10, 0)
KNOWN = {"extra-legacy-metrics": "the model does not serve the metric names of HAMi 2.9 and refuses the flag"}
SYSTEMATIC = records.read(EVIDENCE / "systematic.jsonl.gz")
EXTRA = records.read(EVIDENCE / "extra.jsonl")
RANDOM = records.read(EVIDENCE / "random.jsonl.gz")
ALL = [*SYSTEMATIC, *EXTRA, *RANDOM]


def test_the_record_is_complete() -> None:
    assert (len(SYSTEMATIC), len(EXTRA), len(RANDOM)) == (157, 13, 200)
    creates = [
        sum(step["op"] == "create" for one in part for step in one.data["steps"]) for part in (SYSTEMATIC, RANDOM)
    ]
    assert creates == [1291, 3984]
    assert set(KNOWN) <= {scenario.id for scenario in ALL}


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.id)
def test_model_decides_as_recorded(record: records.Record) -> None:
    found = scheduler.replay(record.data, NEWEST)
    if record.id in KNOWN:
        assert found.disagreements
    else:
        assert not found.disagreements
        assert found.comparisons > len(record.data["steps"])


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
        ("pads", lambda self, types: True),
        ("node_spreads", lambda self, policy: True),
        ("default_count", lambda self, default, memory, percentage, cores: 0),
        ("break_tie", lambda self, nodes: "no such node"),
    ],
)
def test_the_replay_notices_a_defect(method: str, wrong: Any) -> None:
    rules: RecordedChance = type("Defect", (RecordedChance,), {method: wrong})()
    noticed = any(scheduler.replay(scenario.data, NEWEST, rules).disagreements for scenario in SYSTEMATIC)
    assert noticed, f"no scenario notices a wrong {method}"
