"""Makes text from a cluster harmless: control characters, direction marks, size."""

from __future__ import annotations

import re

_HARMFUL = re.compile(
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b\\[[0-9;?]*[ -/]*[@-~]"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)


def clean(value: object, limit: int = 4000) -> str:
    """Return text without control, escape and direction characters, cut to ``limit`` bytes with a note.

    >>> clean("a\\x1b[31mb\\u202ec")
    'abc'
    >>> clean("x" * 20, 8)
    'xxxxxxxx… (20 bytes)'
    """
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    text = _HARMFUL.sub("", text)
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return f"{raw[:limit].decode('utf-8', 'ignore')}… ({len(raw)} bytes)"


def one_line(value: object, limit: int = 500) -> str:
    """Return cleaned text on one line.

    >>> one_line("a\\n  b")
    'a b'
    """
    return clean(" ".join(str(value).split()), limit)
