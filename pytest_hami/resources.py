"""Finds fixtures/ and manifests/ in a checkout, an editable install and a wheel, and the place for what is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_directory(name: str) -> Path:
    """Return the directory of shipped data called ``name`` (``fixtures``, ``manifests``, ``tools``).

    A wheel keeps it under ``pytest_hami/_data``, a checkout beside the package. Raises FileNotFoundError naming both.
    """
    places = (_PACKAGE / "_data" / name, _PACKAGE.parent / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"no {name}/ directory: looked in {places[0]} and {places[1]}; reinstall pytest-hami")


def fleet_files() -> dict[str, Path]:
    """Return the shipped fleets by name."""
    return {path.stem: path for path in sorted((data_directory("fixtures") / "fleets").glob("*.yaml"))}


def expectation_file(release: str) -> Path:
    """Return the expectations for a HAMi release. Raises FileNotFoundError naming the releases that exist."""
    folder = data_directory("fixtures") / "expectations"
    path = folder / f"{release}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) or "none"
        raise FileNotFoundError(f"no expectations for HAMi {release}: recorded releases are {known}")
    return path


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return where what was built for this user is kept: ``pytest-hami`` in the user's cache (XDG base directories)."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".cache")
    return Path(cache) / "pytest-hami"
