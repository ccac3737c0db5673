"""One case: from the phases that pytest reports to one outcome with its failure."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.checks import Capability, Check, Outcome
from pytest_hami.expect.failures import (
    DeviationChanged,
    Failure,
    Inconclusive,
    InvalidObservation,
    MissingCapability,
    NotPromised,
    Verdict,
)
from pytest_hami.kube.wait import WaitTimeout
from pytest_hami.text import one_line

NAME_MONITOR = "name a vGPUmonitor binary with --hami-monitor"
# What the local provider cannot show, and what would: (outcome, reason, remedy).
LACKS: dict[Capability, tuple[Outcome, str, str]] = {
    Capability.CUDA: (
        Outcome.UNSUPPORTED,
        "nothing executes CUDA here: there is no GPU",
        "run it on a cluster with real GPUs",
    ),
    Capability.MONITOR: (Outcome.SKIPPED, "no HAMi monitor in this cluster", NAME_MONITOR),
    Capability.MONITOR_METRICS: (Outcome.SKIPPED, "no HAMi monitor in this cluster", NAME_MONITOR),
    Capability.DISPOSABLE: (
        Outcome.UNSUPPORTED,
        "others may use this cluster, and this would disturb them",
        "run it on a cluster of its own, --hami-cluster=local",
    ),
    Capability.CHEAP_NODES: (
        Outcome.SKIPPED,
        "each node of this cluster costs a process or a machine",
        "leave the real device plugin out",
    ),
    Capability.MESH: (Outcome.SKIPPED, "no mesh in this cluster", "use a provider that has Linkerd"),
}

CASE = pytest.StashKey[dict[str, Any]]()


def judge(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    *,
    lost: bool,
    allowed: Collection[Outcome],
) -> None:
    """Fold a phase into the item's case, and make pytest's report say the same.

    ``lost``: the cluster is gone, so nothing that was seen of it counts. ``allowed`` outcomes do not fail the item.
    """
    case = item.stash.setdefault(CASE, {})
    case["seconds"] = case.get("seconds", 0.0) + report.duration
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, MissingCapability | NotPromised):
        outcome, reason, remedy = (
            lack(error.capability)
            if isinstance(error, MissingCapability)
            else (Outcome.UNSUPPORTED, one_line(error), "face a release that promises it")
        )
        case |= {"outcome": outcome, "reason": reason, "remedy": remedy}
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"{outcome}: {reason}; remedy: {remedy}")
    if report.failed:
        _judge_failure(case, call, report, lost=lost, allowed=allowed)
        if case["outcome"] in allowed:
            report.outcome, report.longrepr = "passed", None
    elif report.skipped and "outcome" not in case:
        case["outcome"] = Outcome.SKIPPED
        case["reason"] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    elif report.when == "call":
        case.setdefault("outcome", Outcome.PASSED)
    facade = getattr(item, "funcargs", {}).get("hami")
    deviates = case.get("outcome") is Outcome.PASSED and bool(facade is not None and facade.deviations)
    report.hami_outcome = str(Outcome.DEVIATION if deviates else case.get("outcome", ""))  # type: ignore[attr-defined]


def _judge_failure(
    case: dict[str, Any],
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    *,
    lost: bool,
    allowed: Collection[Outcome],
) -> None:
    error = call.excinfo.value if call.excinfo is not None else None
    first = case.get("outcome")
    if first is not None and first.breaks_run and first not in allowed and not lost:
        # What went wrong first says more than the clean-up that failed in its wake.
        case["reason"] = f"clean-up failed as well: {one_line(error)}" if error else ""
        return
    case["failure"] = failure_of(call.excinfo, report)
    case["outcome"] = Outcome.ERROR if lost else outcome_of(error, report.when)


def finished(item: pytest.Item, check: Check) -> dict[str, Any]:
    """Return the event of a finished case."""
    case = item.stash[CASE]
    deviations = case.pop("deviations", [])
    if case.get("outcome") is Outcome.PASSED and deviations:
        case["outcome"] = Outcome.DEVIATION
        case["reason"] = f"known: documented is that {deviations[0][0]}"
        case["reference"] = deviations[0][1]
    return {
        "kind": "case-finished",
        "check": check.id,
        "case": case_id(item),
        "nodeid": item.nodeid,
        "outcome": str(case.get("outcome", Outcome.NOT_RUN)),
        "seconds": round(case["seconds"], 4),
        "reason": case.get("reason", ""),
        "remedy": case.get("remedy", ""),
        "reference": case.get("reference", ""),
        "failure": case.get("failure"),
        "evidence": case.get("evidence", {}),
        "disturbances": case.get("disturbances", []),
    }


def lack(need: Capability) -> tuple[Outcome, str, str]:
    """Return outcome, reason and remedy for a capability that a cluster has not."""
    return LACKS.get(need, (Outcome.SKIPPED, f"this cluster cannot show {need}", "use another provider"))


def outcome_of(error: BaseException | None, when: str | None) -> Outcome:
    """Return the outcome of an error in a phase."""
    if when == "teardown":
        return Outcome.ERROR
    if isinstance(error, DeviationChanged):
        return Outcome.CHANGED
    if isinstance(error, InvalidObservation):
        return Outcome.INVALID
    if isinstance(error, Inconclusive):
        return Outcome.INCONCLUSIVE
    if isinstance(error, AssertionError | WaitTimeout) and when == "call":
        return Outcome.FAILED
    return Outcome.ERROR


def failure_of(excinfo: pytest.ExceptionInfo[BaseException] | None, report: pytest.TestReport) -> dict[str, Any]:
    """Return a failure as plain data, whatever was raised."""
    error = excinfo.value if excinfo is not None else None
    if isinstance(error, Verdict):
        failure = error.failure
    elif excinfo is not None and isinstance(error, AssertionError):
        entry = excinfo.traceback[-1]
        text = str(error)[:4000]
        failure = Failure(
            expected=str(entry.statement).strip(), seen=text, where=f"{Path(entry.path).name}:{entry.lineno + 1}"
        )
    else:
        failure = Failure(
            expected="the check runs to its end", seen=f"{type(error).__name__}: {error}"[:4000], where=str(report.when)
        )
    return failure.to_dict() | {"text": report.longreprtext[-20_000:]}


def case_id(item: pytest.Item) -> str:
    """Return the parameters of an item, empty when it has none."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.id) if callspec is not None else ""
