"""HAMi releases and the traits in which they differ.

Source: recordings of the schedulers of 2.8.3, 2.9.0 and 2.10.0 with the same inputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NEWEST = "2.10.0"
_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:[-+].*)?")


class ReleaseError(ValueError):
    """A text that is no release."""


@dataclass(frozen=True, order=True)
class Release:
    """A HAMi release."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Return the release in ``text``. Raises ReleaseError.

        >>> Release.parse("v2.10.0") > Release.parse("2.9.0")
        True
        """
        match = _RELEASE.fullmatch(text)
        if match is None:
            raise ReleaseError(f"expected a release such as 2.10.0, seen {text[:40]!r}")
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True)
class Traits:
    """What differs between releases on the NVIDIA path."""

    release: Release
    positions_kept_for_models: bool
    detailed_reasons: bool
    init_containers_counted: bool
    quota_at_admission: bool
    metric_names: str


def traits(release: Release) -> Traits:
    """Return the traits of a release."""
    since_290 = release >= Release(2, 9, 0)
    since_2100 = release >= Release(2, 10, 0)
    return Traits(
        release=release,
        positions_kept_for_models=not since_2100,
        detailed_reasons=since_2100,
        init_containers_counted=since_290,
        quota_at_admission=since_290,
        metric_names="2.10" if since_2100 else "2.9" if since_290 else "2.8",
    )
