"""An event stream as a run writes it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def events() -> list[dict[str, Any]]:
    """A run with one passed, one failed and one known deviation."""
    started = {
        "kind": "run-started", "time": "2026-01-01T00:00:00+00:00", "run_id": "r1", "suite": {"version": "0", "commit": None},
        "proves": "suite", "provider": "local", "lane": "simulated", "release": "2.10.0", "seed": 1, "python": "3.11",
        "platform": "linux", "mutants": [], "allowed": [], "arguments": ["-m", "mock", "-k", "a b"],
        "parts": [{"name": "apiserver", "state": "simulated", "version": "x", "digest": ""},
                  {"name": "gpu", "state": "absent", "version": "", "digest": ""}],
        "fleet": [{"node": "w1", "fleet": "f",
                   "cards": [{"uuid": "GPU-1", "index": 0, "type": "T", "memory_mib": 1, "cores": 100}]}],
        "settings": [{"name": "--hami-mutant", "value": "m", "source": "option"}],
    }  # fmt: skip

    def declared(id_: str, layer: str) -> dict[str, Any]:
        return {
            "kind": "check-declared", "id": id_, "title": f"title of {id_}", "claim": f"Claim of {id_}.",
            "not_proven": "the rest", "layer": layer, "needs": ["filter"], "fleet": "f", "jq": ".pods",
            "mutants": ["memory-off-by-one"],
            "cases": [{"id": "a", "nodeid": f"t.py::{id_}[a]"}],
        }  # fmt: skip

    def finished(id_: str, outcome: str, **more: Any) -> dict[str, Any]:
        base = {
            "kind": "case-finished", "check": id_, "case": "a", "nodeid": f"t.py::{id_}[a]", "outcome": outcome,
            "seconds": 0.25, "reason": "", "remedy": "", "reference": "", "failure": None, "evidence": {"pods": []},
        }  # fmt: skip
        return base | more

    failure = {
        "expected": "4096", "seen": "4097", "where": "pod p", "difference": "memory: expected 4096, seen 4097",
        "reason": "said so", "timeline": ["+0.1s ADDED"], "text": "Traceback",
        "events": [{"time": "t", "type": "Normal", "reason": "Bound", "message": "m", "component": "c"}],
    }  # fmt: skip
    pod = {
        "name": "p",
        "node": "w1",
        "phase": "Running",
        "refused": "",
        "annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,"},
    }
    return [
        started, declared("mock-01", "node"), declared("mock-02", "filter"), declared("mock-03", "filter"),
        finished("mock-01", "passed", evidence={"pods": [pod], "usage": [1]}),
        finished("mock-02", "failed", failure=failure),
        finished("mock-03", "deviation", reason="known: documented is x", reference="https://example.org/1"),
        {"kind": "run-finished", "time": "2026-01-01T00:00:09+00:00", "exit_code": 1, "interrupted": False},
    ]  # fmt: skip
