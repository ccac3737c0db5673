"""How long a stack of real parts takes to be ready, and the memory that it holds then."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from benchmarks.checks import named
from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.local import LocalCluster
from pytest_hami.cluster.reaper import MARK
from pytest_hami.settings import assets_in

RUNS = 3
SECONDS, MEBIBYTES = 5.0, 500


def main() -> None:
    """Print the best and the worst start of etcd, kube-apiserver, two kube-schedulers and the HAMi scheduler."""
    scheduler, assets = named()
    if not (scheduler and assets):
        missing = "KUBEBUILDER_ASSETS" if scheduler else "HAMI_SCHEDULER"
        print(f"stack of real parts: not measured, {missing} names none")
        return
    seconds, memory = [], []
    ours = program(os.getpid())
    for _ in range(RUNS):
        paths = {**assets_in(assets), "hami-scheduler": Path(scheduler).resolve()}
        cluster = LocalCluster("2.10.0", Composition.of_paths(paths))
        started = time.perf_counter()
        cluster.start()
        try:
            _ = cluster.kubeconfig
            seconds.append(time.perf_counter() - started)
            memory.append(sum(resident(pid) for pid in stack_of(os.getpid()) if program(pid) != ours) / 1024)
        finally:
            cluster.stop()
    print(
        f"stack of real parts: ready in {min(seconds):.2f} s at best, {max(seconds):.2f} s at worst of {RUNS}"
        f" (target {SECONDS:g} s), {max(memory):.0f} MiB (target {MEBIBYTES} MiB)",
        flush=True,
    )


def stack_of(parent: int) -> list[int]:
    """Return the processes that carry the mark of a stack and were started by ``parent``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            mine = field(entry, "PPid") == parent and f"{MARK}=".encode() in (entry / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        if mine:
            found.append(int(entry.name))
    return found


def program(pid: int) -> str:
    """Return the path of what a process runs."""
    return os.readlink(f"/proc/{pid}/exe")


def resident(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    return field(Path("/proc", str(pid)), "VmRSS")


def field(process: Path, name: str) -> int:
    """Return a number of /proc/PID/status. Raises OSError, ValueError."""
    found = re.search(rf"^{name}:\s+(\d+)", (process / "status").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{process}: no {name}")
    return int(found[1])
