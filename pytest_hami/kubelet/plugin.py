"""The device plugin as kubelet knows it: what it advertises, what it is asked, what it answers.

Source: Kubernetes, k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_hami.contract.env import Mount
from pytest_hami.contract.register import Device


@dataclass(frozen=True)
class Share:
    """One id that a plugin advertises, its health and the NUMA nodes that it hints at."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeviceSpec:
    """A device node that a container gets."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True)
class Answer:
    """What a plugin answers for one container."""

    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class AllocateError(Exception):
    """An Allocate that fails: the text of the gRPC status, and its ``code`` as Go spells it."""

    def __init__(self, text: str, code: str = "Unknown") -> None:
        super().__init__(text)
        self.code = code


class Node(Protocol):
    """What the plugins of a node tell kubelet, and what they do to the Node object. Every call raises on a lost API."""

    async def advertise(self, node: str, shares: Sequence[Share]) -> None:
        """Take a device list: ListAndWatch."""

    async def annotation(self, node: str, key: str) -> str | None:
        """Return an annotation of the node."""

    async def annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        """Patch annotations of the node; None removes one."""

    async def changed(self, node: str, key: str, old: str | None, limit: float) -> str:
        """Return an annotation of the node once it is there and not ``old``. Raises TimeoutError after ``limit`` s."""


class Plugins(Protocol):
    """The device plugins of all nodes: who registers cards and who answers Allocate."""

    async def start(self, kubelet: Node) -> None:
        """Begin; ``kubelet`` is told what each plugin advertises."""

    async def stop(self) -> None:
        """End all plugins; nodes stay as they are in the API."""

    def arrival(self, node: str, cards: Sequence[Device]) -> tuple[Mapping[str, str], tuple[Share, ...]]:
        """Return annotations and shares with which a node can arrive whole; empty where its plugin writes them later.

        Raises ValueError for cards that this kind of plugin cannot have.
        """

    async def run(self, nodes: Sequence[str]) -> None:
        """Run the plugins of nodes that arrived, until each is registered with kubelet and with HAMi."""

    async def remove(self, nodes: Sequence[str]) -> None:
        """End the plugins of nodes that are gone."""

    async def configure(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart the plugin of a node with other node-config values. Raises ValueError naming an unknown one."""

    async def restart(self, nodes: Sequence[str]) -> None:
        """Restart plugins as they are configured, until each is registered again."""

    async def prefer(self, node: str, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """Return the ids that the plugin would rather have taken; none where it does not care."""

    async def allocate(self, node: str, pod: Mapping[str, Any], ids: Sequence[str]) -> Answer:
        """Answer for one container; ``pod`` is who kubelet asks for, which a real plugin is not told.

        Raises AllocateError.
        """
