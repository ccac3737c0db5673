"""Reason strings of HAMi's filter, and how kube-scheduler repeats them.

Source: HAMi 2.10.0, pkg/device/common/common.go; Kubernetes 1.36, pkg/scheduler/framework/types.go (FitError).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Every reason that HAMi 2.10.0 gives for a card or a node."""

    TYPE_MISMATCH = "CardTypeMismatch"
    UUID_MISMATCH = "CardUuidMismatch"
    TIME_SLICING_EXHAUSTED = "CardTimeSlicingExhausted"
    COMPUTE_UNITS_EXHAUSTED = "CardComputeUnitsExhausted"
    INSUFFICIENT_MEMORY = "CardInsufficientMemory"
    INSUFFICIENT_CORE = "CardInsufficientCore"
    NOT_HEALTHY = "CardNotHealth"
    CORDONED = "CardCordoned"
    NUMA_NOT_FIT = "NumaNotFit"
    EXCLUSIVE_CONFLICT = "ExclusiveDeviceAllocateConflict"
    CUSTOM_FILTER = "CardNotFoundCustomFilterRule"
    MIG_INFEASIBLE = "CardMigTopologyInfeasible"
    NODE_INSUFFICIENT = "NodeInsufficientDevice"
    ALLOCATED_INSUFFICIENT = "AllocatedCardsInsufficientRequest"
    NODE_UNFIT = "NodeUnfitPod"
    NODE_FIT = "NodeFitPod"
    QUOTA_NOT_FIT = "ResourceQuotaNotFit"
    MODE_NOT_FIT = "ModeNotFit"


UNREGISTERED = "node unregistered"
USAGE_UNAVAILABLE = "node usage unavailable"
NO_DEVICE_TYPE = "Device type not found"
_COUNTED = re.compile(r"(\d+)/(\d+) ([A-Za-z]+)")
_HEAD = re.compile(r"0/(\d+) nodes are available: ")
_TAIL = re.compile(r"\. (?=no new claims to deallocate|preemption: )")
_ENTRY = re.compile(r"(\d+) (.*)", re.DOTALL)


class ReasonError(ValueError):
    """A reason text that breaks the grammar."""


@dataclass(frozen=True)
class NodeReason:
    """Why a node was refused: ``(cards, of all, reason)`` for each reason, or one bare text."""

    counts: tuple[tuple[int, int, Reason], ...] = ()
    bare: str = ""


@dataclass(frozen=True)
class FailedScheduling:
    """kube-scheduler's message: all nodes, ``(nodes, reason)`` for each distinct reason, and the text behind."""

    nodes: int
    reasons: tuple[tuple[int, str], ...]
    tail: str


def parse_node_reason(text: str) -> NodeReason:
    """Return a node reason. Raises ReasonError for an unknown counted reason.

    >>> parse_node_reason("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch").counts[1]
    (1, 2, <Reason.UUID_MISMATCH: 'CardUuidMismatch'>)
    >>> parse_node_reason("NodeInsufficientDevice").bare
    'NodeInsufficientDevice'
    """
    pieces = text.split(", ")
    matches = [_COUNTED.fullmatch(piece) for piece in pieces]
    if not all(matches):
        return NodeReason(bare=text)
    counts = []
    for match in matches:
        assert match is not None
        try:
            counts.append((int(match[1]), int(match[2]), Reason(match[3])))
        except ValueError:
            raise ReasonError(f"unknown reason {match[3]!r} in {text[:200]!r}") from None
    return NodeReason(tuple(counts))


def format_node_reason(counts: Mapping[Reason, int], cards: int) -> str:
    """Return the text of a node reason: entries sorted as text.

    >>> format_node_reason({Reason.UUID_MISMATCH: 1, Reason.INSUFFICIENT_MEMORY: 1}, 2)
    '1/2 CardInsufficientMemory, 1/2 CardUuidMismatch'
    """
    return ", ".join(sorted(f"{count}/{cards} {reason}" for reason, count in counts.items()))


def parse_failed_scheduling(message: str) -> FailedScheduling:
    """Return the parts of a ``FailedScheduling`` message. Raises ReasonError when it has another form.

    kube-scheduler joins ``<nodes> <reason>`` by a comma, and HAMi's reasons hold commas: an entry that starts with
    ``<n>/<m>`` continues the one before.

    >>> parse_failed_scheduling("0/3 nodes are available: 1 1/2 CardCordoned, 1/2 CardUuidMismatch, 2 x. tail").reasons
    ((1, '1/2 CardCordoned, 1/2 CardUuidMismatch'), (2, 'x'))
    """
    head = _HEAD.match(message)
    if head is None:
        raise ReasonError(f"expected '0/N nodes are available: …', seen {message[:200]!r}")
    rest = message[head.end() :]
    parts = _TAIL.split(rest, maxsplit=1) if _TAIL.search(rest) else rest.split(". ", 1)
    body, tail = parts[0].removesuffix("."), "".join(parts[1:])
    entries: list[tuple[int, str]] = []
    for piece in body.split(", "):
        match = _ENTRY.fullmatch(piece)
        if match is None or _COUNTED.fullmatch(piece):
            if not entries:
                raise ReasonError(f"expected '<nodes> <reason>', seen {piece[:100]!r}")
            entries[-1] = (entries[-1][0], f"{entries[-1][1]}, {piece}")
        else:
            entries.append((int(match[1]), match[2]))
    return FailedScheduling(int(head[1]), tuple(entries), tail)


def format_failed_scheduling(failed: FailedScheduling) -> str:
    """Return kube-scheduler's message: entries sorted as text, then what follows the reasons.

    >>> format_failed_scheduling(FailedScheduling(3, ((2, "NodeInsufficientDevice"), (1, "x")), "tail"))
    '0/3 nodes are available: 1 x, 2 NodeInsufficientDevice. tail'
    """
    listed = ", ".join(sorted(f"{count} {reason}" for count, reason in failed.reasons))
    return f"0/{failed.nodes} nodes are available: {listed}." + (f" {failed.tail}" if failed.tail else "")
