"""Each mutant is caught by the check that it names, with a message that names the wrong observable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.simulator.mutants import MUTANTS

pytestmark = pytest.mark.mutants
ROOT = Path(__file__).resolve().parents[2]


def run_checks(directory: Path, *arguments: str, family: str = "mock") -> dict[str, Any]:
    """Run the checks of a family in a process of their own and return report.json."""
    command = [
        sys.executable, "-m", "pytest", str(ROOT / "conformance"), "-m", family, "-q", "-p", "no:randomly",
        f"--hami-report={directory}", "--hami-timeout-scale", "0.5", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    path = directory / "report.json"
    assert path.is_file(), f"no report; pytest said:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return dict(json.loads(path.read_text()))


def message_of(case: dict[str, Any]) -> str:
    """Return what a reader of the report sees of a failure, without the traceback, and of disturbances."""
    failure = case["failure"] or {}
    told = [f"{found['kind']}: {found['told']}" for found in case["disturbances"]]
    return " | ".join(
        [*(str(failure.get(key, "")) for key in ("where", "expected", "seen", "difference", "reason")), *told]
    )


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_caught(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    mutant = MUTANTS[name]
    report = run_checks(tmp_path / "report", "-k", mutant.caught_by, "--hami-mutant", name, family="mock or contract")
    (check,) = (check for check in report["checks"] if check["id"] == mutant.caught_by)
    messages = {case["id"]: message_of(case) for case in check["cases"] if case["outcome"] == mutant.outcome}
    named = [text for text in messages.values() if mutant.shows in text]
    assert named, f"{mutant.caught_by} is {check['outcome']}, and no failure names {mutant.shows!r}: {messages}"
    record_property("mutant", name)
    record_property("check", mutant.caught_by)
    record_property("message", " ".join(named[0].split())[:300])


def test_the_unmutated_cluster_passes(tmp_path: Path) -> None:
    report = run_checks(tmp_path / "report")
    outcomes = {check["id"]: check["outcome"] for check in report["checks"]}
    assert len(outcomes) == 33
    assert {id_: outcome for id_, outcome in outcomes.items() if outcome != "passed"} == {
        "mock-07": "deviation", "mock-21": "deviation", "mock-24": "deviation", "mock-29": "unsupported",
    }  # fmt: skip
    assert report["verdict"]["outcome"] == "passed"
    assert [case["disturbances"] for check in report["checks"] for case in check["cases"] if case["disturbances"]] == []


# A cordon is known since 2.10.0, and 2.8.3 does not read again what only says that a card is unhealthy.
NOT_PROMISED = {"2.9.0": {"finding-s07"}, "2.8.3": {"finding-s07", "contract-unhealthy-card"}}


@pytest.mark.parametrize("release", NOT_PROMISED)
def test_the_unmutated_cluster_passes_as_an_older_release(release: str, tmp_path: Path) -> None:
    report = run_checks(tmp_path / "report", "--hami-release", release, family="mock or contract")
    assert report["verdict"]["outcome"] == "passed", report["verdict"]["sentence"]
    outcomes = {check["id"]: check["outcome"] for check in report["checks"]}
    assert set(outcomes.values()) <= {"passed", "deviation", "unsupported"}
    unsupported = {id_ for id_, outcome in outcomes.items() if outcome == "unsupported"}
    assert unsupported == NOT_PROMISED[release] | {"mock-29"}


def test_the_unmutated_cluster_shows_every_finding(tmp_path: Path) -> None:
    report = run_checks(tmp_path / "report", family="contract")
    findings = {check["id"]: check["outcome"] for check in report["checks"] if check["id"].startswith("finding-")}
    assert findings
    assert {id_: outcome for id_, outcome in findings.items() if outcome != "deviation"} == {}
    assert report["verdict"]["outcome"] == "passed"


def test_every_check_has_a_mutant() -> None:
    command = [sys.executable, "-m", "pytest", "conformance", "-m", "mock or contract", "-q", "--hami-list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = {
        line.split()[0] for line in done.stdout.splitlines() if line.startswith(("mock-", "finding-", "contract-"))
    }
    assert len([id_ for id_ in listed if id_.startswith("mock-")]) == 33
    assert {mutant.caught_by for mutant in MUTANTS.values() if mutant.outcome != "passed"} == listed


def test_every_finding_has_a_mutant_that_mends_it_and_one_that_is_worse() -> None:
    found: dict[str, list[str]] = {}
    for mutant in MUTANTS.values():
        if mutant.caught_by.startswith("finding-"):
            found.setdefault(mutant.caught_by, []).append(mutant.outcome)
    assert {id_: outcomes for id_, outcomes in found.items() if "changed" not in outcomes or len(outcomes) < 2} == {}
