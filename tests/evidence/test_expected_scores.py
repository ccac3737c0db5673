"""The node score that the checks expect in HAMi's event is the one that the real HAMi 2.10.0 told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pytest_hami.contract import allocation, register
from pytest_hami.contract.events import FilterSucceeded, parse_event
from pytest_hami.expect.accounting import Use, node_score, pod_use, total

# Only these change what the cards hold in a way that the recorded allocations alone tell.
TOLD = {"create", "delete", "complete", "fail", "register_run"}
END = {"delete", "complete", "fail"}
ROUNDING = 0.0051  # HAMi prints two decimals


def _plain(scenario: dict[str, Any]) -> bool:
    steps = scenario["steps"]
    waits = any(step["observed"].get("pending") for step in steps)
    init = any((step.get("object") or {}).get("spec", {}).get("initContainers") for step in steps)
    terminating = any(step.get("grace") for step in steps)
    damaged = any("register" in node for node in scenario["fleet"])
    return not (waits or init or terminating or damaged) and {step["op"] for step in steps} <= TOLD


def _scores(scenario: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield (event, expected, told) for every node score in the events of a scenario."""
    cards = {
        node["node"]: register.parse(json.dumps(node["devices"])) for node in scenario["fleet"] if node.get("devices")
    }
    held: dict[str, dict[str, Use]] = {}
    for step in scenario["steps"]:
        if step["op"] in END:
            held.pop(f"{step.get('namespace', 'default')}/{step['pod']}", None)
        if step["op"] != "create":
            continue
        observed = step["observed"]
        uses = total(held.values())
        for event in observed.get("events") or ():
            if event["reason"] == "FilteringSucceed":
                success = parse_event("FilteringSucceed", event["message"])
                assert isinstance(success, FilterSucceeded)
                for node, told in success.scores.items():
                    yield f"{scenario['id']}: {event['message']}", node_score(uses, cards[node]), told
        text = (observed.get("annotations") or {}).get("hami.io/vgpu-devices-allocated")
        if observed.get("scheduled") and text:
            meta = step["object"]["metadata"]
            shares = [(False, share) for group in allocation.parse(text) for share in group]
            held[f"{meta.get('namespace', 'default')}/{meta['name']}"] = pod_use(shares)


def test_expected_score_is_the_recorded_one(scenarios: Callable[..., tuple[dict[str, Any], ...]]) -> None:
    seen = [score for scenario in scenarios("systematic") if _plain(scenario) for score in _scores(scenario)]
    assert [score for score in seen if abs(score[1] - score[2]) > ROUNDING] == []
    assert len(seen) >= 900
    assert len({told for _, _, told in seen}) >= 75
