"""Makes every output of a report directory from its event stream."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytest_hami.report import html, junit, markdown, stream
from pytest_hami.report.model import Report, from_events


def build(directory: Path) -> Report:
    """Write report.json, index.html, pull-request.md and junit.xml; the same stream gives the same bytes.

    Raises OSError when ``events.jsonl`` cannot be read or an output not be written.
    """
    report = from_events(stream.read(directory / "events.jsonl"))
    for name, content in (
        ("report.json", report.to_json()),
        ("index.html", html.render(report)),
        ("pull-request.md", markdown.render(report)),
        ("junit.xml", junit.render(report)),
    ):
        _write(directory / name, content)
    return report


def _write(path: Path, content: str) -> None:
    # Renamed into place, so that a reader never sees half a file.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
    os.chmod(name, 0o644)
    os.replace(name, path)
