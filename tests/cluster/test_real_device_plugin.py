"""A device plugin binary in place of the modelled one: what is told of it, and how one that cannot be used ends a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CLUSTER, USAGE = 6, 4
SUITE = '''
import os, signal, time
from pytest_hami.cluster import reaper
from pytest_hami.kube.wait import wait_until
from pytest_hami.checks import Layer, check

def declared(id):
    return check(id, title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")

def plugins(hami):
    """The processes of this stack, and of no other, that became a device plugin."""
    stack = hami.cluster._real._workspace.directory
    return [pid for pid in reaper.marked(stack) if "/hami/" in open(f"/proc/{pid}/cmdline").read()]

@declared("mock-01")
def test_place(hami, hami_gpu):
    pod = hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    assert pod.env()["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1024m"

@declared("mock-02")
def test_restart(hami, hami_cluster, hami_node, hami_gpu):
    before = plugins(hami)
    pod = hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    hami_cluster.restart("device-plugin")
    assert before and not set(before) & set(plugins(hami))
    hami.configure_node(hami_node, devicesplitcount=3)
    hami.require_shares(hami_node)
    assert [device.count for device in hami.registered(hami_node.name)] == [3, 3]
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    hami.usage(hami_gpu).equals(memory=2048, cores=0, shares=2)

@declared("mock-05")
def test_restart_heals_a_card(hami, hami_node, hami_gpu):
    lanes = hami.cluster._real._workspace.directory / "lanes"
    (fleet,) = (path for path in lanes.glob("*/node/fleet") if hami_gpu.uuid in path.read_text())
    with open(f"{fleet}.events", "a") as events:
        events.write("xid 0 79\\n")
    def shares():
        status = hami.journal.find("Node", None, hami_node.name)["status"]
        return status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]
    wait_until(hami.journal, lambda: shares() == ("20", "10"), timeout=5, missing=lambda: "10 shares of one card")
    hami.cluster.restart("device-plugin")
    wait_until(hami.journal, lambda: shares() == ("20", "20"), timeout=5, missing=lambda: "the shares of both cards")

@declared("mock-03")
def test_dies(hami, hami_gpu):
    os.kill(plugins(hami)[0], signal.SIGKILL)
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)

@declared("mock-04")
def test_waits(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
    print("plugins", *plugins(hami), flush=True)
    time.sleep(60)
'''
STATES = '[ "$1" = version ] && { echo "NVIDIA Device Plugin version: v2.10.0"; exit; }\n'


def script(directory: Path, text: str) -> Path:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(pytester: pytest.Pytester, path: Path, *arguments: str) -> list[str]:
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_subprocess("-p", "no:randomly", f"--hami-device-plugin={path}", *arguments, timeout=120)
    shown = done.outlines + done.errlines
    assert not any("Traceback" in line for line in shown), "\n".join(shown)
    return [*shown, f"exit {done.ret}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STATES + "echo flag provided but not defined: -config-file; exit 1",
         "device-plugin of node seed-002-w1: ended with exit code 1; its last lines: flag provided but not defined"),
        (STATES + "exec sleep 60",
         "device-plugin of node seed-002-w1: no device list for kubelet within 1 s; it wrote nothing"),
        ("echo unknown flag; exit 1", "version: exit code 1: unknown flag"),
        ("exec sleep 60", "no answer within"),
    ],
    ids=["refuses-a-flag", "hangs", "no-version", "version-hangs"],
)  # fmt: skip
def test_one_that_does_not_serve_is_one_line(
    pytester: pytest.Pytester, tmp_path: Path, tool: Callable[..., str], text: str, message: str
) -> None:
    tool("cc", remedy="install a C compiler")
    shown = run(pytester, script(tmp_path, text), "--hami-timeout-scale=0.05", "-k", "place")
    if any("no private mount namespace" in line for line in shown):
        pytest.skip(next(line for line in shown if "no private mount namespace" in line))
    lines = [line for line in shown if message.replace("w1", "w") in line.replace("w1", "w").replace("w2", "w")]
    assert lines, "\n".join(shown)
    assert shown[-1] == f"exit {CLUSTER}"


def test_a_file_of_another_architecture(pytester: pytest.Pytester, tmp_path: Path) -> None:
    path = tmp_path / "plugin"
    path.write_bytes(b"\x7fELF" + b"\xff" * 60)
    path.chmod(0o755)
    shown = run(pytester, path)
    assert any("Exec format error" in line for line in shown)
    assert shown[-1] == f"exit {CLUSTER}"


def test_usage(pytester: pytest.Pytester, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for path, more, message in (
        (tmp_path / "missing", "--hami-repeat=1", "--hami-device-plugin: no such file"),
        (plain, "--hami-repeat=1", "--hami-device-plugin: not executable"),
        (script(tmp_path, STATES), "--hami-mutant=allocatable-counts-cards", "is a defect of the simulated node"),
        (script(tmp_path, STATES), f"--hami-nvml={tmp_path}", "--hami-nvml: no such file"),
    ):
        shown = run(pytester, path, more)
        assert any(message in line for line in shown), "\n".join(shown)
        assert shown[-1] == f"exit {USAGE}"


def test_a_library_that_nobody_loads(pytester: pytest.Pytester, tmp_path: Path) -> None:
    (tmp_path / "library").touch()
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_subprocess(f"--hami-nvml={tmp_path / 'library'}", timeout=60)
    assert done.ret == USAGE
    assert any("--hami-nvml: nothing here loads it" in line for line in done.outlines + done.errlines)


def test_checks_run_against_hamis_own(pytester: pytest.Pytester, device_plugin: Path) -> None:
    shown = run(pytester, device_plugin, "-k", "place or restart", "--durations=3")
    assert shown[-1] == "exit 0", "\n".join(shown)
    assert any("3 passed" in line for line in shown)
    assert any(line.startswith("hami: node is REAL: ") for line in shown)


def test_one_that_dies_ends_the_run(pytester: pytest.Pytester, device_plugin: Path) -> None:
    shown = run(pytester, device_plugin, "-k", "dies")
    assert shown[-1] == f"exit {CLUSTER}", "\n".join(shown)
    assert any("the cluster is gone: device-plugin of node" in line and "SIGKILL" in line for line in shown)


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for the sockets in it."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def test_nothing_is_left_of_a_killed_run(pytester: pytest.Pytester, device_plugin: Path, short: Path) -> None:
    path = pytester.makepyfile(SUITE)
    command = [sys.executable, "-m", "pytest", "-s", "-k", "waits", f"--hami-device-plugin={device_plugin}", str(path)]
    process = subprocess.Popen(
        command, cwd=pytester.path, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(short)}
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if "plugins " in line)
    pids = [int(word) for word in line.split("plugins ")[1].split()]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{pid}").exists() for pid in pids) or list(short.glob("pytest-hami-stack-*")):
        assert time.monotonic() < deadline, f"left over: {pids}, {list(short.iterdir())}"
        time.sleep(0.05)
    assert pids
    assert str(short) not in Path("/proc/self/mountinfo").read_text()
