"""Reasons of refusal, as HAMi writes them and as kube-scheduler repeats them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.reasons import (
    FailedScheduling,
    NodeReason,
    Reason,
    ReasonError,
    format_failed_scheduling,
    format_node_reason,
    parse_failed_scheduling,
    parse_node_reason,
)

# These never carry a number of cards.
BARE = {Reason.NODE_INSUFFICIENT, Reason.NODE_UNFIT, Reason.NODE_FIT}
COUNTED = sorted(set(Reason) - BARE)
COUNTS = st.dictionaries(st.sampled_from(COUNTED), st.integers(1, 16), min_size=1, max_size=5)
KUBERNETES = (
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "Insufficient nvidia.com/gpumem",
    "Too many pods",
    "node unregistered",
)
NODE_REASONS = st.one_of(
    st.builds(format_node_reason, COUNTS, st.just(16)), st.sampled_from([*sorted(BARE), *KUBERNETES])
)
TAIL = (
    "no new claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)


@given(COUNTS, st.integers(1, 16))
def test_what_is_written_is_read_again(counts: dict[Reason, int], cards: int) -> None:
    text = format_node_reason(counts, cards)
    reason = parse_node_reason(text)
    assert {found: (count, of) for count, of, found in reason.counts} == {
        found: (count, cards) for found, count in counts.items()
    }
    assert reason.bare == ""


@pytest.mark.parametrize(
    ("counts", "cards", "text"),
    [
        ({Reason.INSUFFICIENT_MEMORY: 2}, 2, "2/2 CardInsufficientMemory"),
        (
            {Reason.INSUFFICIENT_MEMORY: 1, Reason.ALLOCATED_INSUFFICIENT: 1},
            2,
            "1/2 AllocatedCardsInsufficientRequest, 1/2 CardInsufficientMemory",
        ),
        (
            {Reason.COMPUTE_UNITS_EXHAUSTED: 1, Reason.ALLOCATED_INSUFFICIENT: 1},
            2,
            "1/2 AllocatedCardsInsufficientRequest, 1/2 CardComputeUnitsExhausted",
        ),
        ({Reason.INSUFFICIENT_CORE: 2}, 2, "2/2 CardInsufficientCore"),
        ({Reason.EXCLUSIVE_CONFLICT: 4}, 4, "4/4 ExclusiveDeviceAllocateConflict"),
        (
            {Reason.TIME_SLICING_EXHAUSTED: 1, Reason.NOT_HEALTHY: 1},
            2,
            "1/2 CardNotHealth, 1/2 CardTimeSlicingExhausted",
        ),
        (
            {Reason.UUID_MISMATCH: 1, Reason.ALLOCATED_INSUFFICIENT: 1},
            2,
            "1/2 AllocatedCardsInsufficientRequest, 1/2 CardUuidMismatch",
        ),
        (
            {Reason.NUMA_NOT_FIT: 2, Reason.ALLOCATED_INSUFFICIENT: 2},
            4,
            "2/4 AllocatedCardsInsufficientRequest, 2/4 NumaNotFit",
        ),
        (
            {Reason.NOT_HEALTHY: 2, Reason.NUMA_NOT_FIT: 1, Reason.ALLOCATED_INSUFFICIENT: 1},
            4,
            "1/4 AllocatedCardsInsufficientRequest, 1/4 NumaNotFit, 2/4 CardNotHealth",
        ),
        ({Reason.NOT_HEALTHY: 10, Reason.CORDONED: 2}, 12, "10/12 CardNotHealth, 2/12 CardCordoned"),
    ],
)
def test_golden_reasons(counts: dict[Reason, int], cards: int, text: str) -> None:
    assert format_node_reason(counts, cards) == text


@pytest.mark.parametrize("text", ["NodeInsufficientDevice", "node unregistered", "Insufficient cpu", ""])
def test_bare_reasons(text: str) -> None:
    assert parse_node_reason(text) == NodeReason(bare=text)


def test_an_unknown_counted_reason_is_an_error() -> None:
    with pytest.raises(ReasonError, match="CardTooHot"):
        parse_node_reason("1/2 CardTooHot, 1/2 CardUuidMismatch")


@given(st.lists(st.tuples(st.integers(1, 5000), NODE_REASONS), min_size=1, max_size=6, unique_by=lambda pair: pair[1]))
def test_a_message_is_split_where_it_was_joined(entries: list[tuple[int, str]]) -> None:
    failed = FailedScheduling(7, tuple(sorted(entries, key=lambda pair: f"{pair[0]} {pair[1]}")), TAIL)
    message = format_failed_scheduling(failed)
    assert parse_failed_scheduling(message) == failed
    assert parse_failed_scheduling(message.removesuffix(f" {TAIL}")).reasons == failed.reasons


def test_the_message_of_kubernetes_136() -> None:
    message = (
        "0/3 nodes are available: 1 1/2 CardInsufficientMemory, 1/2 CardUuidMismatch, "
        "2 node(s) didn't match Pod's node affinity/selector. " + TAIL
    )
    assert parse_failed_scheduling(message) == FailedScheduling(
        3,
        (
            (1, "1/2 CardInsufficientMemory, 1/2 CardUuidMismatch"),
            (2, "node(s) didn't match Pod's node affinity/selector"),
        ),
        TAIL,
    )


def test_an_old_taint_text_with_a_comma_is_one_reason() -> None:
    failed = parse_failed_scheduling(
        "0/2 nodes are available: 2 node(s) had taint {a: b}, that the pod didn't tolerate. preemption: none."
    )
    assert failed.reasons == ((2, "node(s) had taint {a: b}, that the pod didn't tolerate"),)
    assert failed.tail == "preemption: none."


@pytest.mark.parametrize(
    "message", ["", "no nodes available to schedule pods", "0/1 nodes are available: 1/2 CardCordoned."]
)
def test_another_message_is_a_typed_error(message: str) -> None:
    with pytest.raises(ReasonError):
        parse_failed_scheduling(message)
