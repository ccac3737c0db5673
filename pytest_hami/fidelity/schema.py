"""Says what is wrong with a record, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_hami.fidelity import scenario
from pytest_hami.fidelity.scenario import SchemaError, must

__all__ = ["SchemaError", "check"]
_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "allocate": {"case": str, "fleet": dict, "before": dict, "calls": list},
    "preferred": {"case": str, "fleet": dict, "requests": list},
    "full-chain": {"case": str, "what": str},
    "register": {"case": str, "fleet": dict},
    "lifecycle": {"run": str, "ev": str},
}


def check(kind: str, data: Mapping[str, Any]) -> None:
    """Raise SchemaError with the first field of a record that is not as described."""
    if kind == "scheduler":
        scenario.check_inputs(data)
        scenario.check_observed(data)
    else:
        must(data, "", {field: (wanted,) for field, wanted in _REQUIRED[kind].items()})
