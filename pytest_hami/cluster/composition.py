"""Which parts of a local cluster are real, as one value: what stands behind each part, and what cannot work."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_hami import __version__
from pytest_hami.cluster.base import Part, PartState

# The parts that the simulator can play, in the order in which they start.
PLAYED = ("apiserver", "hami-scheduler", "kube-scheduler", "node")
# What kube-controller-manager does is part of the simulated API server, and modelled beside a real one.
CONTROLLERS = "controllers"
# Which part of a cluster each program belongs to, and the option that names it; a library is no part.
PART_OF = {
    "etcd": "apiserver", "kube-apiserver": "apiserver", "kube-scheduler": "kube-scheduler",
    "hami-scheduler": "hami-scheduler", "device-plugin": "node", "monitor": "monitor",
}  # fmt: skip
OPTION_OF = {
    "etcd": "--hami-assets", "kube-apiserver": "--hami-assets", "kube-scheduler": "--hami-assets",
    "hami-scheduler": "--hami-scheduler", "device-plugin": "--hami-device-plugin", "monitor": "--hami-monitor",
    "nvml": "--hami-nvml",
}  # fmt: skip


class CompositionRefused(ValueError):
    """Parts that cannot work together; the text is one line with the reason."""


@dataclass(frozen=True)
class Program:
    """A file that stands behind a part, with the version that it states and the digest of its content."""

    path: Path
    version: str = ""
    digest: str | None = None


@dataclass(frozen=True)
class Composition:
    """The programs that make parts real; a part without any is simulated, or absent where nobody plays it.

    The field of a program is its name with underscores: ``etcd``, ``kube_apiserver``, ``kube_scheduler``,
    ``hami_scheduler``, ``device_plugin``, ``monitor``, and ``nvml``, the library that the last two load.
    """

    etcd: Program | None = None
    kube_apiserver: Program | None = None
    kube_scheduler: Program | None = None
    hami_scheduler: Program | None = None
    device_plugin: Program | None = None
    monitor: Program | None = None
    nvml: Program | None = None

    @classmethod
    def of_paths(cls, paths: Mapping[str, Path]) -> Composition:
        """Return the composition of these files by program name, such as ``kube-scheduler``."""
        return cls(**{name.replace("-", "_"): Program(path) for name, path in paths.items()})

    @property
    def programs(self) -> dict[str, Program]:
        """The programs by name, in the order in which they start."""
        found = ((field.name.replace("_", "-"), getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: program for name, program in found if program is not None}

    def identified(self, programs: Mapping[str, Program]) -> Composition:
        """Return the composition with what was found out about its programs."""
        return dataclasses.replace(self, **{name.replace("-", "_"): program for name, program in programs.items()})

    def require_possible(self, mutants: Mapping[str, str] | None = None) -> None:
        """Raise CompositionRefused for what cannot work; ``mutants`` are the parts that play defects, by name."""
        for reason in self._refusals(mutants or {}):
            raise CompositionRefused(reason)

    def _refusals(self, mutants: Mapping[str, str]) -> Iterator[str]:
        if (self.etcd is None) != (self.kube_apiserver is None):
            there, missing = ("etcd", "kube-apiserver") if self.etcd else ("kube-apiserver", "etcd")
            yield f"--hami-assets: {there} without {missing}: neither serves without the other"
        for name, part in mutants.items():
            found = next((program for program in self.programs if PART_OF.get(program) == part), "")
            if found:
                label = "HAMi scheduler" if part == "hami-scheduler" else part
                yield (
                    f"--hami-mutant: {name} is a defect of the simulated {label}, and {OPTION_OF[found]} takes its place"
                )
        if self.nvml is not None and not (self.device_plugin or self.monitor):
            yield "--hami-nvml: nothing here loads it; name what does with --hami-device-plugin or --hami-monitor"

    def is_real(self, part: str) -> bool:
        """Return whether any program stands behind a part."""
        return any(PART_OF.get(name) == part for name in self.programs)

    @property
    def played(self) -> tuple[str, ...]:
        """The parts that the simulator plays, in the order in which they start."""
        beside = (CONTROLLERS,) if self.is_real("apiserver") else ()
        # Beside a real device plugin kubelet is still ours.
        return beside + tuple(part for part in PLAYED if part == "node" or not self.is_real(part))

    @property
    def lane(self) -> str:
        """``simulated`` or, as soon as one part is real, ``process``."""
        return "process" if self.programs else "simulated"

    def parts(self, release: str) -> tuple[Part, ...]:
        """Return the parts of a local cluster whose simulated HAMi parts play ``release``."""
        ours = f"pytest-hami {__version__}"
        return (
            self._part("apiserver", ours),
            *([Part(CONTROLLERS, PartState.SIMULATED, ours)] if self.is_real("apiserver") else ()),
            self._part("kube-scheduler", ours),
            self._part("hami-scheduler", f"plays {release}"),
            self._part("node", f"plays {release}"),
            self._part("monitor", ""),
            Part("mesh", PartState.ABSENT),
            Part("gpu", PartState.ABSENT),
        )

    def _part(self, name: str, simulated: str) -> Part:
        behind = {program: found for program, found in self.programs.items() if PART_OF.get(program) == name}
        if not behind:
            state = PartState.SIMULATED if simulated else PartState.ABSENT
            return Part(name, state, simulated)
        # The last one is what the part is named after; what it stands on is told beside it.
        main, *others = reversed(behind)
        version = ", ".join([behind[main].version, *(f"{other} {behind[other].version}" for other in others)])
        if name in {"node", "monitor"}:
            version += f", on {self.nvml.path.name if self.nvml else 'our stand-in for NVML'}"
        if name == "node":
            version += " and our kubelet"
        return Part(name, PartState.REAL, version, behind[main].digest)
