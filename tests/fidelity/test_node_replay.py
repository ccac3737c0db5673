"""The model of the device plugin does what the real one was recorded to do, and a defect of it is noticed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import records
from pytest_hami.fidelity.node import allocate, full_chain, lifecycle, preferred, register
from pytest_hami.simulator.deviceplugin.rules import NodeRules

EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence" / "hami-2.10.0"
RELEASE = Release.parse("2.10.0")
RECORDED = {
    "allocate": (allocate.replay, 86),
    "plugin-preferred": (preferred.replay, 16),
    "plugin-register": (register.replay, 44),
    "full-chain": (full_chain.replay, 6),
    "plugin-lifecycle": (lifecycle.replay, 2),
}


@cache
def recorded(name: str) -> list[records.Record]:
    return records.read(EVIDENCE / f"{name}.jsonl")


ALL = [(name, record) for name in RECORDED for record in recorded(name)]


@pytest.mark.parametrize("name", RECORDED)
def test_the_record_is_complete(name: str) -> None:
    assert len(recorded(name)) == RECORDED[name][1]


@pytest.mark.parametrize(("name", "record"), ALL, ids=[f"{name}-{record.id}" for name, record in ALL])
def test_model_does_as_recorded(name: str, record: records.Record) -> None:
    found = RECORDED[name][0](record.data, RELEASE)
    assert not found.disagreements
    assert found.comparisons >= 3


def wrong_entry(self: NodeRules, entries: Any) -> Any:
    found = NodeRules.next_entry(self, entries)
    return found and (found[0], [shares for shares in entries if shares][-1])


def without_model(self: NodeRules, *arguments: Any) -> Any:
    import dataclasses

    return dataclasses.replace(NodeRules.register(self, *arguments), type="NVIDIA")


DEFECTS: list[tuple[str, str, Any]] = [
    ("allocate", "next_entry", wrong_entry),
    ("allocate", "accepts_phase", lambda self, phase: phase == "allocating"),
    ("allocate", "env", lambda self, shares, settings: {}),
    ("allocate", "oversubscribes", lambda self, settings: False),
    ("allocate", "cache_name", lambda self: "shared.cache"),
    ("allocate", "hooks", lambda self, control_disabled: True),
    ("allocate", "succeeds", lambda self, rest: True),
    ("allocate", "releases_lock", lambda self, value, namespace, name: "," in value),
    ("plugin-preferred", "accepts_phase", lambda self, phase: False),
    ("full-chain", "accepts_phase", lambda self, phase: phase == "allocating"),
    ("full-chain", "env", lambda self, shares, settings: {}),
    ("full-chain", "succeeds", lambda self, rest: False),
    ("full-chain", "releases_lock", lambda self, value, namespace, name: False),
    ("plugin-lifecycle", "scans_after_restart", lambda self: False),
    ("plugin-lifecycle", "register", without_model),
    ("plugin-register", "register", without_model),
    ("plugin-register", "advertised", lambda self, card, settings: 1),
    ("plugin-register", "cut", lambda self, device, instances: device),
]


@pytest.mark.parametrize(("name", "method", "wrong"), DEFECTS, ids=[f"{name}-{method}" for name, method, _ in DEFECTS])
def test_the_replay_notices_a_defect(name: str, method: str, wrong: Any) -> None:
    rules = type("Defect", (NodeRules,), {method: wrong})
    replay = RECORDED[name][0]
    assert any(replay(one.data, RELEASE, rules).disagreements for one in recorded(name)), f"nothing notices {method}"
