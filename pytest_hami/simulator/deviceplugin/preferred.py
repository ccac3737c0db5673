"""Which shares a device plugin would rather have taken: those of the cards that the scheduler chose.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go (GetPreferredAllocation).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.simulator.deviceplugin.entries import Entries

_DASHES_OF_A_SHARE = 6
_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Choice:
    """What kubelet asks for one container: free ids in their order, ids that must be among them, how many."""

    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int


def card_of(id: str) -> str:
    """Return the card of a share.

    >>> card_of("GPU-1-2-3-4-5-7"), card_of("GPU-1-2-3-4-5"), card_of("GPU-1::3")
    ('GPU-1-2-3-4-5', 'GPU-1-2-3-4-5', 'GPU-1')
    """
    if "::" in id:
        return id.split("::", 1)[0]
    card, _, number = id.rpartition("-")
    return card if id.count("-") == _DASHES_OF_A_SHARE and _NUMBER.fullmatch(number) else id


def preferred(choices: Sequence[Choice], entries: Entries) -> list[tuple[str, ...]]:
    """Return the preferred ids, one group for each container that could be helped; the others get none at all."""
    waiting = [shares for shares in entries if shares]
    found = (_select(choice, shares) for choice, shares in zip(choices, waiting, strict=False))
    return [ids for ids in found if ids is not None]


def _select(choice: Choice, shares: Sequence[DeviceShare]) -> tuple[str, ...] | None:
    if len(shares) < choice.size:
        return None
    required = [card_of(id) for id in choice.required]
    free: dict[str, list[str]] = {}
    for id in choice.available:
        if id not in choice.required:
            free.setdefault(card_of(id), []).append(id)
    selected = list(choice.required)
    for share in shares[: choice.size]:
        card = card_of(share.uuid)
        if card in required:
            required.remove(card)
        elif free.get(card):
            selected.append(free[card].pop(0))
        else:
            return None
    return tuple(selected) if len(selected) == choice.size else None
