"""Made-up scenarios are sound, broad, the same for the same seed; a disagreement on one is made small and written down."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from pytest_hami.cli import main
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.scenario import STEPS, check_inputs
from pytest_hami.fidelity.scheduler import DENIED
from pytest_hami.record.generate import scenario
from pytest_hami.record.recorder import Recorder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "differential"))
from test_differential import Found, Smallest, differential


def test_a_seed_gives_the_same_scenario_again() -> None:
    assert scenario(Random(7), "a") == scenario(Random(7), "a")
    assert scenario(Random(7), "a") != scenario(Random(8), "a")


def test_scenarios_are_sound_and_broad() -> None:
    made = [scenario(Random(number), f"s{number}") for number in range(400)]
    for one in made:
        check_inputs(json.loads(json.dumps(one)))
    ops = Counter(step["op"] for one in made for step in one["steps"])
    assert set(ops) == set(STEPS) - {"sleep"}
    pods = [step["object"] for one in made for step in one["steps"] if step["op"] == "create"]
    notes = {key for pod in pods for key in pod["metadata"].get("annotations") or {}}
    assert len(notes) == 9
    limits = {
        name for pod in pods for c in pod["spec"]["containers"] for name in c.get("resources", {}).get("limits", {})
    }
    assert len(limits) == 6
    assert any(pod["spec"].get("initContainers") for pod in pods)
    assert {len(one["fleet"]) for one in made} >= {1, 2, 3, 4, 6, 10}


class Refusing:
    """A recorder of a HAMi that denies every pod."""

    version = Release(2, 10, 0)

    def record(self, made: dict[str, Any]) -> dict[str, Any]:
        denied = {"admission": "denied", "code": 403, "reason": "Forbidden", "message": f"{DENIED}no"}
        steps = [
            {**step, "observed": denied if step["op"] == "create" else {"annotations": {}}}
            for step in made["steps"]
            if "pod" not in step
        ]
        return {**made, "release": str(self.version), "steps": steps, "metrics": {"after": {}}}


def test_a_disagreement_is_made_small_and_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smallest = Smallest(tmp_path / "hami-differential" / "found.jsonl")
    with pytest.raises(Found, match=r"seed 1: .*pytest-hami fidelity .*found.jsonl"):
        differential(cast(Recorder, Refusing()), 1, 50, smallest)
    assert main(["fidelity", str(smallest.path)]) == 1
    assert "1 scenarios, " in capsys.readouterr().out
    record = json.loads(smallest.path.read_text())
    assert (len(record["fleet"]), len(record["steps"])) == (1, 0)
