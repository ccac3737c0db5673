"""The check record, capabilities and outcomes: the words of the suite (standard library and pytest only)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

CHECK_ID = re.compile(r"(mock-\d{2}[ab]?|proof-\d{2}[A-Z]?|contract-[a-z0-9-]+|finding-[sp]\d{2}|scale-\d{2})")


class Capability(StrEnum):
    """What a cluster can show; a check states what it needs."""

    ADMISSION = "admission"
    FILTER = "filter"
    BIND = "bind"
    ALLOCATE = "allocate"
    ENV = "env"
    DEVICES = "devices"
    NVML_VIEW = "nvml_view"
    HOOK = "hook"
    MONITOR = "monitor"
    CUDA = "cuda"
    MIG_PLACEMENT = "mig_placement"
    NUMA = "numa"
    TOPOLOGY = "topology"
    MULTI_NODE = "multi_node"
    MULTI_MODEL = "multi_model"
    SCHEDULER_METRICS = "scheduler_metrics"
    MONITOR_METRICS = "monitor_metrics"
    NATIVE_QUOTA = "native_quota"
    RESTART = "restart"
    RECONFIGURE = "reconfigure"
    # Hundreds of nodes can be made for a measurement.
    CHEAP_NODES = "cheap_nodes"
    MESH = "mesh"
    # The cluster is ours alone: its nodes may be written on, and all of it may be disturbed for a moment.
    DISPOSABLE = "disposable"
    # The HAMi scheduler's own HTTP interface can be called.
    EXTENDER = "extender"


class Outcome(StrEnum):
    """Exactly one for each case and each check."""

    PASSED = "passed"
    DEVIATION = "deviation"
    CHANGED = "changed"
    FAILED = "failed"
    INVALID = "invalid"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    NOT_RUN = "not-run"

    @property
    def breaks_run(self) -> bool:
        """Whether a run with this outcome fails."""
        return self in _BREAKING


_BREAKING = frozenset({Outcome.CHANGED, Outcome.FAILED, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.ERROR})
# A case with one of these was not judged.
UNSEEN = frozenset({Outcome.NOT_RUN, Outcome.SKIPPED, Outcome.UNSUPPORTED})
# Worst first: a check is as bad as its worst case, is not judged while cases are missing, and else is as informative as
# its strongest one.
_SEVERITY = (
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.CHANGED,
    Outcome.INVALID,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_RUN,
    Outcome.DEVIATION,
    Outcome.PASSED,
    Outcome.SKIPPED,
    Outcome.UNSUPPORTED,
)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of a check from those of its cases.

    >>> worst([Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED])
    <Outcome.FAILED: 'failed'>
    >>> worst([])
    <Outcome.NOT_RUN: 'not-run'>
    """
    return min(outcomes, key=_SEVERITY.index, default=Outcome.NOT_RUN)


class Layer(StrEnum):
    """Where in the stack a check looks."""

    NODE = "node"
    ADMISSION = "admission"
    FILTER = "filter"
    BIND = "bind"
    CONTAINER = "container"
    METRICS = "metrics"
    MESH = "mesh"


@dataclass(frozen=True)
class Check:
    """One conformance item.

    ``id`` is stable for ever; ``claim`` is one sentence a reader can refute; ``jq`` is the constant program that shows
    the fact in the check's evidence (``evidence`` of each case in report.json).
    """

    id: str
    title: str
    claim: str
    not_proven: str
    layer: Layer
    needs: frozenset[Capability]
    fleet: str
    jq: str


def check(
    id: str,
    *,
    title: str,
    claim: str,
    not_proven: str,
    layer: Layer,
    needs: Iterable[Capability] = (),
    fleet: str = "seed-002",
    jq: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a test function as a check. Raises ValueError for an id outside the known families."""
    if not CHECK_ID.fullmatch(id):
        raise ValueError(
            f"check id {id!r}: expected mock-NN, proof-NN, scale-NN, contract-<name>, finding-sNN or finding-pNN"
        )
    record = Check(id, title, claim, not_proven, layer, frozenset(needs), fleet, jq)

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        function.hami_check = record  # type: ignore[attr-defined]
        return function

    return declare


def check_of(function: object) -> Check | None:
    """Return the check declared on a test function, or None."""
    found = getattr(function, "hami_check", None)
    return found if isinstance(found, Check) else None
