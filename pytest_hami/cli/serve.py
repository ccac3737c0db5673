"""``pytest-hami serve``: an embedded cluster to play with."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from pytest_hami.cli.exits import EXIT_CLUSTER, usage

WATCH_EVERY = 1.0


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    serve = commands.add_parser("serve", help="run an embedded cluster until Ctrl-C and print its kubeconfig path")
    serve.add_argument("--fleet", default="seed-002", metavar="NAME|FILE", help="fleet to create (default: seed-002)")
    serve.add_argument("--release", default="2.10.0", metavar="X.Y.Z", help="HAMi release that the parts play")
    serve.add_argument("--port", type=int, default=0, help="port of the API server on 127.0.0.1 (default: a free one)")
    serve.add_argument("--kubeconfig", metavar="FILE", help="where to write the kubeconfig (default: a temporary file)")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from pytest_hami.cluster import fleet as fleets
    from pytest_hami.cluster.base import ClusterUnavailable
    from pytest_hami.cluster.local import LocalCluster
    from pytest_hami.expect import expectations

    if not 0 <= arguments.port <= 65535:
        return usage(f"--port: expected 0 to 65535, got {arguments.port}")
    try:
        fleet = fleets.load(arguments.fleet)
        expectations.load(arguments.release)
    except (fleets.FleetError, expectations.ExpectationError) as error:
        return usage(str(error))
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
            return usage(f"{arguments.kubeconfig}: {error.strerror}")
        finally:
            cluster.stop()
    return 0
