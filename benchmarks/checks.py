"""Wall time of the 33 checks on simulated parts, pytest's start included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

RUNS = 3
TARGET = 5.0


def main() -> None:
    """Print the best and the worst of some runs."""
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as directory:
            started = time.perf_counter()
            command = [sys.executable, "-m", "pytest", "-q", "-m", "mock", "conformance", f"--hami-report={directory}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
    print(f"33 checks: best {min(seconds):.2f} s, worst {max(seconds):.2f} s of {RUNS} runs (target {TARGET:g} s)")
