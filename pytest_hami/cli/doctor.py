"""``pytest-hami doctor``: which parts would be real, and how to make the others so."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hami.cli.exits import EXIT_USAGE

if TYPE_CHECKING:
    from pytest_hami.doctor import Diagnosis


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    doctor = commands.add_parser(
        "doctor", help="show which parts of a local cluster would be real, and how to get others"
    )
    doctor.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from pytest_hami.doctor import diagnose

    diagnoses = diagnose(os.environ, Path.cwd())
    for diagnosis in diagnoses:
        print("\n".join(lines(diagnosis)))
    return EXIT_USAGE if any(diagnosis.broken for diagnosis in diagnoses) else 0


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what a person reads about one part."""
    from pytest_hami.text import one_line

    kind = diagnosis.kind
    simulated = "absent" if kind.part == "monitor" else "simulated"
    state = "unusable" if diagnosis.broken else "real" if diagnosis.chosen else simulated
    yield f"{kind.part}: {state}" + (f" ({diagnosis.chosen})" if diagnosis.chosen else "")
    for found in diagnosis.found:
        yield f"  {found.name}: {one_line(found.problem or f'{found.version}  {found.path}')}"
    if not diagnosis.chosen:
        missing = [name for name in kind.programs if name not in {found.name for found in diagnosis.found}]
        if missing:
            yield f"  not found: {', '.join(missing)}"
        yield f"  a real one adds: {kind.adds}"
        yield f"  to have it: {diagnosis.hint}"
    for lack in diagnosis.lacks:
        yield f"  this machine lacks: {lack}"
