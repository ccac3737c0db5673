"""Kubernetes' own binaries, built from the Go module proxy at the versions that ``tools/`` pins."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_hami import resources
from pytest_hami.text import one_line

KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
VERSION_PACKAGE = "k8s.io/component-base/version"
GO_LIMIT = 3600.0


class AssetError(Exception):
    """A binary that cannot be built or is not there. The text is one line."""


@dataclass(frozen=True)
class Asset:
    """One binary: the folder in ``tools/`` that holds its go.mod, its module, and its main package."""

    name: str
    folder: str
    module: str
    package: str


ASSETS = (
    Asset("etcd", "etcd", ETCD, ETCD),
    Asset("kube-apiserver", ".", KUBERNETES, f"{KUBERNETES}/cmd/kube-apiserver"),
    Asset("kube-scheduler", ".", KUBERNETES, f"{KUBERNETES}/cmd/kube-scheduler"),
    Asset("kubectl", ".", KUBERNETES, f"{KUBERNETES}/cmd/kubectl"),
)


def pinned_version(asset: Asset, tools: Path) -> str:
    """Return the version of a binary's module, such as ``v1.36.3``. Raises AssetError when go.mod does not pin it."""
    text = (tools / asset.folder / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(asset.module)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise AssetError(f"{tools / asset.folder / 'go.mod'}: expected a requirement of {asset.module}")
    return match[1]


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the binaries of these pins are kept: a folder of the user's cache, named after the pins."""
    tools = resources.data_directory("tools")
    pins = hashlib.sha256()
    for folder in sorted({asset.folder for asset in ASSETS}):
        for name in ("go.mod", "go.sum"):
            pins.update((tools / folder / name).read_bytes())
    return resources.cache_directory(environ) / "assets" / pins.hexdigest()[:12]


def present(folder: Path) -> tuple[Asset, ...]:
    """Return the binaries that are in ``folder`` and can be run."""
    return tuple(asset for asset in ASSETS if os.access(folder / asset.name, os.X_OK))


def find(names: Iterable[str]) -> tuple[Asset, ...]:
    """Return the binaries with these names, all without names. Raises AssetError naming one that does not exist."""
    wanted = tuple(names)
    known = {asset.name: asset for asset in ASSETS}
    for name in wanted:
        if name not in known:
            raise AssetError(f"unknown binary {name!r}; known are {', '.join(known)}")
    return tuple(known[name] for name in wanted) or ASSETS


def build(
    wanted: Iterable[Asset], folder: Path, tell: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> None:
    """Build binaries into ``folder`` unless they are there; ``tell`` hears what is done. Raises AssetError.

    A binary appears whole or not at all, so that a build that was interrupted leaves nothing that looks built.
    """
    tools = resources.data_directory("tools")
    there = {asset.name for asset in present(folder)}
    missing = [asset for asset in wanted if asset.name not in there]
    go = shutil.which("go", path=environ.get("PATH"))
    if missing and go is None:
        raise AssetError(
            f"no Go here to build {', '.join(asset.name for asset in missing)}; install Go (https://go.dev/dl), or name a"
            " directory that has them with --hami-assets"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AssetError(f"{folder}: cannot be made: {error.strerror}") from None
    for asset in missing:
        version = pinned_version(asset, tools)
        tell(f"building {asset.name} {version}; the first time takes minutes")
        _go_build(str(go), asset, version, tools, folder, environ)


def _go_build(go: str, asset: Asset, version: str, tools: Path, folder: Path, environ: Mapping[str, str]) -> None:
    partial = folder / f".{asset.name}.{os.getpid()}"
    command = [go, "build", "-mod=readonly", "-ldflags", _link_flags(asset, version), "-o", str(partial), asset.package]
    try:
        done = subprocess.run(
            command, cwd=tools / asset.folder, capture_output=True, text=True, errors="replace", timeout=GO_LIMIT,
            check=False, stdin=subprocess.DEVNULL, env={**environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        )  # fmt: skip
        if done.returncode != 0:
            last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
            raise AssetError(f"{asset.name} {version}: go build ended with {done.returncode}: {one_line(last, 800)}")
        partial.replace(folder / asset.name)
    except subprocess.TimeoutExpired:
        raise AssetError(f"{asset.name} {version}: go build took more than {GO_LIMIT:.0f} s") from None
    except OSError as error:
        raise AssetError(f"{asset.name} {version}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


def _link_flags(asset: Asset, version: str) -> str:
    if asset.module != KUBERNETES:
        return "-s -w"
    # Without it the server calls itself v0.0.0-master, and clients misjudge what it can do.
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in values.items())])
