"""The event stream ``events.jsonl``: appended while the run goes, read by every output."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LINE_LIMIT = 4 << 20


class Writer:
    """Appends events, one JSON line each, flushed, so that a killed run loses nothing."""

    def __init__(self, path: Path) -> None:
        """Begin a stream. Raises OSError, BlockingIOError among them when another run writes there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise
        self._file.truncate(0)

    def write(self, event: dict[str, Any]) -> None:
        """Append an event; one that is too large loses its evidence, and says so."""
        line = _encode(event)
        if len(line) > LINE_LIMIT:
            event = {**event, "evidence": {"omitted": f"{len(line)} bytes of evidence, more than {LINE_LIMIT}"}}
            line = _encode(event)
            if len(line) > LINE_LIMIT and isinstance(event.get("failure"), dict):
                event["failure"] = {k: str(v)[:10_000] for k, v in event["failure"].items() if isinstance(v, str)}
                line = _encode(event)
        self._file.write(line + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the stream."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream; a torn line, which only a killed run leaves, is passed over."""
    with path.open("rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def _encode(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=True, default=str, separators=(",", ":")).encode()
