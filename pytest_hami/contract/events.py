"""HAMi's events on pods. Source: HAMi 2.10.0, pkg/scheduler/event.go and pkg/scheduler/scheduler.go."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FilterFailed:
    """``count`` nodes were refused for one reason."""

    count: int
    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NoAvailableNode:
    """The closing event of an attempt in which no node fits."""

    count: int


@dataclass(frozen=True)
class FilterSucceeded:
    """A node was chosen; scores of all fitting nodes, two decimals, in HAMi's order (the chosen one last)."""

    node: str
    not_fit: int
    scores: Mapping[str, float]


@dataclass(frozen=True)
class BindSucceeded:
    """The pod was bound."""

    node: str
    namespace: str
    pod: str


@dataclass(frozen=True)
class BindFailed:
    """The bind failed with this text."""

    text: str


@dataclass(frozen=True)
class CalcScoreFailed:
    """Scoring failed, for example on bad weights."""

    text: str


@dataclass(frozen=True)
class OtherFilterFailure:
    """Another text under ``FilteringFailed``, such as the API error of a failed patch."""

    text: str


Event = (
    FilterFailed | NoAvailableNode | FilterSucceeded | BindSucceeded | BindFailed | CalcScoreFailed | OtherFilterFailure
)

_FAILED = re.compile(r"(\d+) nodes ([A-Za-z]+)\(([^()]*)\)")
_CLOSING = re.compile(r"no available node, (\d+) nodes do not meet")
_SUCCEEDED = re.compile(r"find fit node\(([^()]*)\), (\d+) nodes not fit, (\d+) nodes fit\((.*)\)")
_BOUND = re.compile(r"Successfully binding node \[([^\]]*)\] to ([^/]*)/(.*)")


class EventError(ValueError):
    """An event of HAMi whose text breaks the grammar."""


def parse_event(reason: str, message: str) -> Event:
    """Return a HAMi event. Raises EventError for an unknown reason or a malformed success.

    >>> parse_event("FilteringFailed", "1 nodes CardInsufficientMemory(n1)")
    FilterFailed(count=1, reason='CardInsufficientMemory', nodes=('n1',))
    """
    if reason == "FilteringFailed":
        return _filtering_failed(message)
    if reason == "BindingFailed":
        return BindFailed(message)
    if reason == "BindingSucceed" and (match := _BOUND.fullmatch(message)):
        return BindSucceeded(match[1], match[2], match[3])
    if reason == "FilteringSucceed" and (match := _SUCCEEDED.fullmatch(message)):
        scores = {}
        for entry in match[4].split(","):
            node, _, score = entry.rpartition(":")
            try:
                scores[node] = float(score)
            except ValueError:
                raise EventError(f"expected node:score, seen {entry[:80]!r}") from None
        if len(scores) != int(match[3]):
            raise EventError(f"expected {match[3]} scores, seen {message[:200]!r}")
        return FilterSucceeded(match[1], int(match[2]), scores)
    raise EventError(f"not an event of HAMi: {reason}: {message[:200]!r}")


def _filtering_failed(message: str) -> Event:
    if match := _CLOSING.fullmatch(message):
        return NoAvailableNode(int(match[1]))
    if match := _FAILED.fullmatch(message):
        return FilterFailed(int(match[1]), match[2], tuple(match[3].split(",")))
    if message.startswith("calcScore failed "):
        return CalcScoreFailed(message)
    return OtherFilterFailure(message)


def filter_failed(reason: str, nodes: Sequence[str]) -> str:
    """Return the text for the nodes refused for one reason, names sorted."""
    return f"{len(nodes)} nodes {reason}({','.join(sorted(nodes))})"


def no_available_node(count: int) -> str:
    """Return the closing text of an attempt over ``count`` nodes."""
    return f"no available node, {count} nodes do not meet"


def filter_succeeded(node: str, not_fit: int, scores: Sequence[tuple[str, float]]) -> str:
    """Return the text of a choice; ``scores`` in HAMi's order, the chosen node last."""
    listed = ",".join(f"{name}:{_score(score)}" for name, score in scores)
    return f"find fit node({node}), {not_fit} nodes not fit, {len(scores)} nodes fit({listed})"


def _score(score: float) -> str:
    if math.isfinite(score):
        return f"{score:.2f}"
    return "NaN" if math.isnan(score) else f"{'+' if score > 0 else '-'}Inf"


def bind_succeeded(node: str, namespace: str, pod: str) -> str:
    """Return the text of a successful bind; the brackets are literal."""
    return f"Successfully binding node [{node}] to {namespace}/{pod}"
