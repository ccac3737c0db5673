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
    # What is simulated plays the release of what is real; the scheduler, which most checks are about, has the first word.
    stated = next(filter(None, (parts.hami_scheduler, parts.device_plugin, parts.monitor)), None)
    if settings.source("release") != "default":
        return Faced(Release.parse(settings["release"]), f"as {settings.place('release')} asks")
    if stated is None:
        return Faced(Release.parse(settings["release"]), "which simulated parts play")
    if stated is parts.hami_scheduler and not releases.is_stated(stated.version):
        return releases.faced(stated.version, scheduler_flags(stated.path, settings.timeout_scale))
    return releases.faced(stated.version, ())
