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
_RUN_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Setting:
    """One value and where it came from: ``option``, ``environment``, ``ini`` or ``default``."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class _Declared:
    name: str
    default: str
    metavar: str
    help: str

    @property
    def option(self) -> str:
        return f"--hami-{self.name}"

    @property
    def dest(self) -> str:
        return "hami_" + self.name.replace("-", "_")

    @property
    def environment(self) -> str:
        return "HAMI_" + self.name.replace("-", "_").upper()


DECLARED = (
    _Declared("cluster", "local", "PROVIDER", "what the checks talk to: local (kind, node and existing are planned)"),
    _Declared("scheduler", "", "PATH", "a HAMi scheduler binary that takes the place of the simulated one"),
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

    def require_sound(self, sources: Collection[str] = ("option", "environment", "ini", "default")) -> None:
        """Check the values from these sources. Raises pytest.UsageError (exit code 4) with one line."""
        for declared in DECLARED:
            source = self.source(declared.name)
            complaint = _complaint(declared.name, self[declared.name], source) if source in sources else ""
            if complaint:
                place = {
                    "option": declared.option, "environment": declared.environment, "ini": f"ini key {declared.dest}",
                    "default": declared.option,
                }[source]  # fmt: skip
                raise pytest.UsageError(f"{place}: {complaint}")

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
        group.addoption(
            declared.option, dest=declared.dest, default=None, metavar=declared.metavar,
            help=f"{declared.help} [env {declared.environment}, ini {declared.dest}; default {declared.default or '-'}]",
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
        if given is not None:
            setting = Setting(declared.name, str(given), "option")
        elif environ.get(declared.environment):
            setting = Setting(declared.name, environ[declared.environment], "environment")
        elif ini:
            setting = Setting(declared.name, ini, "ini")
        else:
            setting = Setting(declared.name, declared.default, "default")
        items.append(setting)
    settings = Settings(tuple(items))
    # What was typed for this run is judged at once; what lies about in the environment only where HAMi is under test.
    settings.require_sound({"option"})
    return settings


def _complaint(name: str, value: str, source: str) -> str:
    if name == "mutant" and source == "option" and not all(part.strip() for part in value.split(",")):
        return f"expected names separated by commas, got {value!r}"
    if name == "cluster" and value in PLANNED_PROVIDERS:
        return f"provider {value!r} is planned and not there yet; this version knows: {', '.join(PROVIDERS)}"
    if name == "cluster" and value not in PROVIDERS:
        return f"unknown provider {value!r}; this version knows: {', '.join(PROVIDERS)}"
    if name == "scheduler" and value and not os.path.isfile(value):
        return f"no such file: {value!r}"
    if name == "scheduler" and value and not os.access(value, os.X_OK):
        return f"not executable: {value!r}"
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
