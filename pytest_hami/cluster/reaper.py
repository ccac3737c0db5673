"""Ends what a stack left behind, also when its owner was killed: a program of its own, with the standard library only.

``python -I -S reaper.py PID DIRECTORY`` waits until the process PID ends, or its own standard input does. Then it kills
every process that carries the stack's mark in its environment, so grandchildren too, and removes the directory.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "PYTEST_HAMI_STACK"
LIMIT = 5.0
PAUSE = 0.01
# A process between fork and exec still shows its parent's environment, so one look that finds nothing is not enough.
QUIET = 2


def marked(directory: Path) -> list[int]:
    """Return the ids of the living processes of a stack, without our own."""
    mark = f"{MARK}={directory}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        # It may end meanwhile, or be somebody else's. The environment of one that only waits to be reaped is empty.
        with contextlib.suppress(OSError):
            if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


def clear(directory: Path) -> None:
    """Kill the processes of a stack and remove its directory."""
    deadline = time.monotonic() + LIMIT
    quiet = 0
    while quiet < QUIET and time.monotonic() < deadline:
        left = marked(directory)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE)
    shutil.rmtree(directory, ignore_errors=True)


def main(parent: int, directory: Path) -> None:
    """Wait for the end of the owner, then clear its stack."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ends = select.poll()
    ends.register(0, select.POLLIN | select.POLLHUP)
    # Somebody else may have inherited the other end of our standard input; the end of the process is certain.
    with contextlib.suppress(OSError):
        ends.register(os.pidfd_open(parent), select.POLLIN)
    ends.poll()
    clear(directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
