"""Escaping for each output format; everything passes ``clean`` first."""

from __future__ import annotations

import re

from pytest_hami.text import clean

__all__ = ["clean", "escape_code", "escape_markdown"]

_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~&$]|^[-+])")


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
