"""Wall time of the 33 checks, pytest's start included: on simulated parts, and on the real ones that are named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

RUNS = 3


def main() -> None:
    """Print the best and the worst of some runs for each composition."""
    scheduler, assets = named()
    measure("33 checks", 5)
    if not scheduler:
        print("33 checks on a real HAMi scheduler: not measured, HAMI_SCHEDULER names none")
        return
    measure("33 checks on a real HAMi scheduler alone", 20, f"--hami-scheduler={scheduler}")
    name = "33 checks on a real HAMi scheduler and control plane"
    if not assets:
        print(f"{name}: not measured, KUBEBUILDER_ASSETS names none")
        return
    measure(name, 20, f"--hami-scheduler={scheduler}", f"--hami-assets={assets}")


def measure(name: str, target: float, *arguments: str) -> None:
    """Run the checks on what ``arguments`` name, and print their seconds."""
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as directory:
            started = time.perf_counter()
            command = [sys.executable, "-m", "pytest", "-q", "-m", "mock", "conformance", f"--hami-report={directory}"]
            subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL, env=plain_environment())
            seconds.append(time.perf_counter() - started)
    print(
        f"{name}: best {min(seconds):.2f} s, worst {max(seconds):.2f} s of {RUNS} runs (target {target:g} s)",
        flush=True,
    )


def named() -> tuple[str, str]:
    """Return the scheduler and the directory of Kubernetes' programs that the environment names, empty for none."""
    assets = os.environ.get("HAMI_ASSETS") or os.environ.get("KUBEBUILDER_ASSETS") or ""
    return os.environ.get("HAMI_SCHEDULER", ""), assets


def plain_environment() -> dict[str, str]:
    """Return our environment without what would make parts real."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HAMI_") and k != "KUBEBUILDER_ASSETS"}
