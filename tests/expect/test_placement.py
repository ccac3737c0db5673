"""The phases of a placement, from made-up histories."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hami.expect.placement import Placement, figures, placement_of
from pytest_hami.kube.journal import Observation


def state(time: float, *, choice: str = "", phase: str = "", node: str = "") -> Observation:
    notes = {"hami.io/bind-phase": phase} if phase else {}
    if choice:
        notes |= {"hami.io/vgpu-node": choice, "hami.io/vgpu-time": choice, "hami.io/vgpu-devices-allocated": choice}
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    return Observation(time, "MODIFIED", {"metadata": {"annotations": notes}, "spec": spec})


STRAIGHT = (
    state(10.0), state(10.1, choice="a"), state(10.3, choice="a", phase="allocating"),
    state(10.4, choice="a", phase="allocating", node="n"), state(10.9, choice="a", phase="success", node="n"),
)  # fmt: skip


def test_each_phase_ends_where_the_next_begins() -> None:
    placement = placement_of(0.5, STRAIGHT)
    assert placement is not None
    phases = (
        placement.create,
        placement.filter,
        placement.back_off,
        placement.lock,
        placement.bind,
        placement.allocate,
    )
    assert phases == pytest.approx((0.5, 0.1, 0.0, 0.2, 0.1, 0.5))
    assert placement.total == pytest.approx(0.5 + 0.9)


def test_a_bind_that_was_undone_is_back_off() -> None:
    again = (
        state(10.0), state(10.1, choice="a"), state(10.2, choice="a", phase="allocating"), state(10.25, choice="a"),
        state(12.1, choice="b"), state(12.2, choice="b", phase="allocating"),
        state(12.3, choice="b", phase="allocating", node="m"), state(12.4, choice="b", phase="success", node="m"),
    )  # fmt: skip
    placement = placement_of(0.0, again)
    assert placement is not None
    assert (placement.back_off, placement.lock) == pytest.approx((2.0, 0.1))
    assert placement.total == pytest.approx(2.4)


@pytest.mark.parametrize("length", range(len(STRAIGHT)))
def test_nothing_is_told_of_a_placement_that_has_not_ended(length: int) -> None:
    assert placement_of(0.5, STRAIGHT[:length]) is None


def test_the_figures_of_a_run() -> None:
    quick = Placement(0.010, 0.020, 0.0, 0.003, 0.002, 0.005)
    slow = Placement(0.010, 0.040, 1.5, 0.003, 0.002, 0.005)
    events = [{"reason": "BindingFailed", "count": 2}, {"reason": "BindingFailed"}, {"reason": "BindingSucceed"}]
    found = figures([quick, quick, slow], nodes=4, seconds=2.0, plain_create=0.004, events=events)
    assert found == {
        "nodes": 4, "pods": 3, "pods per second": 1.5, "p50": 40.0, "p90": 1560.0, "max": 1560.0, "create": 10.0,
        "beyond a plain create": 6.0, "filter": 20.0, "lock": 3.0, "bind": 2.0, "allocate": 5.0,
        "back-off in all, s": 1.5, "BindingFailed": 3,
    }  # fmt: skip
    with pytest.raises(ValueError, match="at least one"):
        figures([], nodes=1, seconds=1.0, plain_create=0.0, events=[])
