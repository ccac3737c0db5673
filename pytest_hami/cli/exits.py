"""The exit codes that commands share."""

from __future__ import annotations

import sys

EXIT_DISAGREEMENT = 1
EXIT_USAGE = 4
EXIT_CLUSTER = 6


def usage(text: str) -> int:
    """Print one line about a wrong use and return its exit code."""
    print(f"pytest-hami: {text}", file=sys.stderr)
    return EXIT_USAGE
