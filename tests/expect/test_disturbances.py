"""Which disturbances are read from what a pod shows, and which texts are none."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hami.contract.releases import Release, traits
from pytest_hami.expect import baseline
from pytest_hami.expect.decision import of_pod
from pytest_hami.expect.disturbances import EVENT_LIMIT, Kind, kind_of, may_miss_events, of_binds
from pytest_hami.expect.failures import ClaimFailed

RACE = 'pod "pod-1" not found'
LOCKS = ("node w1 has been locked within 5m0s", "node w1 has been locked within 5m0s: node lock contention")
NEWEST, OLDEST = traits(Release(2, 10, 0)), traits(Release(2, 8, 3))


def failed(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}
    return {"metadata": {"name": "pod-1"}, "spec": {}, "status": {"conditions": [condition]}}


def event(reason: str, message: str, kind: str = "Normal", count: int = 1) -> dict[str, Any]:
    source = {"component": "hami-scheduler"}
    return {"reason": reason, "message": message, "type": kind, "count": count, "source": source}


@pytest.mark.parametrize(
    ("message", "kind"),
    [(RACE, Kind.BIND_RACE), *((text, Kind.LOCK_CONTENTION) for text in LOCKS),
     ('nodes "w1" not found', None), ('preemption: pod "p" not found', None), ("timed out", None)],
)  # fmt: skip
def test_kind_of_a_failed_bind(message: str, kind: Kind | None) -> None:
    assert kind_of(message) is kind
    assert (of_pod(failed(message)) is None) is (kind is not None)


def test_a_race_is_seen_in_a_state_and_contention_in_events() -> None:
    history = [failed(RACE), failed(RACE), failed("timed out")]
    events = [event("BindingFailed", LOCKS[1], "Warning", 3), event("BindingFailed", "timed out", "Warning")]
    assert of_binds(history, events) == ((Kind.BIND_RACE, RACE, 1), (Kind.LOCK_CONTENTION, LOCKS[1], 3))


def test_events_count_by_type_since_2_9() -> None:
    refused = [event("FilteringFailed", "no available node, 1 nodes do not meet", "Warning", EVENT_LIMIT)]
    assert may_miss_events(refused, "Normal", OLDEST)
    assert not may_miss_events(refused, "Normal", NEWEST)
    assert may_miss_events(refused, "Warning", NEWEST)
    assert not may_miss_events([event("FilteringFailed", "x", "Warning", EVENT_LIMIT - 1)], "Normal", OLDEST)


def placed() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    pod = {"metadata": {"name": "pod-1", "namespace": "ns"}, "spec": {"nodeName": "w1"}}
    told = [
        event("FilteringSucceed", "find fit node(w1), 0 nodes not fit, 1 nodes fit(w1:0.00)"),
        event("BindingSucceed", "Successfully binding node [w1] to ns/pod-1"),
    ]
    return pod, told


def test_a_bind_that_was_tried_again_is_no_failure_and_any_other_is() -> None:
    pod, told = placed()
    baseline.require_events(pod, told, {"w1": 0.0}, disturbed=False, traits=NEWEST)
    again = [event("FilteringSucceed", "find fit node(w2), 0 nodes not fit, 2 nodes fit(w1:0.00,w2:0.00)"), *told]
    again.append(event("BindingFailed", LOCKS[1], "Warning"))
    baseline.require_events(pod, again, {"w1": 0.0}, disturbed=True, traits=NEWEST)
    with pytest.raises(ClaimFailed, match="one event FilteringSucceed"):
        baseline.require_events(pod, again, {"w1": 0.0}, disturbed=False, traits=NEWEST)
    again.append(event("BindingFailed", "timed out", "Warning"))
    with pytest.raises(ClaimFailed, match="no event BindingFailed"):
        baseline.require_events(pod, again, {"w1": 0.0}, disturbed=True, traits=NEWEST)


def test_an_event_may_be_absent_only_after_too_many() -> None:
    pod, told = placed()
    many = event("FilteringFailed", "no available node, 1 nodes do not meet", "Warning", EVENT_LIMIT)
    baseline.require_events(pod, [many], {"w1": 0.0}, disturbed=False, traits=OLDEST)
    for events, of in (([many], NEWEST), ([], OLDEST), ([told[0]], OLDEST), ([told[1]], OLDEST)):
        with pytest.raises(ClaimFailed):
            baseline.require_events(pod, events, {"w1": 0.0}, disturbed=False, traits=of)
