"""A HAMi that never does something costs the full time limit twice, not in every case."""

from __future__ import annotations

from pytest_hami.expect.patience import TRIES, Patience


def test_a_limit_that_is_short_already_is_one_step() -> None:
    assert Patience(short=2).steps(1.5) == (1.5,)


def test_patience_ends_only_for_what_was_missing() -> None:
    patience = Patience(short=2)
    for _ in range(TRIES - 1):
        patience.waited_in_vain("event BindingSucceed")
    assert not patience.has_ended("event BindingSucceed")
    patience.waited_in_vain("event BindingSucceed")
    assert patience.has_ended("event BindingSucceed")
    assert not patience.has_ended("event FilteringSucceed; event BindingSucceed")
