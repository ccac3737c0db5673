"""The simulated parts of a local cluster as one child process, told what to do by lines of JSON."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pytest_hami.cluster.base import ClusterUnavailable, CommandRefused
from pytest_hami.text import one_line

END_LIMIT = 5.0


class SimulatorProcess:
    """The child process; it ends when its standard input closes, so also when we are killed."""

    def __init__(self, env: Mapping[str, str], on_end: Callable[[str], None]) -> None:
        """Start it. Raises ClusterUnavailable. ``on_end`` is told, on another thread, when it or what it runs ends unasked."""
        self._on_end = on_end
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ids = itertools.count(1)
        self._ready: dict[str, Any] | None = None
        self._stopping = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pytest_hami.simulator"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ClusterUnavailable(f"embedded cluster: cannot start {sys.executable}: {error.strerror}") from None
        threading.Thread(target=self._read, daemon=True, name="hami-simulator").start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def configure(self, config: Mapping[str, Any]) -> None:
        """Say what it consists of; ``ready`` waits for it. Raises ClusterUnavailable."""
        self._write(config)

    def ready(self, limit: float) -> dict[str, Any]:
        """Return its ready line, with the URLs of what it serves, waiting for it once. Raises ClusterUnavailable."""
        if self._ready is None:
            answer = self._answer("the ready line", limit)
            if not answer.get("ready"):
                raise ClusterUnavailable(f"embedded cluster: {answer.get('error', answer)}")
            self._ready = answer
        return self._ready

    def command(self, op: str, limit: float, arguments: Mapping[str, Any]) -> Any:
        """Send a command and return its result. Raises CommandRefused, ClusterUnavailable."""
        number = next(self._ids)
        self._write({"id": number, "op": op, **arguments})
        answer = self._answer(f"command {op}", limit)
        if answer.get("id") != number:
            raise ClusterUnavailable(f"embedded cluster: {op}: expected answer {number}, got {one_line(answer)}")
        if answer.get("lost"):
            raise ClusterUnavailable(one_line(answer.get("error"), 2000))
        if not answer.get("ok"):
            raise CommandRefused(f"embedded cluster: {one_line(answer.get('error', answer))}")
        return answer.get("result")

    def stop(self) -> None:
        """End it; safe to call twice."""
        self._stopping = True
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=END_LIMIT)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def require_alive(self) -> None:
        """Raise ClusterUnavailable when it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise ClusterUnavailable(f"embedded cluster: its process ended (exit code {code})")

    def _answer(self, what: str, limit: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            raise ClusterUnavailable(f"embedded cluster: no answer to {what} within {limit:.0f} s") from None
        if answer is None:
            # The reader thread is gone, so every later call must find the end as well.
            self._answers.put(None)
            raise ClusterUnavailable(f"{self._obituary()} while {what} was awaited")
        return answer

    def _obituary(self) -> str:
        return f"embedded cluster: its process ended (exit code {self._process.wait(timeout=END_LIMIT)})"

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    print(line.decode(errors="replace"), end="", file=sys.stderr)
                    continue
                if message.keys() == {"lost"}:
                    self._on_end(str(message["lost"]))
                else:
                    self._answers.put(message)
        except (OSError, ValueError):
            pass
        self._answers.put(None)
        if not self._stopping:
            self._on_end(self._obituary())

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClusterUnavailable(f"embedded cluster: its process is gone: {error.strerror}") from None
