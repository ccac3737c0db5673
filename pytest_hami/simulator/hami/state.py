"""The records that the model keeps: cards in use, nodes and pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_hami.contract.quantities import to_int32
from pytest_hami.contract.register import Device

WORD = "NVIDIA"
REGISTER = "hami.io/node-nvidia-register"
SCORE = "hami.io/node-nvidia-score"
HANDSHAKE = "hami.io/node-handshake"
CORDON = "hami.io/device-cordon"
VGPU_NODE = "hami.io/vgpu-node"
VGPU_TIME = "hami.io/vgpu-time"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
BIND_TIME = "hami.io/bind-time"
BIND_PHASE = "hami.io/bind-phase"


@dataclass(slots=True)
class Card:
    """A card and what is taken of it: shares, MiB, percent. ``score`` is that of the request being fitted."""

    device: Device
    used: int = 0
    memory: int = 0
    cores: int = 0
    score: float = 0.0

    def take(self, shares: int, memory: int, cores: int) -> None:
        """Add a use of the card; HAMi counts in 32 bits."""
        self.used += shares
        self.memory = to_int32(self.memory + memory)
        self.cores = to_int32(self.cores + cores)

    def copy(self) -> Card:
        """Return an independent record."""
        return replace(self)


@dataclass(frozen=True)
class CardShare:
    """What one pod takes of one card: MiB, percent and shares, and the position of the container, where it is kept."""

    uuid: str
    memory: int
    cores: int
    shares: int
    position: int = 0


@dataclass(frozen=True)
class NodeRecord:
    """A node as the scheduler cached it: the devices and the Node object of the last refresh."""

    devices: tuple[Device, ...]
    node: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class PodRecord:
    """A pod that holds room on a node."""

    namespace: str
    name: str
    node: str
    usage: tuple[CardShare, ...]
    shrunk: bool = False


def meta(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of an object, empty when absent."""
    return item.get("metadata") or {}


def notes_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object, empty when absent."""
    return meta(item).get("annotations") or {}


def spec(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of an object, empty when absent."""
    return item.get("spec") or {}


def uid_of(pod: Mapping[str, Any]) -> str:
    """Return the UID of a pod; without one (direct calls of the extender) namespace and name stand in."""
    return str(meta(pod).get("uid") or f"{meta(pod).get('namespace')}/{meta(pod).get('name')}")
