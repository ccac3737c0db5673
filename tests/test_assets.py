"""Kubernetes' own binaries: which versions are pinned, where they are kept, and what a failed build leaves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hami import assets, resources

SCRIPT = Path(sys.executable).with_name("pytest-hami")
FAKE_GO = """#!/bin/sh
for last; do :; done
while [ "$1" != -o ]; do shift; done
printf '%s %s %s' "$PWD" "$CGO_ENABLED" "$last" > "$2"
chmod +x "$2"
"""


def program(folder: Path, text: str) -> dict[str, str]:
    """An environment whose only ``go`` is a script with this text."""
    folder.mkdir()
    (folder / "go").write_text(text)
    (folder / "go").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_versions_are_read_from_the_pins() -> None:
    tools = resources.data_directory("tools")
    versions = {asset.name: assets.pinned_version(asset, tools) for asset in assets.ASSETS}
    assert versions["kube-apiserver"] == versions["kube-scheduler"] == versions["kubectl"]
    # The staging modules of v1.N.M are v0.N.M; another number would link parts of two releases.
    staging = versions["kubectl"].replace("v1.", "v0.")
    replaced = [line.split()[-1] for line in (tools / "go.mod").read_text().splitlines() if "=> k8s.io/" in line]
    assert len(replaced) > 30
    assert set(replaced) == {staging}
    assert versions["etcd"].startswith("v3.")


def test_each_binary_is_a_tool_of_its_module() -> None:
    tools = resources.data_directory("tools")
    for asset in assets.ASSETS:
        text = (tools / asset.folder / "go.mod").read_text()
        assert f"\ntool {asset.package}\n" in text or f"\n\t{asset.package}\n" in text


def test_a_build_runs_go_once_for_each_missing_binary(tmp_path: Path) -> None:
    environ = program(tmp_path / "path", FAKE_GO)
    told: list[str] = []
    wanted = assets.find(["etcd", "kube-scheduler"])
    assets.build(wanted, tmp_path / "out", told.append, environ)
    assert [text.split()[1] for text in told] == ["etcd", "kube-scheduler"]
    tools = resources.data_directory("tools")
    assert (tmp_path / "out" / "etcd").read_text() == f"{tools / 'etcd'} 0 go.etcd.io/etcd/server/v3"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["etcd", "kube-scheduler"]
    assert assets.present(tmp_path / "out") == wanted
    assets.build(wanted, tmp_path / "out", told.append, {"PATH": "/nowhere"})
    assert len(told) == 2


def test_the_version_is_linked_into_kubernetes_only(tmp_path: Path) -> None:
    environ = program(
        tmp_path / "path", '#!/bin/sh\nprintf "%s\\n" "$@" > "$0.arguments"\n' + FAKE_GO.partition("\n")[2]
    )
    linked = {}
    for name in ("etcd", "kube-apiserver"):
        assets.build(assets.find([name]), tmp_path / "out", lambda text: None, environ)
        linked[name] = (tmp_path / "path" / "go.arguments").read_text()
    version = assets.pinned_version(*assets.find(["kubectl"]), resources.data_directory("tools"))
    assert f"version.gitVersion={version}" in linked["kube-apiserver"]
    assert "gitVersion" not in linked["etcd"]


def test_a_failed_build_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    environ = program(tmp_path / "path", "#!/bin/sh\necho first >&2; echo 'no such module' >&2; exit 3\n")
    with pytest.raises(assets.AssetError, match=r"etcd v3\S+: go build ended with 3: first \| no such module") as seen:
        assets.build(assets.find(["etcd"]), tmp_path / "out", lambda text: None, environ)
    assert "\n" not in str(seen.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_without_go_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(assets.AssetError, match=r"no Go here to build etcd; install Go .* --hami-assets"):
        assets.build(assets.find(["etcd"]), tmp_path, lambda text: None, {"PATH": "/nowhere"})


def test_other_pins_have_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = assets.directory({"XDG_CACHE_HOME": str(tmp_path)})
    assert here.parent == tmp_path / "pytest-hami" / "assets"
    copy = shutil.copytree(resources.data_directory("tools"), tmp_path / "tools")
    monkeypatch.setattr(resources, "data_directory", lambda name: copy)
    assert assets.directory({"XDG_CACHE_HOME": str(tmp_path)}) == here
    (copy / "etcd" / "go.sum").write_text("")
    assert assets.directory({"XDG_CACHE_HOME": str(tmp_path)}) != here


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["build", "kubelet"], 4, "unknown binary 'kubelet'; known are etcd"),
        (["path"], 6, "build them: pytest-hami assets build"),
        (["build", "etcd", "--directory", "/proc/nowhere"], 6, "/proc/nowhere: cannot be made"),
    ],
)
def test_what_a_person_sees(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    go = program(tmp_path / "path", FAKE_GO)
    done = subprocess.run(
        [SCRIPT, "assets", *arguments], capture_output=True, text=True, timeout=60, check=False,
        env={"XDG_CACHE_HOME": str(tmp_path / "cache"), **go},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
