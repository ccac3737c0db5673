"""What HAMi decided about a pod, as one line that an expectation can hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract import allocation
from pytest_hami.contract.events import FilterFailed, NoAvailableNode, parse_event
from pytest_hami.contract.reasons import Reason, ReasonError, parse_failed_scheduling
from pytest_hami.expect import disturbances, observe
from pytest_hami.expect.failures import require_equal


@dataclass(frozen=True)
class Decision:
    """``kind`` is ``denied``, ``refused``, ``failed`` or ``placed``.

    ``told`` is the webhook's message, the reason of the nodes that HAMi was asked about, the extender's error, or what
    each entry of the allocation holds.
    """

    kind: str
    told: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.told}"

    def require(self, expected: str, where: str) -> None:
        """Assert the whole line. Raises ClaimFailed."""
        require_equal({"decision": expected}, {"decision": str(self)}, where)


def of_pod(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> Decision | None:
    """Return the decision that a pod shows, None while there is none.

    Releases before 2.10 tell the reasons in ``events`` only, without the number of cards: they follow ``NodeUnfitPod``.

    >>> notes = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,4096,25:;;"}
    >>> str(of_pod({"metadata": {"annotations": notes}, "spec": {"nodeName": "w1"}}))
    'placed: 4096 MiB 25 %; no card'
    >>> str(of_pod({"spec": {"nodeName": "w1"}}))
    'placed: without allocation'
    """
    if observe.node_name(pod):
        return Decision("placed", _entries(observe.annotations(pod).get(observe.ALLOCATED)))
    refused = observe.unschedulable(pod)
    if refused is None:
        return None
    reason, message = refused
    if reason == "Unschedulable":
        return _refusal(_told_by_hami(message), events)
    # What HAMi gets over by itself is no decision yet.
    return None if disturbances.kind_of(message) else Decision("failed", message)


def of_denial(message: str) -> Decision:
    """Return the decision in an error of the API server that a webhook caused."""
    return Decision("denied", message.partition(" denied the request: ")[2] or message)


def _refusal(told: str, events: Iterable[Mapping[str, Any]]) -> Decision | None:
    if told != Reason.NODE_UNFIT:
        return Decision("refused", told)
    parsed = [parse_event("FilteringFailed", text) for text in observe.with_reason(events, "FilteringFailed")]
    if not any(isinstance(event, NoAvailableNode) for event in parsed):
        # The closing event of the attempt is behind the condition.
        return None
    named = sorted({event.reason for event in parsed if isinstance(event, FilterFailed)})
    return Decision("refused", f"{told}: {', '.join(named)}" if named else told)


def _entries(text: str | None) -> str:
    if text is None:
        return "without allocation"
    try:
        groups = allocation.parse(text)
    except allocation.AllocationError:
        return text
    entries = (" + ".join(f"{share.memory} MiB {share.cores} %" for share in group) or "no card" for group in groups)
    return "; ".join(entries) or "no entry"


def _told_by_hami(message: str) -> str:
    try:
        reasons = parse_failed_scheduling(message).reasons
    except ReasonError:
        return message
    # What kube-scheduler says of nodes that it did not even offer to HAMi.
    return "; ".join(text for _, text in reasons if not text.startswith("node(s) ")) or message
