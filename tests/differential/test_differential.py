"""The real scheduler and the model decide the same, whatever they are asked.

``HAMI_SCHEDULER=PATH tox -e differential``; ``-- --hypothesis-seed=N`` repeats a run, and
``HAMI_DIFFERENTIAL_EXAMPLES`` is how many scenarios are tried.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from pytest_hami.fidelity import scheduler
from pytest_hami.fidelity.outcome import Disagreement
from pytest_hami.record.generate import scenario
from pytest_hami.record.recorder import Recorder, recorder

# Read before it is hidden from the runs that tests start.
EXAMPLES = int(os.environ.get("HAMI_DIFFERENTIAL_EXAMPLES") or 100)


class Found(AssertionError):
    """A scenario on which the two disagree."""


class Smallest:
    """The smallest scenario so far on which the two disagree, in a file of evidence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = ""

    def keep(self, record: Mapping[str, Any]) -> None:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        if not self._text or len(text) <= len(self._text):
            self._text = text
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(text + "\n", encoding="utf-8")


def compared(found: Recorder, source: Random, smallest: Smallest) -> tuple[Disagreement, ...]:
    record = found.record(scenario(source, "random"))
    disagreements = scheduler.replay(record, found.version).disagreements
    if disagreements:
        smallest.keep(record)
    return disagreements


def differential(found: Recorder, number: int, examples: int, smallest: Smallest) -> None:
    """Compare scenarios; raise Found for the smallest on which they disagree, after it was written."""

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(source=st.randoms(use_true_random=False))
    def agree(source: Random) -> None:
        for one in compared(found, source, smallest)[:1]:
            told = f"{one.where}: recorded {one.expected[:300]}, model {one.seen[:300]}"
            raise Found(f"HAMi {found.version}, seed {number}: {told}; pytest-hami fidelity {smallest.path}")

    try:
        agree()
    except Flaky:
        # Chance decides whether they disagree; the record shows once that they do.
        raise Found(
            f"HAMi {found.version}, seed {number}, now and then: pytest-hami fidelity {smallest.path}"
        ) from None


@pytest.mark.differential
def test_the_model_decides_as_the_real_scheduler(real_scheduler: Path, pytestconfig: pytest.Config) -> None:
    given_seed = pytestconfig.getoption("--hypothesis-seed")
    number = int(given_seed) if given_seed is not None else secrets.randbelow(1 << 32)
    with recorder({"hami-scheduler": real_scheduler}) as found:
        name = f"disagreement-{found.version}-{number}.jsonl"
        print(f"HAMi {found.version}, {EXAMPLES} scenarios, --hypothesis-seed={number}")
        differential(found, number, EXAMPLES, Smallest(pytestconfig.rootpath / "hami-differential" / name))
