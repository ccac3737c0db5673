"""What a device plugin finds on its machine: cards as NVML tells them, links between them, files.

Source: NVIDIA's NVML API reference; HAMi 2.10.0, pkg/device/nvidia/links.go and calculate_score.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hami.contract.register import Device, Placement

NOT_SUPPORTED, NOT_FOUND = 3, 6
_ERRORS = {
    1: "Uninitialized", 2: "Invalid Argument", NOT_SUPPORTED: "Not Supported", 4: "Insufficient Permissions",
    NOT_FOUND: "Not Found", 7: "Insufficient Size", 9: "Driver Not Loaded", 10: "Timeout", 15: "GPU is lost",
    19: "In use by another client", 23: "Insufficient Resources",
}  # fmt: skip
_COMMON_ANCESTOR = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}
MOST_NVLINKS = 18
"""More of a card are not looked at."""


def error_text(code: int) -> str:
    """Return what NVML says of a code."""
    return _ERRORS.get(code, "Unknown Error")


@dataclass(frozen=True)
class Card:
    """One card: memory in MiB, 0 where NVML does not tell it; ``mig`` is None where the card cannot be cut.

    ``cores`` in percent, ``shares`` and ``mode`` are those of a simulated card that has its own, whatever is configured.
    """

    uuid: str
    index: int
    name: str
    memory: int
    numa: int | None = None
    minor: int | None = None
    mig: bool | None = None
    cores: int = 100
    shares: int | None = None
    mode: str | None = None

    @property
    def path(self) -> str:
        """The card's device node."""
        return f"/dev/nvidia{self.index if self.minor is None else self.minor}"

    @classmethod
    def of(cls, device: Device) -> Card:
        """Return the card that is registered like this."""
        return cls(
            device.id, device.index, device.type, device.devmem, device.numa,
            cores=device.devcore, shares=device.count, mode=device.mode,
        )  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """A size of MIG instances: memory in MiB, slices, how many at most, multiprocessors, where they may lie."""

    memory: int
    slices: int
    instances: int
    multiprocessors: int
    placements: tuple[Placement, ...]


# NVIDIA MIG user guide, A100-SXM4-40GB; by the slices that a profile's name begins with.
A100_40GB: Mapping[str, Profile] = {
    "1g": Profile(4864, 1, 7, 14, tuple(Placement(start, 1) for start in range(7))),
    "2g": Profile(9856, 2, 3, 28, tuple(Placement(start, 2) for start in (0, 2, 4))),
    "3g": Profile(19968, 3, 2, 42, (Placement(0, 4), Placement(4, 4))),
    "4g": Profile(19968, 4, 1, 56, (Placement(0, 4),)),
    "7g": Profile(40192, 7, 1, 98, (Placement(0, 8),)),
}


@dataclass(frozen=True)
class Link:
    """What connects two cards: the level of their common ancestor (10 to 50) and NVLinks, through a switch or not."""

    level: int = 50
    nvlinks: int = 0
    switch: bool = False


@dataclass(frozen=True)
class Machine:
    """A node's machine. ``links`` by two indexes, ``failures`` are codes of NVML's functions that fail.

    ``files`` are those of the plugin's own paths that exist; ``nvml`` whether the loader finds NVML's library.
    """

    cards: tuple[Card, ...]
    profiles: Mapping[str, Profile] = field(default_factory=lambda: A100_40GB)
    links: Mapping[frozenset[int], Link] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    nvml: bool = True
    driver: str = "550.163.01"
    version: str = "v2.10.0"

    def pair_score(self, one: Card, other: Card) -> int:
        """Return how well two cards are connected: the common ancestor, and 100 for each NVLink.

        Links through a switch count as the fewer of all that the two have.
        """
        link = self.links.get(frozenset({one.index, other.index}), Link())
        nvlinks = 0 if link.switch else link.nvlinks
        if not nvlinks:
            nvlinks = min(self._switched(one), self._switched(other))
        return _COMMON_ANCESTOR[link.level] + 100 * (nvlinks if nvlinks <= MOST_NVLINKS else 0)

    def _switched(self, card: Card) -> int:
        links = [link for pair, link in self.links.items() if card.index in pair and link.switch]
        return min(sum(link.nvlinks for link in links), MOST_NVLINKS)

    def card(self, uuid: str) -> Card | None:
        """Return a card by its UUID."""
        return next((card for card in self.cards if card.uuid == uuid), None)
