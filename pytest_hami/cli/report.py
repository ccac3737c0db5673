"""``pytest-hami report``: works with the directory of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_hami.cli.exits import usage
from pytest_hami.text import one_line


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    actions = commands.add_parser("report", help="work with reports").add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="make every output again from events.jsonl")
    build.add_argument("directory", metavar="DIR", help="the report directory")
    build.set_defaults(run=_run_build)


def _run_build(arguments: argparse.Namespace) -> int:
    return _build(Path(arguments.directory))


def _build(directory: Path) -> int:
    from pytest_hami.report.build import build

    if not (directory / "events.jsonl").is_file():
        return usage(f"{directory}: no events.jsonl there; expected the directory of a run (--hami-report)")
    try:
        report = build(directory)
    except OSError as error:
        return usage(f"{error.filename or directory}: {error.strerror}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return usage(
            f"{directory / 'events.jsonl'}: no stream of this version: {type(error).__name__} {one_line(error)}"
        )
    print(report.verdict.sentence)
    return 0
