"""A program of HAMi that runs on every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class HamiProgram:
    """The binary and what it needs: the NVML library, the directory of logs and lanes, kubeconfig, device-config.

    ``scale`` multiplies time limits.
    """

    program: Path
    library: Path
    directory: Path
    kubeconfig: Path
    device_config: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HamiProgram:
        """Return the value of these fields with paths as text. Raises TypeError."""
        paths = {key: Path(values[key]) for key in ("program", "library", "directory", "kubeconfig") if key in values}
        return cls(**{**values, **paths})

    def log(self, name: str) -> Path:
        """Return the path of a log."""
        return self.directory / "logs" / f"{name}.log"
