"""``pytest-hami assets``: Kubernetes' own binaries."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pytest_hami.cli.exits import EXIT_CLUSTER, usage


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    actions = commands.add_parser("assets", help="Kubernetes' own binaries").add_subparsers(
        dest="action", required=True
    )
    made = actions.add_parser("build", help="build them with Go at the pinned versions, unless they are there")
    made.add_argument("names", metavar="NAME", nargs="*", help="etcd, kube-apiserver, kube-scheduler, kubectl (all)")
    made.add_argument("--directory", metavar="DIR", type=Path, help="where to put them (default: the user's cache)")
    actions.add_parser("path", help="print the directory for --hami-assets")
    for action in actions.choices.values():
        action.set_defaults(run=_assets)


def _assets(arguments: argparse.Namespace) -> int:
    from pytest_hami import assets

    folder: Path = (getattr(arguments, "directory", None) or assets.directory()).absolute()
    try:
        wanted = assets.find(getattr(arguments, "names", ()))
    except assets.AssetError as error:
        return usage(str(error))
    try:
        if arguments.action == "build":
            assets.build(wanted, folder, lambda text: print(f"pytest-hami: {text}", file=sys.stderr))
        elif not assets.present(folder):
            raise assets.AssetError(f"{folder}: no binaries there; build them: pytest-hami assets build")
    except assets.AssetError as error:
        print(f"pytest-hami: {error}", file=sys.stderr)
        return EXIT_CLUSTER
    print(folder)
    return 0
