"""The texts of HAMi's events on a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract import events

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
SCORES = st.decimals(-100, 100, places=2).map(float)


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_refusals_round_trip_with_sorted_nodes(nodes: list[str]) -> None:
    message = events.filter_failed("CardNotHealth", nodes)
    parsed = events.parse_event("FilteringFailed", message)
    assert parsed == events.FilterFailed(len(nodes), "CardNotHealth", tuple(sorted(nodes)))


@given(st.integers(0, 10_000))
def test_the_closing_event_round_trips(count: int) -> None:
    message = events.no_available_node(count)
    assert events.parse_event("FilteringFailed", message) == events.NoAvailableNode(count)


@given(st.dictionaries(NAMES, SCORES, min_size=1, max_size=5), st.integers(0, 99))
def test_a_choice_round_trips(scores: dict[str, float], not_fit: int) -> None:
    chosen = list(scores)[-1]
    parsed = events.parse_event("FilteringSucceed", events.filter_succeeded(chosen, not_fit, list(scores.items())))
    assert isinstance(parsed, events.FilterSucceeded)
    assert (parsed.node, parsed.not_fit) == (chosen, not_fit)
    assert parsed.scores == pytest.approx(scores)
    assert list(parsed.scores) == list(scores)


@given(NAMES, NAMES, NAMES)
def test_a_bind_round_trips(node: str, namespace: str, pod: str) -> None:
    message = events.bind_succeeded(node, namespace, pod)
    assert events.parse_event("BindingSucceed", message) == events.BindSucceeded(node, namespace, pod)


def test_recorded_texts() -> None:
    assert events.filter_succeeded("node1", 0, [("node1", 0.0)]) == (
        "find fit node(node1), 0 nodes not fit, 1 nodes fit(node1:0.00)"
    )
    weights = 'calcScore failed invalid hami.io/device-scoring-weights annotation "": expected weights for pod w11'
    assert events.parse_event("FilteringFailed", weights) == events.CalcScoreFailed(weights)
    api = 'Pod "a" is invalid: metadata.labels: Invalid value'
    assert events.parse_event("FilteringFailed", api) == events.OtherFilterFailure(api)
    held = "node n1 has been locked within 5m0s: node lock contention"
    assert events.parse_event("BindingFailed", held) == events.BindFailed(held)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Scheduled", "Successfully assigned default/p to n"),
        ("FilteringSucceed", "found"),
        ("FilteringSucceed", "find fit node(n), 0 nodes not fit, 2 nodes fit(n:0.00)"),
        ("FilteringSucceed", "find fit node(n), 0 nodes not fit, 1 nodes fit(n:high)"),
        ("BindingSucceed", "bound"),
    ],
)
def test_another_event_is_a_typed_error(reason: str, message: str) -> None:
    with pytest.raises(events.EventError):
        events.parse_event(reason, message)
