"""A device plugin binary in place of the modelled one: what is told of it, and how one that cannot be used ends a run."""

from __future__ import annotations

from pathlib import Path

import pytest

CLUSTER, USAGE = 6, 4
SUITE = """
from pytest_hami.checks import Layer, check

@check("mock-01", title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")
def test_place(hami, hami_gpu):
    hami.pod(on=hami_gpu, memory=1024).running(memory=1024)
"""
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
    pytester: pytest.Pytester, tmp_path: Path, text: str, message: str
) -> None:
    shown = run(pytester, script(tmp_path, text), "--hami-timeout-scale=0.05")
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
