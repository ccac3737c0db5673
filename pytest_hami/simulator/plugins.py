"""The modelled device plugins of all simulated nodes: the model's decisions, carried out through the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_hami.contract import register
from pytest_hami.contract.register import Device
from pytest_hami.kubelet.plugin import Answer, Node, Share
from pytest_hami.simulator.client import Api, ApiError
from pytest_hami.simulator.deviceplugin.machine import Card, Machine
from pytest_hami.simulator.deviceplugin.objects import ObjectError, Pod, PodKey
from pytest_hami.simulator.deviceplugin.plugin import DevicePlugin
from pytest_hami.simulator.deviceplugin.preferred import Choice
from pytest_hami.simulator.deviceplugin.registration import REGISTER
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import CHART, NODE_KEYS, settings

HEALTH = "health"
"""The key of a simulated node's configuration that no real one has: by UUID whether a card is healthy."""
# Simulated cards have shares of their own, so that the chart's do not count.
_DEVICE_CONFIG = {key: value for key, value in CHART.items() if key != "deviceSplitCount"}


class ModelPlugins:
    """The modelled plugins; see ``kubelet.plugin.Plugins``."""

    def __init__(self, api: Api, rules: NodeRules) -> None:
        self._objects = ApiObjects(api)
        self._rules = rules
        self._cards: dict[str, tuple[Device, ...]] = {}
        self._plugins: dict[str, DevicePlugin] = {}
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._kubelet: Node | None = None

    async def start(self, kubelet: Node) -> None:
        """Remember whom to tell."""
        self._kubelet = kubelet

    async def stop(self) -> None:
        """Do nothing: there is no process."""

    def arrival(self, node: str, cards: Sequence[Device]) -> tuple[Mapping[str, str], tuple[Share, ...]]:
        """Return the register annotation and the shares: a simulated node arrives whole."""
        self._cards[node] = tuple(cards)
        self._configs[node] = {}
        plugin = self._start(node)
        devices = plugin.devices()
        return ({REGISTER: register.encode(devices)} if devices else {}), plugin.shares()

    async def run(self, nodes: Sequence[str]) -> None:
        """Do nothing: the nodes arrived whole."""

    async def remove(self, nodes: Sequence[str]) -> None:
        """Forget nodes."""
        for node in nodes:
            del self._cards[node], self._configs[node], self._plugins[node]

    async def configure(self, node: str, config: Mapping[str, Any]) -> None:
        """Start a node's plugin with another node config. Raises ValueError, ApiError."""
        unknown = sorted(set(config) - NODE_KEYS - {HEALTH})
        if unknown:
            known = ", ".join(sorted(NODE_KEYS | {HEALTH}))
            raise ValueError(f"unknown node-config key {unknown[0]!r}; known are {known}")
        self._configs[node] = config
        await self.restart([node])

    async def restart(self, nodes: Sequence[str]) -> None:
        """Start plugins anew: they register their cards again. Raises ApiError."""
        assert self._kubelet is not None
        for node in nodes:
            plugin = self._start(node)
            await self._kubelet.annotate(node, {REGISTER: register.encode(plugin.devices())})
            await self._kubelet.advertise(node, plugin.shares())

    async def prefer(self, node: str, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """Return the ids of the cards that the scheduler chose, none where the plugin does not offer that."""
        plugin = self._plugins[node]
        if not plugin.settings.prefers:
            return ()
        found = await plugin.prefer([Choice(tuple(available), tuple(required), size)])
        return found[0] if found else ()

    async def allocate(self, node: str, pod: Mapping[str, Any], ids: Sequence[str]) -> Answer:
        """Answer for one container of the pod that the node lock names. Raises AllocateError, ApiError."""
        (answer,) = await self._plugins[node].allocate([ids])
        return answer

    def _start(self, node: str) -> DevicePlugin:
        config = dict(self._configs[node])
        healthy = config.pop(HEALTH, None) or {}
        found = settings(node, _DEVICE_CONFIG, [{**config, "name": node}])
        cards = self._cards[node]
        plugin = DevicePlugin(found, Machine(tuple(Card.of(card) for card in cards)), self._objects, self._rules)
        plugin.healthy |= {card.id: healthy.get(card.id, card.health) for card in cards}
        self._plugins[node] = plugin
        return plugin


class ApiObjects:
    """The objects of an API server; see ``deviceplugin.objects.Objects``. A lost API server raises ApiError."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def node_annotations(self, name: str) -> Mapping[str, str]:
        """Return the annotations of a node."""
        return self._notes(await self._call(self._api.get(f"/api/v1/nodes/{name}")))

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a node."""
        await self._call(
            self._api.merge_patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": dict(annotations)}})
        )

    async def pod(self, key: PodKey) -> Pod:
        """Return a pod."""
        found: Pod = await self._call(self._api.get(_path(key)))
        return found

    async def pods(self, node: str) -> Sequence[Pod]:
        """Return the pods that are bound to a node."""
        found = await self._call(self._api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"))
        items: Sequence[Pod] = found["items"]
        return items

    async def annotate_pod(self, key: PodKey, annotations: Mapping[str, str], version: str | None = None) -> Pod:
        """Change annotations of a pod and return it."""
        metadata: dict[str, Any] = {"annotations": dict(annotations)}
        if version is not None:
            metadata["resourceVersion"] = version
        found: Pod = await self._call(self._api.merge_patch(_path(key), {"metadata": metadata}))
        return found

    @staticmethod
    async def _call(request: Any) -> Any:
        try:
            return await request
        except ApiError as error:
            if error.code == 0:
                raise
            raise ObjectError(error.message) from error

    @staticmethod
    def _notes(found: Mapping[str, Any]) -> Mapping[str, str]:
        return found["metadata"].get("annotations") or {}


def _path(key: PodKey) -> str:
    return f"/api/v1/namespaces/{key[0]}/pods/{key[1]}"
