"""Says what is wrong with a record, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "scheduler": {"id": str, "kind": str, "fleet": list, "steps": list, "metrics": dict},
    "allocate": {"case": str, "fleet": dict, "before": dict, "calls": list},
    "preferred": {"case": str, "fleet": dict, "requests": list},
    "full-chain": {"case": str, "what": str},
    "register": {"case": str, "fleet": dict},
    "lifecycle": {"run": str, "ev": str},
}


class SchemaError(ValueError):
    """A record that misses a field or holds something else there."""


def check(kind: str, data: Mapping[str, Any]) -> None:
    """Raise SchemaError with the first field of a record that is not as described."""
    for field, wanted in _REQUIRED[kind].items():
        if not isinstance(data.get(field), wanted):
            seen = type(data[field]).__name__ if field in data else "nothing"
            raise SchemaError(f"field {field}: expected {wanted.__name__}, seen {seen}")
