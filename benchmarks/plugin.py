"""What the installed and unused plugin costs: a run with it against a run without it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 15
TARGET = 25.0


def main() -> None:
    """Print the difference of the medians, runs alternating."""
    times: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "test_plain.py").write_text("def test_plain():\n    pass\n", encoding="utf-8")
        for _ in range(RUNS):
            for name, more in (("with", ["-p", "pytest_hami.plugin"]), ("without", [])):
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, "test_plain.py"]
                started = time.perf_counter()
                subprocess.run(
                    command, cwd=directory, check=True, stdout=subprocess.DEVNULL,
                    env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "/usr/bin:/bin"},
                )  # fmt: skip
                times[name].append(time.perf_counter() - started)
    cost = (statistics.median(times["with"]) - statistics.median(times["without"])) * 1000
    print(f"plugin unused: {cost:.1f} ms, median of {RUNS} pairs (target {TARGET:g} ms)")
