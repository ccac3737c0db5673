"""Whole runs of small suites on the embedded cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.report.stream import read

PRELUDE = """
import pytest
from pytest_hami.checks import Capability, Layer, check
from pytest_hami.expect.failures import Inconclusive, InvalidObservation, Failure

def declared(id, **more):
    return check(id, title="a title", claim="A claim.", not_proven="else", layer=Layer.FILTER, jq=".pods", **more)
"""
CLUSTER = 6


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    """Run a suite in a process of its own and return its result and report.json."""
    pytester.makepyfile(PRELUDE + body)
    done = pytester.runpytest_subprocess("-p", "no:randomly", *arguments)
    path = pytester.path / "hami-report" / "report.json"
    return done, json.loads(path.read_text()) if path.exists() else {}


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {f"{check['id']}[{case['id']}]": case["outcome"] for check in report["checks"] for case in check["cases"]}


OUTCOMES = """
@declared("mock-01")
@pytest.mark.parametrize("way", ["pass", "fail", "assert", "invalid", "inconclusive", "error", "skip", "lacks", "known",
                                 "changed"])
def test_ways(hami, hami_gpu, way):
    if way == "fail":
        hami.pod(on=hami_gpu, memory=1024).running(memory=1025)
    assert way != "assert", "the words of the assertion"
    if way == "invalid":
        raise InvalidObservation(Failure("a sound mock", "an unsound one"))
    if way == "inconclusive":
        raise Inconclusive(Failure("little noise", "much noise"))
    if way == "error":
        raise RuntimeError("the suite broke")
    if way == "skip":
        pytest.skip("not today")
    if way == "lacks":
        hami.require_capability(Capability.CUDA)
    if way in ("known", "changed"):
        with hami.known("cores-above-100") as cores:
            hami.pod(on=hami_gpu, memory=1, cores=150).running(cores=cores if way == "known" else 99)

@declared("mock-02", needs={Capability.CUDA})
def test_unsupported(hami):
    raise AssertionError("never run")

@declared("mock-03", needs={Capability.MONITOR})
def test_skipped(hami):
    raise AssertionError("never run")
"""


def test_every_outcome_has_its_word(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, OUTCOMES, "-rs")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(report) == {
        "mock-01[pass]": "passed", "mock-01[fail]": "failed", "mock-01[assert]": "failed", "mock-01[invalid]": "invalid",
        "mock-01[inconclusive]": "inconclusive", "mock-01[error]": "error", "mock-01[skip]": "skipped",
        "mock-01[lacks]": "unsupported", "mock-01[known]": "deviation", "mock-01[changed]": "changed",
        "mock-02[]": "unsupported", "mock-03[]": "skipped",
    }  # fmt: skip
    done.assert_outcomes(passed=2, failed=3, errors=3, skipped=4)
    text = "\n".join(done.outlines)
    assert (
        "unsupported: nothing executes CUDA here: there is no GPU; remedy: run it on a cluster with real GPUs" in text
    )
    assert "skipped: no HAMi monitor in this cluster; remedy: name a vGPUmonitor binary with --hami-monitor" in text
    cases = {case["id"]: case for case in report["checks"][0]["cases"]}
    assert cases["fail"]["failure"]["difference"] == "memory: expected 1025, seen 1024"
    assert "the words of the assertion" in cases["assert"]["failure"]["seen"]
    assert cases["known"]["reference"]
    assert report["verdict"]["outcome"] == "failed"
    assert report["proves"] == "suite"
    suite = ET.parse(pytester.path / "hami-report" / "junit.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "12", "failures": "3", "errors": "3", "skipped": "4",
    }  # fmt: skip


def test_allowed_outcomes_do_not_fail_the_run(pytester: pytest.Pytester) -> None:
    arguments = ["-k", "changed or inconclusive", "--hami-allow-changed", "--hami-allow-inconclusive"]
    done, report = run(pytester, OUTCOMES, *arguments)
    assert done.ret == 0
    seen = outcomes(report)
    assert (seen["mock-01[changed]"], seen["mock-01[inconclusive]"]) == ("changed", "inconclusive")
    assert report["verdict"]["outcome"] == "passed"


TWO = """
@declared("mock-01", needs={Capability.FILTER})
@pytest.mark.parametrize("number", [1, 2, 3])
def test_one(hami, hami_gpu, number):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)

@declared("mock-02")
def test_two(hami, hami_node):
    hami.pod(on=hami_node, memory=1024).running(memory=1024)
"""


def test_the_header_names_every_setting_and_what_is_simulated(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "--hami-run-id", "abc", "--hami-timeout-scale", "2")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["hami: cluster=local (default), *run-id=abc (option), *timeout-scale=2 (option)*",
         "hami: parts: apiserver simulated, kube-scheduler simulated, hami-scheduler simulated, node simulated",
         "hami: every part is SIMULATED: a green run proves this suite, not HAMi",
         "*2 of 2 checks passed. Every part of HAMi was simulated: this proves the suite, not HAMi.*",
         "report: *index.html"]
    )  # fmt: skip
    assert report["run"]["id"] == "abc"
    assert {setting["name"]: setting["source"] for setting in report["settings"]}["--hami-run-id"] == "option"
    names = {pod["name"] for check in report["checks"] for case in check["cases"] for pod in case["evidence"]["pods"]}
    assert names == {"pod-1"}


def test_list_runs_nothing(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "--hami-list")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["mock-01  a title  *3 cases*", "    A claim.", "    needs: filter; does not prove: else"]
    )
    assert report == {}


def test_repeat_runs_each_case_that_often(pytester: pytest.Pytester) -> None:
    _, report = run(pytester, TWO, "--hami-repeat", "2")
    assert sorted(outcomes(report)) == [
        "mock-01[1-run1]", "mock-01[1-run2]", "mock-01[2-run1]", "mock-01[2-run2]", "mock-01[3-run1]", "mock-01[3-run2]",
        "mock-02[run1]", "mock-02[run2]",
    ] or len(outcomes(report)) == 8  # fmt: skip


def test_xdist_gives_one_report(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "-n", "2")
    assert done.ret == 0
    assert set(outcomes(report).values()) == {"passed"}
    assert len(outcomes(report)) == 4
    assert report["complete"]


def test_a_failed_clean_up_is_an_error(pytester: pytest.Pytester) -> None:
    body = """
@declared("mock-01")
def test_leaves_a_lock(hami, hami_node):
    note = {"hami.io/mutex.lock": "2026-01-01T00:00:00Z,other,pod"}
    hami.client.patch("Node", hami_node.name, {"metadata": {"annotations": note}})

@declared("mock-02")
def test_has_fresh_nodes(hami, hami_node):
    assert hami_node.name.endswith("-r1")
    hami.pod(on=hami_node, memory=1024).running()
"""
    done, report = run(pytester, body)
    assert outcomes(report) == {"mock-01[]": "error", "mock-02[]": "passed"}
    assert done.ret == 1
    failure = report["checks"][0]["cases"][0]["failure"]
    assert (failure["expected"], "after clean-up" in failure["where"]) == ("no node lock", True)


def test_a_fleet_of_another_shape_is_skipped_by_name(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "--hami-fleet", "mixed", "-rs")
    assert set(outcomes(report).values()) == {"skipped"}
    assert "fleet mixed has not the shape of seed-002" in "\n".join(done.outlines)
    assert report["verdict"]["outcome"] == "incomplete"


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.parent.name))
    return found


def started(pytester: pytest.Pytester, body: str) -> tuple[subprocess.Popen[str], int, Path]:
    """Start a run whose first case is done; return it, its simulator's pid and the report directory."""
    path = pytester.makepyfile(PRELUDE + body)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", str(path), "-p", "no:randomly", "-p", "no:cacheprovider"], cwd=pytester.path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    directory = pytester.path / "hami-report"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        stream = directory / "events.jsonl"
        if stream.exists() and any(event["kind"] == "case-finished" for event in read(stream)):
            break
        time.sleep(0.05)
    (simulator,) = children(process.pid)
    return process, simulator, directory


def ended(pid: int) -> bool:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


LONG = """
@declared("mock-01")
def test_first(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)

@declared("mock-02")
@pytest.mark.parametrize("number", range(500))
def test_more(hami, hami_gpu, number):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
"""


def test_a_killed_run_leaves_a_valid_report_and_nothing_running(pytester: pytest.Pytester) -> None:
    process, simulator, directory = started(pytester, LONG)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert ended(simulator)
    report = json.loads((directory / "report.json").read_text())
    assert report["verdict"]["outcome"] == "incomplete"
    assert not report["complete"]
    assert "Incomplete." in (directory / "index.html").read_text()
    done = subprocess.run(
        [Path(sys.executable).with_name("pytest-hami"), "report", "build", directory],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("The run did not come to its end: ")
    assert outcomes(json.loads((directory / "report.json").read_text()))["mock-01[]"] == "passed"


def test_an_interrupted_run_is_marked_incomplete(pytester: pytest.Pytester) -> None:
    process, simulator, directory = started(pytester, LONG)
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2, output
    assert ended(simulator)
    report = json.loads((directory / "report.json").read_text())
    assert report["verdict"]["outcome"] == "incomplete"
    assert "not-run" in outcomes(report).values()


def test_an_api_server_that_dies_ends_the_run_with_6(pytester: pytest.Pytester) -> None:
    process, simulator, directory = started(pytester, LONG)
    os.kill(simulator, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == CLUSTER, output
    assert len({line for line in output.splitlines() if line.startswith("hami: the cluster is gone: ")}) == 1, output
    assert "Traceback" not in output
    report = json.loads((directory / "report.json").read_text())
    assert report["verdict"]["outcome"] == "incomplete"
    assert outcomes(report)["mock-01[]"] == "passed"


def test_deselected_cases_are_not_run_and_the_report_is_partial(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "-k", "mock-01 and 2")
    assert done.ret == 0
    seen = outcomes(report)
    assert [key for key, outcome in seen.items() if outcome == "passed"] == ["mock-01[2]"]
    assert set(seen.values()) == {"passed", "not-run"}
    assert (report["partial"], report["verdict"]["outcome"]) == (True, "passed")
    assert "Partial: 1 of 4 cases ran." in report["verdict"]["sentence"]


def test_nothing_observed_is_no_success(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, OUTCOMES, "-k", "mock-02 or mock-03")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert report["run"]["exit_code"] == pytest.ExitCode.NO_TESTS_COLLECTED
    assert report["verdict"]["outcome"] == "incomplete"


def test_a_cluster_that_dies_under_xdist_ends_the_run_with_6(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(
        PRELUDE
        + LONG.replace("hami.pod", "kill(hami); hami.pod")
        + """
import os, signal
def kill(hami):
    os.kill(hami.cluster._simulator.pid, signal.SIGKILL)
"""
    )
    done = pytester.runpytest_subprocess("-p", "no:randomly", "-n", "1", path, timeout=120)
    assert done.ret == CLUSTER, "\n".join(done.outlines)
    assert [line for line in done.outlines if line.startswith("hami: the cluster is gone: ")]


def test_list_runs_nothing_under_xdist_either(pytester: pytest.Pytester) -> None:
    done, report = run(pytester, TWO, "--hami-list", "-n", "2")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["mock-01  a title  *3 cases*"])
    assert report == {}


def test_the_facade_can_be_asked_for_by_name(pytester: pytest.Pytester) -> None:
    body = """
def test_late(request):
    hami = request.getfixturevalue("hami")
    hami.pod(on=hami.nodes_by_name[sorted(hami.node_names)[-1]], memory=1024).running()
"""
    done, _ = run(pytester, body)
    done.assert_outcomes(passed=1)


@pytest.mark.parametrize("cleanup", ["always", "never"])
def test_a_reconfiguration_never_outlives_its_test(pytester: pytest.Pytester, cleanup: str) -> None:
    body = """
@declared("mock-01")
def test_one(hami, hami_node):
    hami.configure_scheduler(overwriteEnv=True)
    type(hami).evidence = lambda self: 1 / 0

@declared("mock-02")
def test_two(hami, hami_node):
    from pytest_hami.expect.podspec import Container
    pod = hami.pod(Container(count=None), on=hami_node).running_without_cards()
    assert "NVIDIA_VISIBLE_DEVICES" not in pod.env()
"""
    done, report = run(pytester, body, f"--hami-cleanup={cleanup}")
    assert outcomes(report) == {"mock-01[]": "passed", "mock-02[]": "passed"}, done.outlines


def test_a_refused_command_is_an_error_of_its_check(pytester: pytest.Pytester) -> None:
    body = """
@declared("mock-01")
def test_one(hami, hami_node):
    hami.configure_scheduler(colour=1)

@declared("mock-02")
def test_two(hami, hami_node):
    hami.pod(on=hami_node, memory=1).running()
"""
    done, report = run(pytester, body)
    assert outcomes(report) == {"mock-01[]": "error", "mock-02[]": "passed"}, done.outlines
    assert done.ret == 1


def test_two_runs_do_not_share_a_directory(pytester: pytest.Pytester) -> None:
    process, simulator, directory = started(pytester, LONG)
    try:
        done = pytester.runpytest_subprocess("-p", "no:randomly", "-k", "mock-01")
        assert done.ret == 4
        assert any("another run writes to" in line for line in done.errlines + done.outlines)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert ended(simulator)
    assert json.loads((directory / "report.json").read_text())["verdict"]["outcome"] == "incomplete"


def test_the_environment_does_not_disturb_who_does_not_ask(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAMI_CLUSTER", "kind")
    monkeypatch.setenv("HAMI_REPEAT", "often")
    pytester.makepyfile("def test_plain():\n    pass\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_what_a_cluster_wrote_is_harmless_on_a_terminal(pytester: pytest.Pytester) -> None:
    body = r"""
@declared("mock-01")
def test_one(hami, hami_gpu):
    raise InvalidObservation(Failure("sound text", "\x1b]0;owned\x07\x1b[2Jred" + "x" * 200_000))
"""
    done, _ = run(pytester, body)
    text = "\n".join(done.outlines)
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert len(text) < 60_000


def test_allowing_a_change_allows_no_failed_clean_up(pytester: pytest.Pytester) -> None:
    body = """
@declared("mock-01")
def test_one(hami, hami_node, hami_gpu):
    note = {"hami.io/mutex.lock": "2026-01-01T00:00:00Z,other,pod"}
    hami.client.patch("Node", hami_node.name, {"metadata": {"annotations": note}})
    with hami.known("cores-above-100") as cores:
        raise __import__("pytest_hami.expect.failures", fromlist=["x"]).ClaimFailed(Failure("a", "b"))
"""
    done, report = run(pytester, body, "--hami-allow-changed")
    assert done.ret == 1
    assert outcomes(report) == {"mock-01[]": "error"}


def test_what_a_hostile_watch_sent_is_an_error_of_its_check(pytester: pytest.Pytester) -> None:
    body = """
@declared("mock-01")
def test_one(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running()
    hami.journal._odd("Event: metadata: expected an object, seen list")

@declared("mock-02")
def test_two(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running()
"""
    _, report = run(pytester, body)
    assert outcomes(report) == {"mock-01[]": "error", "mock-02[]": "passed"}
    assert "expected an object" in report["checks"][0]["cases"][0]["failure"]["seen"]
