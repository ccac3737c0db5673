"""Processes of a local cluster: started with a log, ended with us, and explained by their last lines."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_hami.cluster.base import ClusterUnavailable
from pytest_hami.text import clean, one_line

PR_SET_PDEATHSIG = 1
TAIL_LINES = 5
PROBE_PAUSE = 0.02
END_LIMIT = 5.0


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One process. It gets SIGKILL from the kernel when we end without ending it."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        """Start it. Raises ClusterUnavailable when the kernel refuses, such as for another architecture."""
        self.name = name
        self._log = log
        self._argv = tuple(argv)
        # Looked up before the fork: the child of a process with threads must not load anything.
        prctl = ctypes.CDLL(None, use_errno=True).prctl

        def die_with_parent() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **env},
                    cwd=log.parent, start_new_session=True, preexec_fn=die_with_parent,  # noqa: PLW1509
                )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ClusterUnavailable(f"{name}: cannot start {self._argv[0]}: {reason}") from None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tail(self) -> str:
        """Return the last lines of the log on one line, oldest first."""
        try:
            lines = self._log.read_bytes().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return " | ".join(one_line(line, 300) for line in lines[-TAIL_LINES:])

    def await_ready(self, ready: Callable[[], bool], limit: float) -> None:
        """Probe until ``ready``. Raises ClusterUnavailable with the log's last lines when it ends or stays silent."""
        deadline = time.monotonic() + limit
        while not ready():
            code = self._process.poll()
            if code is not None:
                raise ClusterUnavailable(f"{self.name}: ended with exit code {code}; its last lines: {self.tail()}")
            if time.monotonic() > deadline:
                raise ClusterUnavailable(f"{self.name}: not ready within {limit:g} s; its last lines: {self.tail()}")
            time.sleep(PROBE_PAUSE)

    def require_alive(self) -> None:
        """Raise ClusterUnavailable with the log's last lines when the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise ClusterUnavailable(f"{self.name}: ended with exit code {code}; its last lines: {self.tail()}")

    def stop(self) -> None:
        """End it with SIGTERM, then whatever is left of its group with SIGKILL."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        # Not reaped before the group is dead, so that its id cannot be somebody else's.
        with contextlib.suppress(ChildProcessError):
            deadline = time.monotonic() + END_LIMIT
            while time.monotonic() < deadline:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    break
                time.sleep(PROBE_PAUSE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def output_of(argv: Sequence[str], limit: float) -> str:
    """Return what a short command prints. Raises ClusterUnavailable when it cannot run, fails or hangs."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=limit, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ClusterUnavailable(f"{' '.join(argv)}: no answer within {limit:g} s") from None
    except OSError as error:
        raise ClusterUnavailable(f"{argv[0]}: cannot be run: {error.strerror}") from None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode != 0:
        raise ClusterUnavailable(f"{' '.join(argv)}: exit code {done.returncode}: {one_line(text)}")
    return clean(text)
