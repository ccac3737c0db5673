"""``pytest-hami fidelity``: does the model do what a real HAMi was recorded to do?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pytest_hami.cli.exits import EXIT_DISAGREEMENT, usage


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    fidelity = commands.add_parser(
        "fidelity", help="replay recorded behaviour of a real HAMi through the model and count disagreements"
    )
    fidelity.add_argument(
        "files", nargs="+", metavar="FILE", help="evidence: JSON Lines, plain or gzip, or a folder of it"
    )
    fidelity.add_argument(
        "--release",
        metavar="X.Y.Z",
        help="HAMi release that made the files (default: what a record states, else its folder hami-X.Y.Z, else the newest)",
    )
    fidelity.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pytest_hami.contract.releases import Release, ReleaseError
    from pytest_hami.fidelity import records, render
    from pytest_hami.fidelity.replay import replay

    try:
        chosen = Release.parse(arguments.release) if arguments.release else None
    except ReleaseError as error:
        return usage(f"--release: {error}")
    try:
        paths = [path for given in arguments.files for path in records.files_in(Path(given))]
        files = [(path, records.read(path)) for path in paths]
    except records.RecordError as error:
        return usage(str(error))
    replays = []
    for path, found in files:
        releases = [chosen or records.release_of(path.absolute(), record.data) for record in found]
        those = [replay(record, release) for record, release in zip(found, releases, strict=True)]
        replays += those
        print(f"{path} as HAMi {', '.join(map(str, dict.fromkeys(releases)))}")
        print("\n".join(render.agreement(those)))
    for line in render.disagreements(replays):
        print(line)
    print(render.summary(replays))
    return EXIT_DISAGREEMENT if any(one.disagreements for one in replays) else 0
