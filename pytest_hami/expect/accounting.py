"""What each card should carry, and what HAMi's metrics say it carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.register import Device


@dataclass(frozen=True)
class Use:
    """Use of one card: memory in MiB, cores in percent of a card, shares as a count."""

    memory: int = 0
    cores: int = 0
    shares: int = 0

    def __add__(self, other: Use) -> Use:
        return Use(self.memory + other.memory, self.cores + other.cores, self.shares + other.shares)

    def at_least(self, other: Use) -> Use:
        """Return the larger value of each dimension."""
        return Use(max(self.memory, other.memory), max(self.cores, other.cores), max(self.shares, other.shares))

    def __str__(self) -> str:
        return f"{self.memory} MiB, {self.cores} % cores, {self.shares} shares"


NOTHING = Use()


def pod_use(shares: Iterable[tuple[bool, DeviceShare]]) -> dict[str, Use]:
    """Return what a pod reserves on each card, from ``(is_init, share)`` pairs.

    Init containers run one after another, so their maximum counts; app containers run together, so their sum does.
    Source: HAMi 2.10.0, pkg/device/initContainer.go.
    """
    init: dict[str, Use] = {}
    app: dict[str, Use] = {}
    for is_init, share in shares:
        use = Use(share.memory, share.cores, 1)
        if is_init:
            init[share.uuid] = init.get(share.uuid, NOTHING).at_least(use)
        else:
            app[share.uuid] = app.get(share.uuid, NOTHING) + use
    return {uuid: init.get(uuid, NOTHING).at_least(app.get(uuid, NOTHING)) for uuid in sorted({*init, *app})}


def node_score(uses: Mapping[str, Use], devices: Iterable[Device]) -> float:
    """Return the score that HAMi gives a node with this use by card: ten times the used parts of shares, cores, memory.

    Source: HAMi 2.10.0, pkg/scheduler/policy/node_policy.go (ComputeDefaultScore).
    """
    cards = list(devices)
    used = [uses.get(card.id, NOTHING) for card in cards]
    parts = (
        (sum(use.shares for use in used), sum(card.count for card in cards)),
        (sum(use.cores for use in used), sum(card.devcore for card in cards)),
        (sum(use.memory for use in used), sum(card.devmem for card in cards)),
    )
    return 0.0 if any(whole == 0 for _, whole in parts) else 10 * sum(part / whole for part, whole in parts)


def total(uses: Iterable[Mapping[str, Use]]) -> dict[str, Use]:
    """Return the sum over pods by card."""
    result: dict[str, Use] = {}
    for by_card in uses:
        for uuid, use in by_card.items():
            result[uuid] = result.get(uuid, NOTHING) + use
    return result
