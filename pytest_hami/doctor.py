"""Which parts of a local cluster could be real here: what was found, what it adds, and how to get what is missing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_hami import assets, settings
from pytest_hami.cluster.base import ClusterUnavailable
from pytest_hami.cluster.composition import Program
from pytest_hami.cluster.programs import identify
from pytest_hami.kubelet import lane as lanes
from pytest_hami.kubelet.lane import Lane

BUILD_ASSETS = "pytest-hami assets build, then --hami-assets=$(pytest-hami assets path)"


@dataclass(frozen=True)
class Kind:
    """A part that can be real: its programs, the setting that names them, what real ones add, and how to get them.

    ``usual`` is where HAMi's own Makefile (v2.10.0) puts the binary, seen from its checkout.
    """

    part: str
    programs: tuple[str, ...]
    setting: str
    adds: str
    remedy: str
    usual: str = ""


KINDS = (
    Kind(
        "apiserver", ("etcd", "kube-apiserver"), "assets",
        "validation, admission and watch semantics of Kubernetes itself", BUILD_ASSETS,
    ),
    Kind("kube-scheduler", ("kube-scheduler",), "assets", "queueing, events and preemption of Kubernetes itself", BUILD_ASSETS),
    Kind(
        "hami-scheduler", ("hami-scheduler",), "scheduler",
        "evidence about HAMi: webhook, filter, choice, bind, accounting, events, metrics",
        "make scheduler in a HAMi checkout, then --hami-scheduler=bin/scheduler", "bin/scheduler",
    ),
    Kind(
        "node", ("device-plugin",), "device-plugin",
        "evidence about HAMi: registration, Allocate, variables, mounts, phases, lock, what a container gets",
        "make nvidia in a HAMi checkout, then --hami-device-plugin=bin/nvidia-device-plugin",
        "bin/nvidia-device-plugin",
    ),
    Kind(
        "monitor", ("monitor",), "monitor", "evidence about HAMi: the monitor's metrics",
        "make vGPUmonitor in a HAMi checkout, then --hami-monitor=bin/vGPUmonitor", "bin/vGPUmonitor",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A program that was looked at; ``problem`` says why it cannot be used, empty when it can."""

    name: str
    path: Path
    version: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What a part would be in a run that is started now.

    ``chosen`` is the variable that makes it real, empty where it is not; ``found`` are the programs of that place, or
    those that could be chosen; ``hint`` is what to do next, empty where nothing is to be done; ``lacks`` is what the
    host would need besides, each with its remedy.
    """

    kind: Kind
    chosen: str
    found: tuple[Found, ...]
    hint: str
    lacks: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether a run would refuse what was chosen."""
        return bool(self.chosen) and any(found.problem for found in self.found)


def diagnose(environ: Mapping[str, str], here: Path) -> tuple[Diagnosis, ...]:
    """Return one diagnosis for each part; ``here`` is the directory in which HAMi may have been built."""
    given = settings.of_environment(environ)
    return tuple(_diagnose(kind, given.get(kind.setting), environ, here) for kind in KINDS)


def _diagnose(kind: Kind, given: settings.Setting | None, environ: Mapping[str, str], here: Path) -> Diagnosis:
    lacks = tuple(_lacks(kind, environ))
    if given is not None and not (kind.setting == "assets" and _only_others(kind, Path(given.value))):
        problem = settings.complaint(given)
        paths = _paths(kind, Path(given.value))
        if problem:
            return Diagnosis(kind, given.place, (Found(kind.programs[-1], Path(given.value), "", problem),), "", lacks)
        return Diagnosis(kind, given.place, tuple(_look_at(name, path) for name, path in paths.items()), "", lacks)
    built = assets.directory(environ) if kind.setting == "assets" else here / kind.usual
    paths = {name: path for name, path in _paths(kind, built).items() if path.is_file()}
    found = tuple(_look_at(name, path) for name, path in paths.items())
    ready = len(found) == len(kind.programs) and not any(one.problem for one in found)
    hint = f"--hami-{kind.setting}={built}" if ready else kind.remedy
    return Diagnosis(kind, "", found, hint, lacks)


def _only_others(kind: Kind, folder: Path) -> bool:
    return folder.is_dir() and not any((folder / name).exists() for name in kind.programs)


def _paths(kind: Kind, place: Path) -> dict[str, Path]:
    return {name: place / name if kind.setting == "assets" else place for name in kind.programs}


def _look_at(name: str, path: Path) -> Found:
    try:
        program: Program = identify(name, path, 1.0)
    except ClusterUnavailable as error:
        return Found(name, path, "", str(error))
    return Found(name, path, program.version)


def _lacks(kind: Kind, environ: Mapping[str, str]) -> Iterator[str]:
    path = environ.get("PATH")
    if kind.setting == "assets" and shutil.which("go", path=path) is None:
        yield "Go, to build them (https://go.dev/dl)"
    if kind.part == "node" and not (find_spec("grpc") and find_spec("google.protobuf")):
        yield "grpcio and protobuf: pip install pytest-hami[real]"
    if kind.part in {"node", "monitor"}:
        if shutil.which("cc", path=path) is None and "nvml" not in settings.of_environment(environ):
            yield "a C compiler for our NVML stand-in: Debian's gcc, or name a library with --hami-nvml"
        with tempfile.TemporaryDirectory() as directory:
            problem = lanes.complaint(Lane(Path(directory)))
        if problem:
            yield problem
