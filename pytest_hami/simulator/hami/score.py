"""Scores and orders of cards and nodes (HAMi, pkg/scheduler/policy/, pkg/util/device_scoring_weights.go).

HAMi computes in 32-bit floats; each operation is rounded here, since near-ties decide placements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from itertools import combinations

from pytest_hami.contract.quantities import UNSET_PERCENT, ContainerRequest, to_int32
from pytest_hami.simulator.hami.state import Card

WEIGHTS = "hami.io/device-scoring-weights"
_FACTOR = 10.0
_INTEGER = re.compile(r"[+-]?\d+")
_CHAIN = ("binpack", "spread", "numa")


def f32(value: float) -> float:
    """Return the nearest 32-bit float."""
    return c_float(value).value


@dataclass(frozen=True)
class Weights:
    """How much shares, cores and memory count in the score of a card."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class WeightsError(ValueError):
    """A weights annotation that HAMi refuses; the text is HAMi's."""


def parse_weights(text: str | None) -> Weights:
    """Return the weights of the annotation ``hami.io/device-scoring-weights``. Raises WeightsError.

    >>> parse_weights("slot=5, core=0, memory=0")
    Weights(slot=5, core=0, memory=0)
    """
    if text is None:
        return Weights()
    prefix = f'invalid {WEIGHTS} annotation "{text}": '
    entries = text.split(",")
    if len(entries) != 3:
        raise WeightsError(prefix + "expected slot, core, and memory weights")
    found: dict[str, int] = {}
    for entry in entries:
        key, separator, number = (piece.strip() for piece in entry.partition("="))
        if not separator:
            raise WeightsError(prefix + "expected key=value entries")
        if key in found:
            raise WeightsError(f'{prefix}duplicate "{key}" weight')
        if not _INTEGER.fullmatch(number):
            raise WeightsError(f'{prefix}"{key}" weight must be an integer')
        if int(number) < 0:
            raise WeightsError(f'{prefix}"{key}" weight must not be negative')
        if key not in ("slot", "core", "memory"):
            raise WeightsError(f'{prefix}unknown weight "{key}"')
        found[key] = int(number)
    if not any(found.values()):
        raise WeightsError(prefix + "at least one weight must be positive")
    return Weights(**found)


def _ratio(part: int, whole: int) -> float:
    if whole == 0:
        return math.copysign(math.inf, part) if part else math.nan
    return f32(f32(part) / f32(whole))


def node_score(cards: Sequence[Card], guarded: bool = True) -> float:
    """Return ten times the sum of the used parts of shares, cores and memory.

    When a total is 0, the score is 0 if ``guarded``, else what the division gives: no number, or infinity.
    """
    count = sum(card.device.count for card in cards)
    cores = sum(card.device.devcore for card in cards)
    memory = sum(card.device.devmem for card in cards)
    if guarded and 0 in (count, cores, memory):
        return 0.0
    total = f32(_ratio(sum(card.used for card in cards), count) + _ratio(sum(card.cores for card in cards), cores))
    return f32(_FACTOR * f32(total + _ratio(sum(card.memory for card in cards), memory)))


def card_score(card: Card, request: ContainerRequest | None, weights: Weights) -> float:
    """Return ten times the weighted used parts of one card, ``request`` included where given."""
    device = card.device
    if 0 in (device.count, device.devcore, device.devmem):
        return 0.0
    shares, cores, memory = 0, 0, 0
    if request is not None:
        shares, cores, memory = 1, request.cores, request.memory
        if request.percent not in (0, UNSET_PERCENT):
            memory = to_int32(device.devmem * request.percent // 100)
    slot = f32(f32(weights.slot) * _ratio(shares + card.used, device.count))
    core = f32(f32(weights.core) * _ratio(to_int32(cores + card.cores), device.devcore))
    mem = f32(f32(weights.memory) * _ratio(to_int32(memory + card.memory), device.devmem))
    return f32(_FACTOR * f32(f32(slot + core) + mem))


def card_score_2_8(card: Card, request: ContainerRequest) -> float:
    """Return the score of HAMi 2.8.3: the request always counts, with all its cards; of a percentage only 100 does."""
    device, memory = card.device, request.memory
    if request.percent not in (0, UNSET_PERCENT):
        memory = device.devmem * (request.percent // 100)
    slot = _ratio(request.count + card.used, device.count)
    core = _ratio(to_int32(request.cores + card.cores), device.devcore)
    mem = _ratio(to_int32(memory + card.memory), device.devmem)
    return f32(_FACTOR * f32(f32(slot + core) + mem))


def card_key(card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
    """Return the ascending sort key of a card under a policy; the preferred card sorts last.

    An unknown single word spreads. ``numa`` and every comma list form a chain that ends with the index.
    """
    if policy == "numa" or "," in policy:
        return _chain_key(card, policy, numa_bind)
    if policy == "mutex":
        return (-card.used, card.device.numa)
    return single_key(card, policy, numa_first=numa_bind)


def single_key(card: Card, policy: str, *, numa_first: bool) -> tuple[float, ...]:
    """Return the ascending sort key of a card under one word; any word but ``binpack`` spreads."""
    numa = card.device.numa
    if policy == "binpack":
        return (-numa, card.score) if numa_first else (card.score, numa)
    return (numa, -card.score) if numa_first else (-card.score, numa)


def _chain_key(card: Card, policy: str, numa_bind: bool) -> tuple[float, ...]:
    words = [word.strip() for word in policy.split(",")]
    chain = list(dict.fromkeys(word for word in words if word in _CHAIN)) or ["spread"]
    if numa_bind:
        chain = ["numa", *(word for word in chain if word != "numa")]
    parts = {"binpack": card.score, "spread": -card.score, "numa": card.device.numa}
    return (*(parts[word] for word in chain), card.device.index)


def pick_topology(
    uuids: Sequence[str], wanted: int, scores: Mapping[str, Mapping[str, int]], needs_scores: bool = False
) -> tuple[int, ...]:
    """Return the positions that topology-aware takes out of more cards than wanted.

    One card: the worst connected. Several: the best connected set, the first of equals; where ``needs_scores``, none
    when no set has a score above 0.
    """

    def pair(first: int, second: int) -> int:
        return scores.get(uuids[first], {}).get(uuids[second], 0)

    positions = range(len(uuids))
    if wanted == len(uuids):
        return tuple(positions)
    if wanted == 1:
        others = [[at for at in positions if uuids[at] != uuids[one]] for one in positions]
        return (min(positions, key=lambda one: sum(pair(one, other) for other in others[one])),)

    def total(chosen: tuple[int, ...]) -> int:
        return sum(pair(a, b) for a, b in combinations(chosen, 2))

    best = max(combinations(positions, wanted), key=total)
    return () if needs_scores and total(best) <= 0 else best
