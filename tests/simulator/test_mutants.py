"""The registry of defects."""

from __future__ import annotations

import pytest

from pytest_hami.checks import CHECK_ID
from pytest_hami.contract.reasons import Reason
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.mutants import MUTANTS, UnknownMutant, rules_for

NAMES = sorted(MUTANTS)


@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_is_described_and_overrides_something_that_exists(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.name == name
    assert mutant.defect.endswith(".")
    assert mutant.source
    assert mutant.shows
    assert CHECK_ID.fullmatch(mutant.caught_by)
    base = mutant.rules.__mro__[1]
    own = [key for key in vars(mutant.rules) if not key.startswith("__")]
    assert own
    assert all(hasattr(base, key) for key in own)


def test_rules_of_several_mutants_are_combined() -> None:
    rules = rules_for("hami-scheduler", ["memory-off-by-one", "reason-names-cores-for-memory"])
    assert isinstance(rules, Rules)
    assert rules.memory_fits(10, 0, 11)
    assert not rules.memory_fits(10, 0, 12)
    assert rules.node_reason({Reason.INSUFFICIENT_MEMORY: 1}, 2) == "1/2 CardInsufficientCore"
    assert rules.releases_on_delete({})


def test_parts_without_a_defect_keep_their_own_rules() -> None:
    assert rules_for("node", ["memory-off-by-one"]) is None
    assert rules_for("hami-scheduler", []) is None


def test_an_unknown_name_is_refused_with_those_that_look_alike() -> None:
    with pytest.raises(UnknownMutant, match=r"unknown mutant 'memory-kept'; expected one such as .*memory-kept-after"):
        rules_for("hami-scheduler", ["memory-kept"])
