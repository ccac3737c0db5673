"""``pytest-hami doctor`` with programs that only state a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hami import assets
from pytest_hami.cli import main
from pytest_hami.doctor import Diagnosis, diagnose

STATED = {
    "etcd": "etcd Version: 3.7.3", "kube-apiserver": "Kubernetes v1.36.3", "kube-scheduler": "Kubernetes v1.36.3",
    "scheduler": "version:   v2.10.0",
}  # fmt: skip


def program(path: Path, text: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{STATED[path.name] if text is None else text}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}


def of(diagnoses: tuple[Diagnosis, ...]) -> dict[str, Diagnosis]:
    return {diagnosis.kind.part: diagnosis for diagnosis in diagnoses}


def test_nothing_found_names_every_remedy(environ: dict[str, str], tmp_path: Path) -> None:
    diagnoses = of(diagnose(environ, tmp_path))
    assert list(diagnoses) == ["apiserver", "kube-scheduler", "hami-scheduler", "node", "monitor"]
    assert all((one.chosen, one.found) == ("", ()) for one in diagnoses.values())
    assert diagnoses["apiserver"].hint.startswith("pytest-hami assets build")
    assert diagnoses["hami-scheduler"].hint == (
        "make scheduler in a HAMi checkout, then --hami-scheduler=bin/scheduler"
    )


def test_what_was_built_is_offered(environ: dict[str, str], tmp_path: Path) -> None:
    built = assets.directory(environ)
    program(built / "etcd")
    diagnoses = of(diagnose(environ, tmp_path))
    assert diagnoses["apiserver"].hint.startswith("pytest-hami assets build")
    program(built / "kube-apiserver")
    binary = program(tmp_path / "bin" / "scheduler")
    diagnoses = of(diagnose(environ, tmp_path))
    assert [(one.name, one.version) for one in diagnoses["apiserver"].found] == [
        ("etcd", "3.7.3"), ("kube-apiserver", "1.36.3"),
    ]  # fmt: skip
    assert diagnoses["apiserver"].hint == f"--hami-assets={built}"
    assert diagnoses["hami-scheduler"].hint == f"--hami-scheduler={binary}"
    assert not diagnoses["hami-scheduler"].broken


def test_what_is_chosen_is_real_or_says_why_not(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    program(folder / "kube-scheduler")
    environ |= {"KUBEBUILDER_ASSETS": str(folder), "HAMI_SCHEDULER": str(tmp_path / "nothing")}
    diagnoses = of(diagnose(environ, tmp_path))
    assert diagnoses["kube-scheduler"].chosen == "KUBEBUILDER_ASSETS"
    assert diagnoses["kube-scheduler"].found[0].version == "1.36.3"
    assert diagnoses["apiserver"].chosen == ""
    assert diagnoses["hami-scheduler"].broken
    assert "no such file" in diagnoses["hami-scheduler"].found[0].problem
    broken = tmp_path / "bin" / "scheduler"
    program(broken).write_text("#!/bin/sh\necho lost library >&2\nexit 127\n")
    environ["HAMI_SCHEDULER"] = str(broken)
    assert "127: lost library" in of(diagnose(environ, tmp_path))["hami-scheduler"].found[0].problem


def test_what_a_person_reads(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HAMI_SCHEDULER", str(program(tmp_path / "bin" / "scheduler")))
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "hami-scheduler: real (HAMI_SCHEDULER)\n  hami-scheduler: 2.10.0 " in shown
    assert "kube-scheduler: simulated\n  not found: kube-scheduler\n  a real one adds: queueing" in shown
    assert "monitor: absent\n" in shown
    monkeypatch.setenv("HAMI_MONITOR", "/nowhere")
    assert main(["doctor"]) == 4
    assert "monitor: unusable (HAMI_MONITOR)\n  monitor: no such file: '/nowhere'" in capsys.readouterr().out


def test_what_a_device_plugin_needs_of_the_machine(environ: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nvidia-device-plugin", "NVIDIA Device Plugin version: v2.10.0")
    node = of(diagnose({**environ, "PATH": str(tmp_path)}, tmp_path))["node"]
    assert [(one.name, one.version) for one in node.found] == [("device-plugin", "2.10.0")]
    assert any(lack.startswith("a C compiler for our NVML stand-in") for lack in node.lacks)
    (tmp_path / "library").touch()
    named = {**environ, "PATH": str(tmp_path), "HAMI_NVML": str(tmp_path / "library")}
    assert not any("C compiler" in lack for lack in of(diagnose(named, tmp_path))["node"].lacks)
