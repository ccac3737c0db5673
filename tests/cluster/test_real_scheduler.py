"""A HAMi scheduler binary in place of the simulated one: what runs, what is said, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_scheduler.py")
CLUSTER, USAGE = 6, 4
SUITE = """
import os, signal
from pytest_hami.checks import Layer, check
from pytest_hami.expect.podspec import Container

def declared(id):
    return check(id, title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")

@declared("mock-01")
def test_place(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    hami.pod(on=hami_gpu, memory=40_961).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")

@declared("mock-02")
def test_configure(hami, hami_node):
    hami.configure_scheduler(overwriteEnv=True)
    pod = hami.pod(Container(count=None), on=hami_node).running_without_cards()
    assert pod.env()["NVIDIA_VISIBLE_DEVICES"] == "none"

@declared("mock-03")
def test_restart(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    hami.cluster.restart("hami-scheduler")
    hami.usage(hami_gpu).equals(memory=1024, cores=0, shares=1)

@declared("mock-04")
def test_dies(hami, hami_gpu):
    os.kill(hami.cluster._real.hami_scheduler._process.pid, signal.SIGKILL)
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)

@declared("mock-05")
def test_waits(hami, hami_gpu):
    print(f"scheduler {hami.cluster._real.hami_scheduler._process.pid}", flush=True)
    import time
    time.sleep(30)
"""


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return script(tmp_path, f"import runpy; runpy.run_path({str(FAKE)!r}, run_name='__main__')")


def script(directory: Path, text: str) -> Path:
    path = directory / "scheduler"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def run(pytester: pytest.Pytester, path: Path, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(SUITE)
    return pytester.runpytest_subprocess("-p", "no:randomly", f"--hami-scheduler={path}", *arguments, timeout=120)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        time.sleep(0.05)
    return False


def test_checks_run_against_it(pytester: pytest.Pytester, binary: Path) -> None:
    done = run(pytester, binary, "-k", "place or configure or restart")
    done.assert_outcomes(passed=3, deselected=2)
    done.stdout.fnmatch_lines(
        ["hami: parts: apiserver simulated, kube-scheduler simulated, hami-scheduler real, node simulated",
         "hami: hami-scheduler is REAL: 2.10.0, held against HAMi 2.10.0, which it states to be"]
    )  # fmt: skip
    report = json.loads((pytester.path / "hami-report" / "report.json").read_text())
    assert (report["proves"], report["lane"]) == ("hami", "process")
    assert "Real: hami-scheduler 2.10.0; simulated: apiserver, kube-scheduler, node." in report["verdict"]["sentence"]
    (part,) = (part for part in report["parts"] if part["name"] == "hami-scheduler")
    assert part["digest"].startswith("sha256:")
    assert "Simulated: proves the suite" not in (pytester.path / "hami-report" / "index.html").read_text()


def test_one_that_dies_ends_the_run_with_its_last_lines(pytester: pytest.Pytester, binary: Path) -> None:
    done = run(pytester, binary, "-k", "dies", "--hami-timeout-scale=0.2")
    assert done.ret == CLUSTER, "\n".join(done.outlines)
    assert any("hami: the cluster is gone: hami-scheduler: was killed by SIGKILL" in line for line in done.outlines)


def test_it_dies_with_a_killed_run(pytester: pytest.Pytester, binary: Path) -> None:
    path = pytester.makepyfile(SUITE)
    command = [sys.executable, "-m", "pytest", "-s", "-k", "waits", f"--hami-scheduler={binary}", str(path)]
    process = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = next(int(line.split()[-1]) for line in process.stdout if "scheduler " in line and line.split()[-1].isdigit())
    assert Path(f"/proc/{pid}").exists()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert gone(pid)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; print('version: v2.10.0' if 'version' in sys.argv else 'boom'); sys.exit('version' not in sys.argv)",
         "hami-scheduler: ended with exit code 1; its last lines: boom"),
        ("import sys, time; print('version: v2.10.0') if 'version' in sys.argv else time.sleep(60)",
         "hami-scheduler: not ready within 1.5 s"),
        ("raise SystemExit('unknown flag')", "version: exit code 1: unknown flag"),
        ("import time; time.sleep(60)", "no answer within"),
    ],
    ids=["exits", "hangs", "no-version", "version-hangs"],
)  # fmt: skip
def test_a_binary_that_does_not_serve_is_one_line(
    pytester: pytest.Pytester, tmp_path: Path, text: str, message: str
) -> None:
    done = run(pytester, script(tmp_path, text), "--hami-timeout-scale=0.05", "-k", "place")
    assert done.ret == CLUSTER, "\n".join(done.outlines)
    shown = done.outlines + done.errlines
    assert any(message in line for line in shown), "\n".join(shown)
    assert not any("Traceback" in line for line in shown)


def test_a_file_of_another_architecture(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "scheduler"
    path.write_bytes(b"\x7fELF" + b"\xff" * 60)
    path.chmod(0o755)
    done = run(pytester, path)
    assert done.ret == CLUSTER
    assert any("Exec format error" in line for line in done.outlines + done.errlines)


def test_usage(pytester: pytest.Pytester, tmp_path: Path, binary: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for path, more, message in (
        (tmp_path / "missing", (), "--hami-scheduler: no such file"),
        (plain, (), "--hami-scheduler: not executable"),
        (binary, ("--hami-mutant=memory-off-by-one",), "is a defect of the simulated HAMi scheduler"),
    ):
        done = run(pytester, path, *more)
        assert done.ret == USAGE
        assert any(message in line for line in done.errlines + done.outlines)
