"""The console script ``pytest-hami``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from pytest_hami.text import one_line

EXIT_USAGE = 4
EXIT_CLUSTER = 6
WATCH_EVERY = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 4 for usage, 6 for a cluster that cannot be had."""
    parser = argparse.ArgumentParser(prog="pytest-hami", description="HAMi conformance: playground and reports")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run an embedded cluster until Ctrl-C and print its kubeconfig path")
    serve.add_argument("--fleet", default="seed-002", metavar="NAME|FILE", help="fleet to create (default: seed-002)")
    serve.add_argument("--release", default="2.10.0", metavar="X.Y.Z", help="HAMi release that the parts play")
    serve.add_argument("--port", type=int, default=0, help="port of the API server on 127.0.0.1 (default: a free one)")
    serve.add_argument("--kubeconfig", metavar="FILE", help="where to write the kubeconfig (default: a temporary file)")
    report = commands.add_parser("report", help="work with reports").add_subparsers(dest="action", required=True)
    build = report.add_parser("build", help="make every output again from events.jsonl")
    build.add_argument("directory", metavar="DIR", help="the report directory")
    assets = commands.add_parser("assets", help="Kubernetes' own binaries").add_subparsers(dest="action", required=True)
    made = assets.add_parser("build", help="build them with Go at the pinned versions, unless they are there")
    made.add_argument("names", metavar="NAME", nargs="*", help="etcd, kube-apiserver, kube-scheduler, kubectl (all)")
    made.add_argument("--directory", metavar="DIR", type=Path, help="where to put them (default: the user's cache)")
    assets.add_parser("path", help="print the directory for --hami-assets")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return EXIT_USAGE if end.code else 0
    if arguments.command == "serve":
        return _serve(arguments)
    if arguments.command == "assets":
        return _assets(arguments)
    return _build(Path(arguments.directory))


def _build(directory: Path) -> int:
    from pytest_hami.report.build import build

    if not (directory / "events.jsonl").is_file():
        return _usage(f"{directory}: no events.jsonl there; expected the directory of a run (--hami-report)")
    try:
        report = build(directory)
    except OSError as error:
        return _usage(f"{error.filename or directory}: {error.strerror}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return _usage(
            f"{directory / 'events.jsonl'}: no stream of this version: {type(error).__name__} {one_line(error)}"
        )
    print(report.verdict.sentence)
    return 0


def _assets(arguments: argparse.Namespace) -> int:
    from pytest_hami import assets

    folder: Path = (getattr(arguments, "directory", None) or assets.directory()).absolute()
    try:
        wanted = assets.find(getattr(arguments, "names", ()))
    except assets.AssetError as error:
        return _usage(str(error))
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


def _serve(arguments: argparse.Namespace) -> int:
    from pytest_hami.cluster import fleet as fleets
    from pytest_hami.cluster.base import ClusterUnavailable
    from pytest_hami.cluster.local import LocalCluster
    from pytest_hami.expect import expectations

    if not 0 <= arguments.port <= 65535:
        return _usage(f"--port: expected 0 to 65535, got {arguments.port}")
    try:
        fleet = fleets.load(arguments.fleet)
        expectations.load(arguments.release)
    except (fleets.FleetError, expectations.ExpectationError) as error:
        return _usage(str(error))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster = LocalCluster(arguments.release, port=arguments.port)
    with tempfile.TemporaryDirectory(prefix="pytest-hami-") as directory:
        try:
            cluster.start()
            cluster.provision([fleet])
            path = Path(arguments.kubeconfig or Path(directory) / "kubeconfig")
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(json.dumps(cluster.kubeconfig, indent=2), encoding="utf-8")
            print(f"simulated HAMi {arguments.release} with fleet {fleet.name}: nothing here is real")
            print(f"export KUBECONFIG={path}")
            print("Ctrl-C ends it", flush=True)
            while not stop.wait(WATCH_EVERY):
                if not cluster.answers():
                    print("pytest-hami: the embedded cluster ended by itself", file=sys.stderr)
                    return EXIT_CLUSTER
        except ClusterUnavailable as error:
            print(f"pytest-hami: {error}", file=sys.stderr)
            return EXIT_CLUSTER
        except OSError as error:
            return _usage(f"{arguments.kubeconfig}: {error.strerror}")
        finally:
            cluster.stop()
    return 0


def _usage(text: str) -> int:
    print(f"pytest-hami: {text}", file=sys.stderr)
    return EXIT_USAGE
