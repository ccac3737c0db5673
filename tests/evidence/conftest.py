"""Loads the recorded scenarios: ``scenarios("systematic")`` gives the lines of that file, packed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence"
Scenario = dict[str, Any]


@cache
def read_scenarios(name: str, release: str) -> tuple[Scenario, ...]:
    """Return the lines of one recorded file; callers must not change them. Raises FileNotFoundError with both paths."""
    plain = EVIDENCE / f"hami-{release}" / f"{name}.jsonl"
    packed = plain.with_name(f"{name}.jsonl.gz")
    if packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode()
    elif plain.exists():
        text = plain.read_text(encoding="utf-8")
    else:
        raise FileNotFoundError(
            f"expected {plain} or {packed.name}; the evidence of HAMi {release} is not in this checkout"
        )
    return tuple(json.loads(line) for line in text.splitlines())


@pytest.fixture(scope="session")
def scenarios() -> Callable[..., tuple[Scenario, ...]]:
    """A function ``scenarios(name, release="2.10.0")`` that reads one recorded file."""

    def load(name: str, release: str = "2.10.0") -> tuple[Scenario, ...]:
        return read_scenarios(name, release)

    return load
