"""A place for HAMi's programs on nodes, and programs of a few lines to run there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_hami.kubelet import lane as lanes
from pytest_hami.kubelet.lane import Lane
from pytest_hami.kubelet.program import HamiProgram


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory with a kubeconfig; its path is short, for the sockets in it. Skips by name where no lane is allowed."""
    with tempfile.TemporaryDirectory() as path:
        problem = lanes.complaint(Lane(Path(path) / "try"))
        if problem:
            pytest.skip(problem)
        (Path(path) / "logs").mkdir()
        (Path(path) / "library").touch()
        (Path(path) / "ca.crt").write_text("certificate")
        cluster = {"server": "https://127.0.0.1:1", "certificate-authority": f"{path}/ca.crt"}
        kubeconfig = {"clusters": [{"name": "hami", "cluster": cluster}]}
        (Path(path) / "kubeconfig").write_text(json.dumps(kubeconfig))
        yield Path(path)


@pytest.fixture
def scripted(workspace: Path) -> Callable[..., HamiProgram]:
    """Make the program of a script."""

    def make(text: str, scale: float = 1.0) -> HamiProgram:
        program = workspace / "program"
        program.write_text(text)
        program.chmod(0o755)
        values = {
            "program": str(program), "library": str(workspace / "library"), "directory": str(workspace),
            "kubeconfig": str(workspace / "kubeconfig"), "device_config": {"deviceSplitCount": 10}, "scale": scale,
        }  # fmt: skip
        return HamiProgram.from_dict(values)

    return make
