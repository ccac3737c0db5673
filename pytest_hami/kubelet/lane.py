"""The lane: a private mount namespace in which fixed paths of a program come from one directory.

A device plugin opens its socket, its configuration, its lock and the PCI bus by paths that no flag moves, and a Go
program makes its system calls by itself, so that no preloaded library can move them either.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_hami.contract.register import Device
from pytest_hami.kubelet import nvml
from pytest_hami.text import one_line

DIRECTORIES = ("device-plugins", "cdi", "config", "vgpu", "tmp", "pci", "node", "root")
# Where a program finds the directory ``node`` of its lane, and the directory of its NVML library.
NODE = Path("/hami/node")
NVML = Path("/hami/nvml")
TRY_LIMIT = 10.0
REMEDY = "run as root, or allow unprivileged user namespaces (sysctl user.max_user_namespaces)"


@dataclass(frozen=True)
class Lane:
    """One directory and the view that a program has of it; ``binds`` are directories of the host that it sees besides."""

    directory: Path
    binds: tuple[Path, ...] = ()

    def make(self) -> None:
        """Make the directory. Raises OSError."""
        for name in DIRECTORIES:
            (self.directory / name).mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write a file, whole at once, for a program may be reading it."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)

    def furnish(self, cards: Sequence[Device], kubeconfig: Path) -> None:
        """Make the directory and write what every program of a node reads: cards, NUMA nodes, kubeconfig. Raises OSError."""
        self.make()
        self.write("node/fleet", nvml.fleet_text(cards))
        self.write("node/kubeconfig", json.dumps(_embedded(json.loads(kubeconfig.read_text(encoding="utf-8")))))
        for card in cards:
            self.write(f"pci/{nvml.bus_id(card.index)}/numa_node", f"{card.numa}\n")

    def command(self, program: Path, library: Path, arguments: Sequence[str]) -> list[str]:
        """Return the command that becomes ``program`` in this lane; process id and signals are those of the command."""
        script = files("pytest_hami.kubelet").joinpath("lane.sh").read_text(encoding="utf-8")
        apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
        places = [str(path.absolute()) for path in (self.directory, program, library)]
        return [*apart, "sh", "-euc", script, "lane", *places, ":".join(map(str, self.binds)), *arguments]


class Lanes:
    """One lane for each node of a cluster."""

    def __init__(self, directory: Path, binds: Sequence[Path] = ()) -> None:
        self._directory = directory
        self._binds = tuple(binds)
        self._numbers = itertools.count(1)
        self._lanes: dict[str, Lane] = {}

    def of(self, node: str) -> Lane:
        """Return the lane of a node; its directory has a short name, for the path of a socket must be short."""
        if node not in self._lanes:
            self._lanes[node] = Lane(self._directory / str(next(self._numbers)), self._binds)
        return self._lanes[node]

    def remove(self, nodes: Iterable[str]) -> None:
        """Remove the lanes of nodes that are gone, whose programs have ended."""
        for node in nodes:
            if lane := self._lanes.pop(node, None):
                shutil.rmtree(lane.directory, ignore_errors=True)

    def complaint(self) -> str:
        """Return why this machine allows no lane, empty where it does; found out by trying one, in about 50 ms."""
        return complaint(Lane(self._directory / "0"))


def complaint(lane: Lane) -> str:
    """Return why this machine allows no lane, empty where it does; found out by trying one, which takes about 50 ms."""
    lane.make()
    argv = lane.command(Path("/bin/true"), Path("/dev/null"), [])
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_LIMIT, check=False)
    except FileNotFoundError:
        return "no private mount namespace: no program unshare here; install util-linux"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no private mount namespace: {one_line(error)}; {REMEDY}"
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"no private mount namespace: {one_line(said[0] if said else f'exit code {done.returncode}')}; {REMEDY}"
    return ""


def _embedded(kubeconfig: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig that names no file of the host."""
    (entry,) = kubeconfig["clusters"]
    cluster = dict(entry["cluster"])
    if authority := cluster.pop("certificate-authority", ""):
        cluster["certificate-authority-data"] = b64encode(Path(authority).read_bytes()).decode()
    return {**kubeconfig, "clusters": [{**entry, "cluster": cluster}]}
