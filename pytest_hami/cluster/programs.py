"""What a program says of itself: its version and the digest of its file."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_hami.cluster.base import ClusterUnavailable
from pytest_hami.cluster.composition import Composition, Program
from pytest_hami.processes import output_of

VERSION_LIMIT = 5.0
# The argument that makes a program state its version, and the line in which it does.
# Sources: HAMi 2.10.0, pkg/version/version.go; Kubernetes 1.36, component-base/version/verflag; etcd 3.7, server/etcdmain.
STATES = {
    "etcd": ("--version", r"^etcd Version:\s*(\S+)"),
    "kube-apiserver": ("--version", r"^Kubernetes v?(\S+)"),
    "kube-scheduler": ("--version", r"^Kubernetes v?(\S+)"),
    "hami-scheduler": ("version", r"^version:\s*v?(\S+)"),
    "device-plugin": ("version", r"\bversion:\s*v?(\S+)"),
    "monitor": ("version", r"^version:\s*v?(\S+)"),
}


def identified(composition: Composition, scale: float) -> Composition:
    """Return the composition with the version and digest of each program. Raises ClusterUnavailable."""
    programs = composition.programs
    with ThreadPoolExecutor(max(len(programs), 1)) as pool:
        found = list(pool.map(lambda name: identify(name, programs[name].path, scale), programs))
    return composition.identified(dict(zip(programs, found, strict=True)))


def identify(name: str, path: Path, scale: float) -> Program:
    """Return what one program says of itself. Raises ClusterUnavailable."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ClusterUnavailable(f"{name}: {path} cannot be read: {error.strerror}") from None
    return Program(path, _version(name, path, scale), f"sha256:{digest}")


def _version(name: str, path: Path, scale: float) -> str:
    if name not in STATES:
        return "unknown"
    argument, pattern = STATES[name]
    found = re.search(pattern, output_of([str(path), argument], VERSION_LIMIT * max(scale, 1.0)), re.MULTILINE)
    return found[1] if found else "unknown"


def scheduler_flags(path: Path, scale: float) -> frozenset[str]:
    """Return the names of a HAMi scheduler's command-line flags, without dashes. Raises ClusterUnavailable."""
    text = output_of([str(path), "--help"], VERSION_LIMIT * max(scale, 1.0))
    return frozenset(re.findall(r"^\s+(?:-\w, )?--([\w-]+)", text, re.MULTILINE))
