"""The one place where text from a cluster is made harmless: control characters, direction marks, size."""

from __future__ import annotations

import html
import re

_HARMFUL = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~&$]|^[-+])")


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


def escape_html(value: object, limit: int = 4000) -> str:
    """Return cleaned text for HTML content and quoted attributes."""
    return html.escape(clean(value, limit), quote=True)


def escape_markdown(value: object, limit: int = 1000) -> str:
    """Return cleaned text on one line that GitHub shows as it is: no markup, mention, issue link or autolink."""
    text = " ".join(clean(value, limit).split())
    text = _MARKDOWN.sub(r"\\\1", text)
    # A zero-width joiner of HTML, not of the text, keeps names and numbers from becoming links.
    return (
        text.replace("@", "@<!-- -->")
        .replace("\\#", "\\#<!-- -->")
        .replace("://", ":<!-- -->//")
        .replace("www.", "www<!-- -->.")
    )


def escape_code(value: object, limit: int = 4000) -> str:
    """Return cleaned text for a fenced block: no fence can close early."""
    return clean(value, limit).replace("```", "`\u02cb`")
