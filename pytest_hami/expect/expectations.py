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
    """``value`` is what the release does. A deviation also says what is documented, and where it is reported."""

    name: str
    value: Any
    documented: str = ""
    reference: str = ""

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
    result = {}
    for name, raw in document.items():
        if not isinstance(raw, dict) or "value" not in raw or set(raw) - {"value", "documented", "reference"}:
            raise ExpectationError(
                f"{path.name}: {name}: expected value, and documented with reference for a deviation"
            )
        if bool(raw.get("documented")) != bool(raw.get("reference")):
            raise ExpectationError(f"{path.name}: {name}: a deviation needs documented and reference, both")
        result[name] = Expectation(name, raw["value"], raw.get("documented", ""), raw.get("reference", ""))
    return result
