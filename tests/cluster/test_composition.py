"""Which parts of a local cluster are real: what is told of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hami.cluster.base import PartState
from pytest_hami.cluster.composition import Composition, CompositionRefused, Program


def of(*names: str) -> Composition:
    return Composition.of_paths({name: Path("/somewhere") / name for name in names})


def states(composition: Composition) -> dict[str, str]:
    return {part.name: str(part.state) for part in composition.parts("2.10.0")}


def test_nothing_real_is_the_embedded_cluster() -> None:
    composition = Composition()
    assert composition.lane == "simulated"
    assert composition.played == ("apiserver", "hami-scheduler", "kube-scheduler", "node")
    assert states(composition) == {
        "apiserver": "simulated", "kube-scheduler": "simulated", "hami-scheduler": "simulated", "node": "simulated",
        "monitor": "absent", "mesh": "absent", "gpu": "absent",
    }  # fmt: skip


def test_a_program_takes_the_place_of_its_part_alone() -> None:
    composition = of("kube-scheduler", "hami-scheduler")
    assert composition.lane == "process"
    assert composition.played == ("apiserver", "node")
    real = {name for name, state in states(composition).items() if state == "real"}
    assert real == {"kube-scheduler", "hami-scheduler"}


def test_beside_a_real_device_plugin_kubelet_is_ours() -> None:
    composition = of("device-plugin").identified({"device-plugin": Program(Path("/p"), "2.10.0", "sha256:p")})
    assert composition.played == ("apiserver", "hami-scheduler", "kube-scheduler", "node")
    (part,) = (part for part in composition.parts("2.9.0") if part.name == "node")
    told = "2.10.0, on our stand-in for NVML and our kubelet"
    assert (part.state, part.version, part.digest) == (PartState.REAL, told, "sha256:p")
    (part,) = (part for part in of("device-plugin", "nvml").parts("2.9.0") if part.name == "node")
    assert part.version.endswith(", on nvml and our kubelet")


def test_a_real_api_server_has_modelled_controllers_beside_it() -> None:
    composition = of("etcd", "kube-apiserver")
    assert composition.played == ("controllers", "hami-scheduler", "kube-scheduler", "node")
    assert states(composition)["controllers"] == "simulated"
    assert "controllers" not in states(of("kube-scheduler"))


def test_a_part_tells_what_its_programs_said_of_themselves() -> None:
    identified = of("etcd", "kube-apiserver").identified(
        {
            "etcd": Program(Path("/e"), "3.7.3", "sha256:e"),
            "kube-apiserver": Program(Path("/k"), "1.36.3", "sha256:k"),
        }
    )
    (part,) = (part for part in identified.parts("2.10.0") if part.name == "apiserver")
    assert (part.state, part.version, part.digest) == (PartState.REAL, "1.36.3, etcd 3.7.3", "sha256:k")


@pytest.mark.parametrize(
    ("composition", "reason"),
    [
        (of("etcd"), "--hami-assets: etcd without kube-apiserver"),
        (of("kube-apiserver"), "--hami-assets: kube-apiserver without etcd"),
        (of("nvml"), "--hami-nvml: nothing here loads it"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value.programs),
)
def test_what_cannot_work_is_refused_with_the_reason(composition: Composition, reason: str) -> None:
    with pytest.raises(CompositionRefused, match=reason):
        composition.require_possible()


def test_a_defect_of_a_part_that_is_real_is_refused() -> None:
    of("hami-scheduler").require_possible({"lock-kept": "node"})
    with pytest.raises(
        CompositionRefused, match="--hami-mutant: off-by-one is a defect of the simulated HAMi scheduler"
    ):
        of("hami-scheduler").require_possible({"lock-kept": "node", "off-by-one": "hami-scheduler"})
