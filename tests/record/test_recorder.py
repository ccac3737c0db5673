"""A recording tells what the HAMi scheduler of the cluster did, and all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.cluster.local import LocalCluster
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import records, scheduler
from pytest_hami.record.compare import RETRIES, compare
from pytest_hami.record.recorder import Recorder, recorder

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence"
# Every op, and every kind of pod: placed, refused, denied, waiting, gated, in a lock, of another scheduler.
CHOSEN = (
    "slots-1", "webhook-1", "quota-basic", "lock-malformed", "ghost-copied", "node-addremove", "restart-held",
    "cordon",
    "config-defmem", "label-selector", "longname", "lock-timeout",
)  # fmt: skip


def shipped(release: str) -> dict[str, Any]:
    found = records.read(EVIDENCE / f"hami-{release}" / "systematic.jsonl.gz")
    return {record.id: record.data for record in found}


def simulated(release: str, *mutants: str) -> Iterator[Recorder]:
    cluster = LocalCluster(release, mutants=mutants, retries=False)
    try:
        cluster.start()
        yield Recorder(cluster, Release.parse(release), Release.parse(release))
    finally:
        cluster.stop()


@pytest.mark.parametrize("release", ["2.10.0", "2.9.0", "2.8.3"])
def test_a_recording_of_the_model_is_what_the_real_scheduler_did(release: str) -> None:
    scenarios = shipped(release)
    for found in simulated(release):
        for name in (name for name in CHOSEN if name in scenarios):
            again = found.record(scenarios[name])
            assert not scheduler.replay(again, Release.parse(release)).disagreements
            compared = compare(scenarios[name], again)
            assert not compared.differences, name
            assert compared.steps == len(scenarios[name]["steps"]) or compared.chance


@pytest.mark.parametrize(
    ("mutant", "scenario", "where"),
    [
        ("reason-events-missing", "slots-1", "step 3 create events"),
        ("memory-kept-after-delete", "slots-1", "step 4 delete vgpu"),
        ("quota-unchecked-at-admission", "quota-basic", "step 4 create admission"),
        ("memory-metric-in-megabytes", "slots-1", "end devices"),
    ],
)
def test_a_recording_of_a_defect_disagrees_with_the_model(mutant: str, scenario: str, where: str) -> None:
    for found in simulated("2.10.0", mutant):
        replayed = scheduler.replay(found.record(shipped("2.10.0")[scenario]), Release(2, 10, 0))
        assert where in [one.where for one in replayed.disagreements]


def test_nothing_of_a_scenario_is_left() -> None:
    scenario = shipped("2.10.0")["quota-basic"]
    for found in simulated("2.10.0"):
        first, second = found.record(scenario), found.record(scenario)
        assert compare(first, second).differences == ()
        assert first["metrics"] == second["metrics"]


def test_the_real_scheduler_does_what_was_recorded_of_it(real_scheduler: Path) -> None:
    with recorder({"hami-scheduler": real_scheduler}) as found:
        scenarios = shipped(str(found.version))
        for name in (name for name in CHOSEN if name in scenarios):
            again = found.record(scenarios[name])
            assert not scheduler.replay(again, found.version).disagreements
            assert not compare(scenarios[name], again).differences, name


def test_compare_finds_what_differs() -> None:
    scenario = shipped("2.10.0")["values-1"]
    steps = list(scenario["steps"])
    observed = {**steps[0]["observed"], "annotations": {"hami.io/vgpu-node": "elsewhere"}}
    other = {**scenario, "steps": [{**steps[0], "observed": observed}, *steps[1:]]}
    assert not compare(scenario, scenario).differences
    assert compare(scenario, scenario).chance != RETRIES
    (found,) = compare(scenario, other).differences
    assert found.where == "step 1 create annotations"
