"""Settings: option, then environment, then ini, then default; each knows its source (standard library and pytest)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

CLEANUP_MODES = ("always", "on-success", "never")
PROVIDERS = ("local",)
# Refused by name, so that nobody takes a misspelling for a missing feature.
PLANNED_PROVIDERS = ("node", "kind", "existing")
PROGRAMS = ("scheduler", "device-plugin", "monitor")
API_SERVER = ("etcd", "kube-apiserver")
KUBE_SCHEDULER = "kube-scheduler"
_RUN_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Setting:
    """One value and where it came from: ``option``, ``environment``, ``ini`` or ``default``.

    ``place`` is the option, variable or ini key itself.
    """

    name: str
    value: str
    source: str
    place: str


@dataclass(frozen=True)
class _Declared:
    name: str
    default: str
    metavar: str
    help: str
    # Variables of other tools, asked after our own.
    variables: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        return f"--hami-{self.name}"

    @property
    def dest(self) -> str:
        return "hami_" + self.name.replace("-", "_")

    @property
    def environment(self) -> tuple[str, ...]:
        return ("HAMI_" + self.name.replace("-", "_").upper(), *self.variables)


DECLARED = (
    _Declared("cluster", "local", "PROVIDER", "what the checks talk to: local (kind, node and existing are planned)"),
    _Declared(
        "assets",
        "",
        "DIR",
        "directory of etcd, kube-apiserver and kube-scheduler that take the place of the simulated ones",
        ("KUBEBUILDER_ASSETS",),
    ),
    _Declared("scheduler", "", "PATH", "a HAMi scheduler binary that takes the place of the simulated one"),
    _Declared("device-plugin", "", "PATH", "a HAMi device plugin binary that takes the place of the simulated one"),
    _Declared("monitor", "", "PATH", "a HAMi monitor (vGPUmonitor) binary"),
    _Declared("nvml", "", "PATH", "the libnvidia-ml.so.1 that device plugin and monitor load"),
    _Declared("release", "2.10.0", "X.Y.Z", "HAMi release that simulated parts play"),
    _Declared("fleet", "", "NAME|FILE", "fleet to use where its shape covers what a check declares"),
    _Declared("report", "hami-report", "DIR", "directory of the conformance report"),
    _Declared("cleanup", "always", "|".join(CLEANUP_MODES), "when to remove what a test created"),
    _Declared("run-id", "", "ID", "name of this run, carried by everything that it creates (default: random)"),
    _Declared("repeat", "1", "N", "run each check N times to measure flakiness"),
    _Declared("timeout-scale", "1.0", "FACTOR", "multiply every time limit"),
    _Declared("mutant", "", "NAME[,NAME]", "switch deliberate HAMi defects on in simulated parts"),
)


@dataclass(frozen=True)
class Settings:
    """All settings of a run, resolved and checked."""

    items: tuple[Setting, ...]

    def __getitem__(self, name: str) -> str:
        return next(item.value for item in self.items if item.name == name)

    def source(self, name: str) -> str:
        """Return where the value of ``name`` came from."""
        return next(item.source for item in self.items if item.name == name)

    def place(self, name: str) -> str:
        """Return the option, variable or key that gave the value of ``name``."""
        return next(item.place for item in self.items if item.name == name)

    def require_sound(self, sources: Collection[str] = ("option", "environment", "ini", "default")) -> None:
        """Check the values from these sources. Raises pytest.UsageError (exit code 4) with one line."""
        for declared in DECLARED:
            setting = next(item for item in self.items if item.name == declared.name)
            wrong = complaint(setting) if setting.source in sources else ""
            if wrong:
                raise pytest.UsageError(f"{setting.place}: {wrong}")

    @property
    def repeat(self) -> int:
        """How often each check runs."""
        # Asked while tests are collected, so before a value from the environment is judged.
        return int(self["repeat"]) if not _complaint("repeat", self["repeat"], self.source("repeat")) else 1

    @property
    def timeout_scale(self) -> float:
        """Factor on every time limit."""
        return float(self["timeout-scale"])

    @property
    def mutants(self) -> tuple[str, ...]:
        """Names of the mutants that are switched on."""
        return tuple(name.strip() for name in self["mutant"].split(",") if name.strip())


def add_options(parser: pytest.Parser) -> None:
    """Register every ``--hami-*`` option and ``hami_*`` ini key."""
    group = parser.getgroup("hami", "HAMi conformance")
    for declared in DECLARED:
        variables = " or ".join(declared.environment)
        group.addoption(
            declared.option, dest=declared.dest, default=None, metavar=declared.metavar,
            help=f"{declared.help} [env {variables}, ini {declared.dest}; default {declared.default or '-'}]",
        )  # fmt: skip
        parser.addini(declared.dest, declared.help, default="")
    group.addoption("--hami-list", action="store_true", help="list the selected checks and what they need, run nothing")
    group.addoption("--hami-list-mutants", action="store_true", help="list the mutants, one name a line, and exit")
    group.addoption("--hami-allow-changed", action="store_true", help="a known deviation that is gone does not fail")
    group.addoption(
        "--hami-allow-inconclusive", action="store_true", help="an inconclusive check does not fail the run"
    )


def resolve(config: pytest.Config, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this run. Raises pytest.UsageError (exit code 4) with one line for a bad value."""
    items = []
    for declared in DECLARED:
        given: Any = config.getoption(declared.dest)
        ini = str(config.getini(declared.dest) or "")
        found = _in_environment(declared, environ)
        if given is not None:
            setting = Setting(declared.name, str(given), "option", declared.option)
        elif found is not None:
            setting = found
        elif ini:
            setting = Setting(declared.name, ini, "ini", f"ini key {declared.dest}")
        else:
            setting = Setting(declared.name, declared.default, "default", declared.option)
        items.append(setting)
    settings = Settings(tuple(items))
    # What was typed for this run is judged at once; what lies about in the environment only where HAMi is under test.
    settings.require_sound({"option"})
    return settings


def of_environment(environ: Mapping[str, str] = os.environ) -> dict[str, Setting]:
    """Return the settings that the environment gives, by name; nothing is checked."""
    found = (_in_environment(declared, environ) for declared in DECLARED)
    return {setting.name: setting for setting in found if setting is not None}


def complaint(setting: Setting) -> str:
    """Return what is wrong with a value, empty when nothing is."""
    return _complaint(setting.name, setting.value, setting.source)


def _in_environment(declared: _Declared, environ: Mapping[str, str]) -> Setting | None:
    variable = next((name for name in declared.environment if environ.get(name)), "")
    return Setting(declared.name, environ[variable], "environment", variable) if variable else None


def _complaint(name: str, value: str, source: str) -> str:
    if name == "mutant" and source == "option" and not all(part.strip() for part in value.split(",")):
        return f"expected names separated by commas, got {value!r}"
    if name == "cluster" and value in PLANNED_PROVIDERS:
        return f"provider {value!r} is planned and not there yet; this version knows: {', '.join(PROVIDERS)}"
    if name == "cluster" and value not in PROVIDERS:
        return f"unknown provider {value!r}; this version knows: {', '.join(PROVIDERS)}"
    if name in PROGRAMS and value:
        return _no_program(value)
    if name == "nvml" and value and not os.path.isfile(value):
        return f"no such file: {value!r}"
    if name == "assets" and value:
        return _no_assets(value)
    if name == "cleanup" and value not in CLEANUP_MODES:
        return f"expected one of {', '.join(CLEANUP_MODES)}, got {value!r}"
    if name == "repeat" and not (value.isascii() and value.isdigit() and 1 <= int(value) <= 10_000):
        return f"expected a whole number from 1 to 10000, got {value!r}"
    if name == "run-id" and value and not _RUN_ID.fullmatch(value):
        return f"expected up to 40 lower-case letters, digits and dashes, got {value[:60]!r}"
    if name == "report" and not value.strip():
        return "expected a directory, got an empty text"
    if name == "timeout-scale":
        try:
            scale = float(value)
        except ValueError:
            return f"expected a number, got {value!r}"
        if not 0 < scale <= 1000:
            return f"expected a number above 0 and up to 1000, got {value!r}"
    return ""


def assets_in(directory: str) -> dict[str, str]:
    """Return the paths of Kubernetes' own programs in a directory by name: ``etcd``, ``kube-apiserver``, ``kube-scheduler``."""
    paths = {name: os.path.join(directory, name) for name in (*API_SERVER, KUBE_SCHEDULER)}
    return {name: path for name, path in paths.items() if os.path.lexists(path)}


def _no_program(path: str) -> str:
    if not os.path.isfile(path):
        return f"no such file: {path!r}"
    return "" if os.access(path, os.X_OK) else f"not executable: {path!r}"


def _no_assets(directory: str) -> str:
    if not os.path.isdir(directory):
        return f"no such directory: {directory!r}"
    found = assets_in(directory)
    missing = [name for name in API_SERVER if name not in found]
    # kube-scheduler alone is at home beside the simulated API server too.
    if missing and list(found) != [KUBE_SCHEDULER]:
        return (
            f"no {' and no '.join(missing)} in {directory!r}; expected {' and '.join(API_SERVER)}, "
            f"with {KUBE_SCHEDULER} where that is to be real too, or {KUBE_SCHEDULER} alone"
        )
    return "; ".join(filter(None, map(_no_program, found.values())))
