"""``python -m pytest_hami.simulator``: the embedded cluster, told what to do on standard input, one JSON line each."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

STOP_LIMIT = 3.0
CHUNK = 1 << 16


class _Lines:
    """Standard input as lines for the event loop; ``ended`` is set at end of file, whatever is still unread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = asyncio.Event()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = loop
        threading.Thread(target=self._read, daemon=True, name="stdin").start()

    async def next(self) -> bytes:
        return await self._lines.get()

    def _read(self) -> None:
        rest = b""
        # os.read takes no lock that the interpreter would wait for at its end, unlike sys.stdin.
        while chunk := os.read(0, CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tell(self._lines.put_nowait, line)
        self._tell(self.ended.set)
        # Whatever hangs: nothing outlives the parent for long.
        time.sleep(2 * STOP_LIMIT)
        os._exit(1)

    def _tell(self, call: Any, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)


def _say(message: dict[str, Any]) -> None:
    # A parent that is gone cannot read; the end of standard input ends us.
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
        sys.stdout.flush()


async def _serve(lines: _Lines, started: list[Any]) -> int:
    from pytest_hami.simulator.host import Host, HostConfig, HostError, HostLost

    try:
        host = Host(HostConfig.parse(await lines.next()), lambda why: _say({"lost": why}))
        started.append(host)
        ready = await host.start()
    except HostError as error:
        _say({"ready": False, "error": str(error)})
        return 1
    _say(ready)
    while True:
        line = await lines.next()
        if not line.strip():
            continue
        number = None
        try:
            command = json.loads(line)
            if not isinstance(command, dict):
                raise ValueError(f"seen {type(command).__name__}")
            number = command.pop("id", None)
            operation = str(command.pop("op", ""))
            result = None if operation == "stop" else await host.command(operation, command)
        except HostError as error:
            _say({"id": number, "ok": False, "error": str(error), "lost": isinstance(error, HostLost)})
            continue
        except ValueError as error:
            _say({"id": number, "ok": False, "error": f"expected a JSON object on one line: {error}"})
            continue
        except Exception as error:
            logging.exception("the command failed: %s", line[:200])
            _say({"id": number, "ok": False, "error": f"{type(error).__name__}: {error}"})
            continue
        _say({"id": number, "ok": True, "result": result})
        if operation == "stop":
            return 0


async def _run() -> int:
    loop = asyncio.get_running_loop()
    lines = _Lines(loop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lines.ended.set)
    started: list[Any] = []
    serving = asyncio.create_task(_serve(lines, started))
    ended = asyncio.create_task(lines.ended.wait())
    try:
        await asyncio.wait((serving, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, ended):
            task.cancel()
        code, _ = await asyncio.gather(serving, ended, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            for host in started:
                async with asyncio.timeout(STOP_LIMIT):
                    await host.stop()
    if isinstance(code, Exception):
        _say({"ready": False, "error": f"{type(code).__name__}: {code}"})
        return 1
    return code if isinstance(code, int) else 0


def main() -> int:
    """Run until told to stop, or until standard input ends, and return the exit code."""
    logging.basicConfig(level=logging.WARNING, format="simulator: %(message)s", stream=sys.stderr)
    # What is imported lives as long as the process; without it a collection is short.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    return asyncio.run(_run())


if __name__ == "__main__":
    raise SystemExit(main())
