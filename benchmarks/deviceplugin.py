"""Wall time of the 33 checks on a real device plugin, against the floor that its own client throttle sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TARGET = 1.3
# client-go's defaults, which HAMi 2.10.0 leaves as they are: calls at once, and calls a second afterwards.
BURST, RATE = 10, 5
# What a plugin asks the API server for the last container of a pod that it serves, and for each one before.
LAST, OTHER = 8, 4
RUNS = {"one after the other": (), "4 workers of pytest-xdist": ("-n", "4")}


def main() -> None:
    """Print one line for each way to run them; needs HAMI_DEVICE_PLUGIN, and takes the other real parts that are named."""
    if not os.environ.get("HAMI_DEVICE_PLUGIN"):
        print("33 checks on a real device plugin: not measured, HAMI_DEVICE_PLUGIN names none")
        return
    for name, arguments in RUNS.items():
        with tempfile.TemporaryDirectory() as directory:
            started = time.perf_counter()
            command = [sys.executable, "-m", "pytest", "-q", "-m", "mock", "conformance", f"--hami-report={directory}"]
            done = subprocess.run([*command, *arguments], check=False, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
            events = [json.loads(line) for line in Path(directory, "events.jsonl").read_text().splitlines()]
        served = [calls(event["evidence"]["pods"]) for event in events if (event.get("evidence") or {}).get("pods")]
        allocates = sum(sum(count for count, _ in nodes.values()) for nodes in served)
        floor = sum(max(0, asked - BURST) / RATE for nodes in served for _, asked in nodes.values())
        print(
            f"33 checks on a real device plugin, {name}: {seconds:.0f} s, exit code {done.returncode}, {allocates} Allocates"
            f" whose throttle costs {floor:.0f} s: {seconds / floor:.2f} of it (target {TARGET:g}, one after the other)"
        )


def calls(pods: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return by node how many Allocates the pods of one case needed, and how many API calls those cost the plugin."""
    allocates: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for pod in pods:
        containers = sum("nvidia.com/gpu" in limits for limits in pod["limits"].values())
        if pod["node"] and containers and "hami.io/bind-phase" in pod["annotations"]:
            allocates[pod["node"]] += containers
            asked[pod["node"]] += LAST + OTHER * (containers - 1)
    return {node: (allocates[node], asked[node]) for node in allocates}
