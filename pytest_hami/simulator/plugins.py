"""A model of HAMi's device plugin for all simulated nodes: it registers cards and answers Allocate through the API."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_hami.contract import register
from pytest_hami.contract.register import Device
from pytest_hami.kubelet.plugin import AllocateError, Answer, Node, Share
from pytest_hami.simulator.allocate import NodeConfig, NodeRules, allocate
from pytest_hami.simulator.client import Api, ApiError

REGISTER = "hami.io/node-nvidia-register"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_PHASE = "hami.io/bind-phase"
LOCK = "hami.io/mutex.lock"


class ModelPlugins:
    """The modelled plugins; see ``kubelet.plugin.Plugins``."""

    def __init__(self, api: Api, rules: NodeRules) -> None:
        self._api = api
        self._rules = rules
        self._cards: dict[str, tuple[Device, ...]] = {}
        self._configs: dict[str, NodeConfig] = {}
        self._kubelet: Node | None = None

    async def start(self, kubelet: Node) -> None:
        """Remember whom to tell."""
        self._kubelet = kubelet

    async def stop(self) -> None:
        """Do nothing: there is no process."""

    def arrival(self, node: str, cards: Sequence[Device]) -> tuple[Mapping[str, str], tuple[Share, ...]]:
        """Return the register annotation and the shares: a simulated node arrives whole."""
        self._cards[node] = tuple(cards)
        self._configs[node] = NodeConfig()
        devices = self._registered(node)
        return ({REGISTER: register.encode(devices)} if devices else {}), self._shares(devices)

    async def run(self, nodes: Sequence[str]) -> None:
        """Do nothing: the nodes arrived whole."""

    async def remove(self, nodes: Sequence[str]) -> None:
        """Forget nodes."""
        for node in nodes:
            del self._cards[node]
            del self._configs[node]

    async def configure(self, node: str, config: Mapping[str, Any]) -> None:
        """Register the cards of a node as another configuration has it. Raises ValueError, ApiError."""
        self._configs[node] = NodeConfig.from_dict(config)
        await self.restart([node])

    async def restart(self, nodes: Sequence[str]) -> None:
        """Register the cards again. Raises ApiError."""
        assert self._kubelet is not None
        for node in nodes:
            devices = self._registered(node)
            await self._kubelet.annotate(node, {REGISTER: register.encode(devices)})
            await self._kubelet.advertise(node, self._shares(devices))

    async def prefer(self, node: str, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """Return nothing: the cards are in the annotation."""
        return ()

    async def allocate(self, node: str, pod: Mapping[str, Any], ids: Sequence[str]) -> Answer:
        """Serve the next entry of the pod's annotation, then tell phase and lock. Raises AllocateError, ApiError."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        current = await self._api.get(path)
        text = (current["metadata"].get("annotations") or {}).get(TO_ALLOCATE)
        try:
            answer, text = allocate(pod, text, len(ids), self._configs[node], self._rules)
        except AllocateError:
            await self._api.merge_patch(path, {"metadata": {"annotations": {BIND_PHASE: "failed"}}})
            await self._release_lock(node, pod)
            raise
        phase = self._rules.phase_after(text)
        notes = {TO_ALLOCATE: text} | ({BIND_PHASE: phase} if phase else {})
        await self._api.merge_patch(path, {"metadata": {"annotations": notes}})
        if phase:
            await self._release_lock(node, pod)
        return answer

    def _registered(self, node: str) -> tuple[Device, ...]:
        return tuple(self._rules.register(device, self._configs[node]) for device in self._cards[node])

    def _shares(self, devices: Sequence[Device]) -> tuple[Share, ...]:
        return tuple(
            Share(f"{device.id}-{number}", device.health)
            for device in devices
            for number in range(self._rules.shares_of(device))
        )

    async def _release_lock(self, name: str, pod: Mapping[str, Any]) -> None:
        path = f"/api/v1/nodes/{name}"
        node = await self._api.get(path)
        value = (node["metadata"].get("annotations") or {}).get(LOCK, "")
        if value and self._rules.releases_lock(value, pod["metadata"]["namespace"], pod["metadata"]["name"]):
            version = node["metadata"]["resourceVersion"]
            with contextlib.suppress(ApiError):
                await self._api.merge_patch(
                    path, {"metadata": {"resourceVersion": version, "annotations": {LOCK: None}}}
                )
