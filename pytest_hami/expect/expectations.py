"""What a release is expected to do where releases differ, as data (``fixtures/expectations/<release>.yaml``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_hami import resources


class ExpectationError(LookupError):
    """An expectation that does not exist or is malformed."""


@dataclass(frozen=True)
class Expectation:
    """``value`` is what the release does. A deviation also says what is documented, and where it is reported.

    ``unsupported`` says why the release cannot be asked at all: it does not promise this.
    """

    name: str
    value: Any = None
    documented: str = ""
    reference: str = ""
    unsupported: str = ""

    @property
    def is_deviation(self) -> bool:
        """Whether the release is known to differ from what HAMi documents."""
        return bool(self.documented)


def load(release: str) -> dict[str, Expectation]:
    """Return the expectations of a release by name. Raises ExpectationError."""
    import yaml

    try:
        path: Path = resources.expectation_file(release)
    except FileNotFoundError as error:
        raise ExpectationError(str(error)) from None
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or not document:
        raise ExpectationError(f"{path.name}: expected a map of expectations by name")
    result = {}
    for name, raw in document.items():
        known = isinstance(raw, dict) and set(raw) <= {"value", "documented", "reference", "unsupported"}
        if not known or ("value" in raw) == ("unsupported" in raw):
            raise ExpectationError(
                f"{path.name}: {name}: expected value, with documented and reference for a deviation, or unsupported"
            )
        if bool(raw.get("documented")) != bool(raw.get("reference")):
            raise ExpectationError(f"{path.name}: {name}: a deviation needs documented and reference, both")
        result[name] = Expectation(name, **raw)
    return result
