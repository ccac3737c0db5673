"""The console script as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("pytest-hami")
USAGE, CLUSTER = 4, 6


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run ``serve`` and return the lines that it printed until it was ready."""
    process = subprocess.Popen([SCRIPT, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if "Ctrl-C" in line:
                break
        yield process, lines
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_lives_until_it_is_told_to_end(number: int) -> None:
    with serving("--fleet", "mixed") as (process, lines):
        assert "nothing here is real" in lines[0]
        path = Path(lines[1].removeprefix("export KUBECONFIG="))
        assert path.stat().st_mode & 0o077 == 0
        server = json.loads(path.read_text())["clusters"][0]["cluster"]["server"]
        assert server.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{server}/api/v1/nodes", timeout=10) as answer:
            names = [node["metadata"]["name"] for node in json.load(answer)["items"]]
        assert names
        assert all(name.startswith("mixed-") for name in names)
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert not path.exists()
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(server, timeout=5)


def test_a_port_in_use_is_one_line_and_exit_code_6() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == CLUSTER
    assert done.stderr.count("\n") == 1
    assert "in use" in done.stderr


def test_serve_notices_the_end_of_its_cluster() -> None:
    with serving() as (process, _):
        (simulator,) = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/status")
            if f"PPid:\t{process.pid}\n" in path.read_text()
        ]
        os.kill(simulator, signal.SIGKILL)
        assert process.wait(timeout=30) == CLUSTER
        assert process.stderr is not None
        assert process.stderr.read() == "pytest-hami: the embedded cluster ended by itself\n"


def test_a_kubeconfig_of_somebody_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("precious")
    done = run("serve", "--kubeconfig", str(path))
    assert done.returncode == USAGE
    assert "File exists" in done.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "required"),
        (["dance"], "invalid choice"),
        (["serve", "--fleet", "mars"], "unknown fleet 'mars'"),
        (["serve", "--port", "70000"], "--port: expected 0 to 65535"),
        (["serve", "--release", "1.0.0"], "no expectations for HAMi 1.0.0"),
        (["serve", "--kubeconfig", "/nowhere/file"], "/nowhere/file: No such file or directory"),
        (["report", "build", "/nowhere"], "/nowhere: no events.jsonl there"),
        (["fidelity", "/nowhere"], "/nowhere: No such file or directory"),
        (["fidelity", "--release", "newest", "/nowhere"], "--release: expected a release such as 2.10.0"),
    ],
)
def test_bad_input_is_exit_code_4(arguments: list[str], text: str) -> None:
    done = run(*arguments)
    assert done.returncode == USAGE
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_build_makes_every_output_again(tmp_path: Path) -> None:
    event = {"kind": "run-started", "time": "t", "settings": [], "parts": []}
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
    done = run("report", "build", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "events.jsonl", "index.html", "junit.xml", "pull-request.md", "report.json",
    }  # fmt: skip
