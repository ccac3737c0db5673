"""``pytest-hami record``: a file of scenarios in, evidence out, one clear line for what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.cli import main
from pytest_hami.fidelity import records

USAGE, CLUSTER = 4, 6
FAKE = Path(__file__).resolve().parents[1] / "cluster" / "fake_scheduler.py"
CARD = {
    "id": "GPU-A",
    "count": 10,
    "devmem": 24576,
    "devcore": 100,
    "type": "NVIDIA A10",
    "mode": "hami-core",
    "health": True,
}
POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
}  # fmt: skip
SCENARIO: dict[str, Any] = {
    "id": "one", "kind": "mine", "fleet": [{"node": "n1", "devices": [CARD]}],
    "steps": [{"op": "create", "object": POD}, {"op": "register_run"}, {"op": "delete", "pod": "p"}],
}  # fmt: skip


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler"
    path.write_text(f"#!{sys.executable}\nimport runpy; runpy.run_path({str(FAKE)!r}, run_name='__main__')\n")
    path.chmod(0o755)
    return path


def written(path: Path, *scenarios: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in scenarios))
    return path


def test_scenarios_in_evidence_out(tmp_path: Path, binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, output = written(tmp_path / "in.jsonl", SCENARIO), tmp_path / "out.jsonl"
    assert main(["record", f"--hami-scheduler={binary}", f"--scenarios={inputs}", "-o", str(output)]) == 0
    assert "1 scenarios, 3 steps of HAMi 2.10.0 recorded" in capsys.readouterr().out
    (record,) = records.read(output)
    observed = record.data["steps"][0]["observed"]
    assert (observed["admission"], observed["scheduled"]) == ("allowed", "n1")
    assert record.data["steps"][1]["observed"]["devices"] == {"n1": {"GPU-A": [24576 << 20, 100, 24576 << 20, 1, 100]}}
    assert record.data["release"] == "2.10.0"
    assert main(["fidelity", str(output)]) == 0
    assert main(["record", f"--hami-scheduler={binary}", f"--scenarios={output}", "--compare"]) == 0
    assert "0 differences" in capsys.readouterr().out
    observed["events"][0]["message"] = "something else"
    written(tmp_path / "wrong.jsonl", record.data)
    assert main(["record", f"--hami-scheduler={binary}", f"--scenarios={tmp_path / 'wrong.jsonl'}", "--compare"]) == 1
    assert "one: step 1 create events" in capsys.readouterr().out


def test_a_seed_makes_scenarios_up(tmp_path: Path, binary: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert main(["record", f"--hami-scheduler={binary}", "--random=2", "--seed=5", "-o", str(output)]) == 0
    assert [(one.id, one.data["seed"]) for one in records.read(output)] == [("r00005", 5), ("r00006", 6)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleet": None}, "field fleet: expected list, seen NoneType"),
        ({"fleet": [{"node": 1}]}, "field fleet[0].node: expected str, seen int"),
        ({"fleet": [{"node": "n", "devices": [{**CARD, "count": "10"}]}]}, "field fleet[0].devices[0].count: expected int"),
        ({"fleet": [{"node": "n", "devices": [{**CARD, "memory": 1}]}]}, "field fleet[0].devices[0].memory: expected one of"),
        ({"steps": [{"op": "explode"}]}, "field steps[0].op: expected one of create, delete"),
        ({"steps": [{"op": "delete"}]}, "field steps[0].pod: expected str, seen nothing"),
        ({"steps": [{"op": "sleep", "seconds": True}]}, "field steps[0].seconds: expected int or float, seen bool"),
        ({"steps": [{"op": "create", "object": {"metadata": {}}}]}, "field steps[0].object.spec: expected dict, seen nothing"),
    ],
)  # fmt: skip
def test_a_bad_line_is_one_line(
    tmp_path: Path, binary: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    inputs = written(tmp_path / "in.jsonl", SCENARIO, {**SCENARIO, **change})
    assert main(["record", f"--hami-scheduler={binary}", f"--scenarios={inputs}", "-o", str(tmp_path / "o")]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{inputs}:2: {message}" in line
    assert not (tmp_path / "o").exists()


def test_a_bad_observation_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"op": "create", "object": POD, "observed": {"admission": "allowed", "mutated": [], "scheduled": None}}]
    path = written(tmp_path / "in.jsonl", {**SCENARIO, "steps": steps, "metrics": {"after": {}}})
    assert main(["fidelity", str(path)]) == USAGE
    assert f"{path}:1: field steps[0].observed.annotations: expected dict, seen nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenarios=missing", "-o", "o"], "expected --hami-scheduler PATH or HAMI_SCHEDULER"),
        (["--hami-scheduler=missing", "--scenarios=missing", "-o", "o"], "--hami-scheduler: no such file"),
        (["--hami-scheduler={}", "--scenarios=missing", "-o", "o"], "missing: No such file"),
        (["--hami-scheduler={}", "--random=0", "-o", "o"], "--random: expected a number above 0, got 0"),
        (["--hami-scheduler={}", "--random=1", "--compare"], "--compare needs --scenarios FILE"),
        (["--hami-scheduler={}", "--scenarios=missing"], "expected -o OUT.jsonl, or --compare"),
    ],
)
def test_usage(binary: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["record", *(one.format(binary) for one in arguments)]) == USAGE
    assert message in capsys.readouterr().err
