"""The node lock ``hami.io/mutex.lock`` (HAMi, pkg/util/nodelock/nodelock.go), as decisions without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pytest_hami.contract.releases import Traits

LOCK = "hami.io/mutex.lock"
CONTENTION = "node lock contention"
_LAYOUT = "2006-01-02T15:04:05Z07:00"


@dataclass(frozen=True)
class Take:
    """Write the lock; ``stale`` is the value that must still be there, None when there was none."""

    stale: str | None = None


@dataclass(frozen=True)
class Held:
    """The lock is this pod's already."""


@dataclass(frozen=True)
class CheckOwner:
    """Ask the API for the owner: gone means take the lock, present means ``contention``."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Refused:
    """The bind fails with this text."""

    text: str


Decision = Take | Held | CheckOwner | Refused


def format_duration(seconds: float) -> str:
    """Return a duration as Go prints it.

    >>> format_duration(300), format_duration(4), format_duration(3661), format_duration(0.5)
    ('5m0s', '4s', '1h1m1s', '500ms')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def contended(text: str, traits: Traits) -> str:
    """Return the text of an error that is about a lock held by another pod."""
    return f"{text}: {CONTENTION}" if traits.lock_contention_suffix else text


def contention(node: str, timeout: float, traits: Traits) -> str:
    """Return the text of a bind refused because another pod holds the lock; ``timeout`` in seconds."""
    return contended(f"node {node} has been locked within {format_duration(timeout)}", traits)


def value(now: datetime, owner: tuple[str, str]) -> str:
    """Return the annotation value for an owner (namespace, name)."""
    return f"{now.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')},{owner[0]},{owner[1]}"


def owned_by(text: str, owner: tuple[str, str]) -> bool:
    """Whether a lock names an owner (namespace, name)."""
    return text.endswith(f",{owner[0]},{owner[1]}")


def decide(
    text: str | None, owner: tuple[str, str], now: datetime, timeout: float, node: str, traits: Traits
) -> Decision:
    """Return what Bind does with a lock annotation; ``timeout`` in seconds.

    A value that cannot be parsed blocks the node for ever: it never gets old.
    """
    if text is None:
        return Take()
    told = parse(text)
    if isinstance(told, str):
        return Refused(told)
    taken, *named = told
    if now - taken > timedelta(seconds=timeout):
        return Take(text)
    own = tuple(named) == owner
    if own and traits.own_lock_held:
        return Held()
    if own or "" in named:
        return Refused(contention(node, timeout, traits))
    return CheckOwner(*named)


def parse(text: str) -> tuple[datetime, str, str] | str:
    """Return time, namespace and name of a lock, the latter two empty in the old form; the error's text if unreadable.

    >>> parse("2026-11-29T18:03:11Z,default")
    'malformed lock annotation: expected 3 parts, got 2 from 2026-11-29T18:03:11Z,default'
    """
    parts = text.split(",")
    if len(parts) not in (1, 3):
        return f"malformed lock annotation: expected 3 parts, got {len(parts)} from {text}"
    taken = _time(parts[0])
    if isinstance(taken, str):
        return taken
    return (taken, parts[1], parts[2]) if len(parts) == 3 else (taken, "", "")


# What Go reads one after another: how the layout calls it, its form, and between which numbers it must be.
_STEPS: tuple[tuple[str, re.Pattern[str], str, int, int], ...] = (
    ("2006", re.compile(r"\d{4}"), "year", 0, 9999),
    ("-", re.compile("-"), "", 0, 0),
    ("01", re.compile(r"\d\d"), "month", 1, 12),
    ("-", re.compile("-"), "", 0, 0),
    ("02", re.compile(r"\d\d"), "day", 1, 31),
    ("T", re.compile("T"), "", 0, 0),
    ("15", re.compile(r"\d\d"), "hour", 0, 23),
    (":", re.compile(":"), "", 0, 0),
    ("04", re.compile(r"\d\d"), "minute", 0, 59),
    (":", re.compile(":"), "", 0, 0),
    ("05", re.compile(r"\d\d([.,]\d+)?"), "second", 0, 59),
    ("Z07:00", re.compile(r"Z|[+-]\d\d:\d\d"), "", 0, 0),
)


def _time(text: str) -> datetime | str:
    """Return a time, or what Go's time.Parse says of a text that is none.

    >>> _time("2026-13-29T18:03:11Z")
    'parsing time "2026-13-29T18:03:11Z": month out of range'
    >>> _time("2026-11-29 18:03:11")
    'parsing time "2026-11-29 18:03:11" as "2006-01-02T15:04:05Z07:00": cannot parse " 18:03:11" as "T"'
    """
    rest = text
    for name, form, unit, least, most in _STEPS:
        found = form.match(rest)
        if not found:
            return f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{rest}" as "{name}"'
        if unit and not least <= int(found[0][: 4 if unit == "year" else 2]) <= most:
            return f'parsing time "{text}": {unit} out of range'
        rest = rest[found.end() :]
    if rest:
        return f'parsing time "{text}": extra text: "{rest}"'
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return f'parsing time "{text}": day out of range'
