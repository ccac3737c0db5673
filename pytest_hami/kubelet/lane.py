"""The lane: a private mount namespace in which fixed paths of a program come from one directory.

A device plugin opens its socket, its configuration, its lock and the PCI bus by paths that no flag moves, and a Go
program makes its system calls by itself, so that no preloaded library can move them either.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

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

    def command(self, program: Path, library: Path, arguments: Sequence[str]) -> list[str]:
        """Return the command that becomes ``program`` in this lane; process id and signals are those of the command."""
        script = files("pytest_hami.kubelet").joinpath("lane.sh").read_text(encoding="utf-8")
        apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
        places = [str(path.absolute()) for path in (self.directory, program, library)]
        return [*apart, "sh", "-euc", script, "lane", *places, ":".join(map(str, self.binds)), *arguments]


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
