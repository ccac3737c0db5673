"""What every group of rules rests on."""

from __future__ import annotations

from pytest_hami.contract.releases import NEWEST, Release, Traits, traits


class ReleaseRules:
    """Decides as one release of HAMi, the newest unless told otherwise."""

    def __init__(self, of: Traits | None = None) -> None:
        self.traits = of or traits(Release.parse(NEWEST))


def tokens(text: str) -> list[str]:
    """Return the entries of a comma list, blanks and empty entries dropped.

    >>> tokens(" a, ,b")
    ['a', 'b']
    """
    return [token for piece in text.split(",") if (token := piece.strip())]
