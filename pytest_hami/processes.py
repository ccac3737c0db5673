"""Processes of a local cluster: started with a log, watched until they end, and explained by their last lines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_hami.text import clean, one_line

TAIL_LINES = 5
TAIL_BYTES = 1 << 16
PROBE_PAUSE = 0.02
END_LIMIT = 5.0
OUTPUT_LIMIT = 1 << 16
# What a program says that gives up, before it prints how it wants to be called.
_TELLING = re.compile(
    r"^(?:Error:|panic:|fatal error:|F\d{4} )|unknown (?:shorthand )?flag|flag provided but not defined"
)
# Settings of other clusters that these programs would take from their environment.
_FOREIGN = ("ETCD_", "KUBECONFIG")


class ClusterUnavailable(Exception):
    """The cluster cannot be had, or broke: the run ends with exit code 6. The text is one line."""


class Port:
    """A TCP port of 127.0.0.1 that is ours until it is released.

    A socket stays bound to it without listening: no other program is given it, and the one that we start may still
    listen there, because it asks for SO_REUSEADDR as Go and asyncio do.
    """

    def __init__(self) -> None:
        """Raises OSError when there is no port left."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """``127.0.0.1:<port>``."""
        return f"127.0.0.1:{self.number}"

    def release(self) -> None:
        """Give it up."""
        self._socket.close()


class Process:
    """One process and its group, from its start to its end."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        *,
        ends_by: signal.Signals = signal.SIGTERM,
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start it; ``on_end`` is told, on another thread, why it ended when nobody had asked it to.

        Raises ClusterUnavailable when the kernel refuses, such as for another architecture.
        """
        self.name = name
        self._log = log
        self._ends_by = ends_by
        self._on_end = on_end
        self._ended = threading.Event()
        self._asked = False
        self._cause = ""
        own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**own, **env},
                    cwd=log.parent.parent, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise ClusterUnavailable(f"{name}: cannot start {argv[0]}: {error.strerror}") from None
        threading.Thread(target=self._watch, daemon=True, name=f"hami-{name}").start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tail(self) -> str:
        """Return the last lines of the log on one line, oldest first, and before them the one that tells most."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        lines = [line for line in lines if line.strip()]
        telling = [line for line in lines[:-TAIL_LINES] if _TELLING.search(line)][-1:]
        return " | ".join(one_line(line, 300) for line in (*telling, *lines[-TAIL_LINES:]))

    def await_ready(self, ready: Callable[[], bool], limit: float) -> None:
        """Probe until ``ready``. Raises ClusterUnavailable with the log's last lines when it ends or stays silent."""
        deadline = time.monotonic() + limit
        while not ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise ClusterUnavailable(f"{self.name}: not ready within {limit:g} s; {self.last_lines()}")
            self._ended.wait(PROBE_PAUSE)

    def require_alive(self) -> None:
        """Raise ClusterUnavailable with the log's last lines when the process has ended."""
        if self._ended.is_set():
            raise ClusterUnavailable(self.obituary())

    def obituary(self) -> str:
        """Return how it ended, with its last lines."""
        return f"{self.name}: {self._cause}; {self.last_lines()}"

    def last_lines(self) -> str:
        """Return the log's last lines as the end of a sentence."""
        return f"its last lines: {self.tail()}" if self.tail() else "it wrote nothing"

    def stop(self) -> None:
        """End it with its signal, then whatever is left of its group with SIGKILL."""
        if self._process.returncode is not None:
            return
        self._asked = True
        self._signal(self._ends_by)
        self._ended.wait(END_LIMIT)
        # Not reaped before the group is dead, so that its id cannot be somebody else's.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _watch(self) -> None:
        try:
            end = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            # Reaped by somebody else, so nobody knows how it ended.
            end = None
        self._cause = _cause(end)
        self._ended.set()
        if not self._asked:
            self._on_end(self.obituary())


def _cause(end: os.waitid_result | None) -> str:
    if end is None:
        return "ended"
    if end.si_code == os.CLD_EXITED:
        return f"ended with exit code {end.si_status}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was killed by {known.get(end.si_status, f'signal {end.si_status}')}"


def output_of(argv: Sequence[str], limit: float) -> str:
    """Return what a short command prints. Raises ClusterUnavailable when it cannot run, fails or hangs."""
    shown = " ".join(argv)
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise ClusterUnavailable(f"{argv[0]}: cannot be run: {error.strerror}") from None
    late = threading.Event()

    def end() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit, end)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout:
            text = process.stdout.read(OUTPUT_LIMIT).decode("utf-8", "replace")
        # One that goes on writing ends by SIGPIPE; one that goes on without is ended by the timer.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        code = process.wait()
    if late.is_set():
        raise ClusterUnavailable(f"{shown}: no answer within {limit:g} s")
    if code != 0:
        raise ClusterUnavailable(f"{shown}: exit code {code}: {one_line(text)}")
    return clean(text)
