"""The console script ``pytest-hami``: one module for each command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pytest_hami.cli import assets, doctor, fidelity, record, report, serve
from pytest_hami.cli.exits import EXIT_USAGE

COMMANDS = (doctor, serve, report, assets, fidelity, record)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 4 for usage, 6 for a cluster that cannot be had."""
    parser = argparse.ArgumentParser(prog="pytest-hami", description="HAMi conformance: playground and reports")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return EXIT_USAGE if end.code else 0
    return int(arguments.run(arguments))
