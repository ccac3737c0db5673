"""What a run faces: the programs behind its parts, and the HAMi release that they are held against."""

from __future__ import annotations

from pathlib import Path

from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.programs import scheduler_flags
from pytest_hami.contract import releases
from pytest_hami.contract.releases import Faced, Release
from pytest_hami.settings import Settings, assets_in


def composition(settings: Settings) -> Composition:
    """Return the programs that the settings name, not yet asked what they are."""
    named = {"hami-scheduler": "scheduler", "device-plugin": "device-plugin", "monitor": "monitor", "nvml": "nvml"}
    paths = {program: settings[name] for program, name in named.items() if settings[name]}
    if settings["assets"]:
        paths |= assets_in(settings["assets"])
    return Composition.of_paths({program: Path(path).resolve() for program, path in paths.items()})


def faced(settings: Settings, parts: Composition) -> Faced:
    """Return the release that the parts, asked before what they are, are held against. Raises ClusterUnavailable."""
    scheduler = parts.hami_scheduler
    if settings.source("release") != "default":
        return Faced(Release.parse(settings["release"]), f"as {settings.place('release')} asks")
    if scheduler is None:
        return Faced(Release.parse(settings["release"]), "which simulated parts play")
    unstated = not releases.is_stated(scheduler.version)
    return releases.faced(
        scheduler.version, scheduler_flags(scheduler.path, settings.timeout_scale) if unstated else ()
    )
