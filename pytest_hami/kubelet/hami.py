"""HAMi's own device plugin, one process a node, each in its lane with our NVML stand-in and our kubelet's socket.

Flags, files and variables: HAMi 2.10.0, cmd/device-plugin/nvidia/main.go, charts/hami/templates/device-plugin and
pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pytest_hami.contract.register import Device
from pytest_hami.kubelet import lane as lanes
from pytest_hami.kubelet import nvml
from pytest_hami.kubelet.endpoint import Endpoint
from pytest_hami.kubelet.lane import Lane, Lanes
from pytest_hami.kubelet.plugin import AllocateError, Answer, Node, Share
from pytest_hami.kubelet.program import HamiProgram
from pytest_hami.kubelet.registration import Registered, RegistrationServer
from pytest_hami.processes import ClusterUnavailable, Process

T = TypeVar("T")

REGISTER = "hami.io/node-nvidia-register"
START_LIMIT = 20.0
# A call waits for those before it, and each costs the plugin's API client 1.6 s once its burst is used up.
CALL_LIMIT = 60.0
# Share ids are <UUID>-<number>, and are told from a UUID by their dashes (pkg/device-plugin/.../rm/allocate.go).
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NODE_KEYS = frozenset({
    "operatingmode", "devicememoryscaling", "devicecorescaling", "devicesplitcount", "preconfigureddevicememory",
    "libcudaloglevel", "enablenumatopology", "migstrategy", "filterdevices", "enablegetpreferredallocation",
})  # fmt: skip


@dataclass
class _Plugin:
    node: str
    lane: Lane
    cards: tuple[Device, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    server: RegistrationServer | None = None
    process: Process | None = None
    endpoint: Endpoint | None = None
    following: asyncio.Task[None] | None = None
    # Made anew with every start.
    listed: asyncio.Future[None] | None = None
    ended: asyncio.Future[str] | None = None


class HamiPlugins:
    """The plugins of all nodes; see ``kubelet.plugin.Plugins``. Every call may raise ClusterUnavailable."""

    def __init__(self, program: HamiProgram, lanes_: Lanes, on_loss: Callable[[str], None]) -> None:
        """``on_loss`` is told, on the event loop, why a plugin ended when nobody had asked it to."""
        self._program = program
        self._lanes = lanes_
        self._on_loss = on_loss
        self._plugins: dict[str, _Plugin] = {}
        self._kubelet: Node | None = None

    async def start(self, kubelet: Node) -> None:
        """Remember whom to tell. Raises ClusterUnavailable where this machine allows no private mount namespace."""
        self._kubelet = kubelet
        problem = await asyncio.to_thread(self._lanes.complaint)
        if problem:
            raise ClusterUnavailable(f"device-plugin: {problem}")

    async def stop(self) -> None:
        """End all plugins."""
        await asyncio.gather(*(self._remove(plugin) for plugin in self._plugins.values()))
        self._plugins.clear()

    def arrival(self, node: str, cards: Sequence[Device]) -> tuple[Mapping[str, str], tuple[Share, ...]]:
        """Return nothing: the plugin writes annotation and shares once it runs.

        Raises ValueError for cards that one node-config cannot describe.
        """
        for card in cards:
            if not UUID.fullmatch(card.id):
                raise ValueError(
                    f"node {node}: a device plugin knows cards as GPU-8-4-4-4-12 hex digits, not {card.id!r}"
                )
        for name in ("count", "devcore", "mode"):
            values = sorted({str(getattr(card, name)) for card in cards})
            if len(values) > 1:
                raise ValueError(f"node {node}: a device plugin has one {name} for all cards, not {', '.join(values)}")
        self._plugins[node] = _Plugin(node, self._lanes.of(node), tuple(cards))
        return {}, ()

    async def run(self, nodes: Sequence[str]) -> None:
        """Start the plugins of these nodes, until each has told its shares and written its annotation."""
        await asyncio.gather(*(self._start(self._plugins[node]) for node in nodes))

    async def remove(self, nodes: Sequence[str]) -> None:
        """End the plugins of nodes that are gone."""
        await asyncio.gather(*(self._remove(self._plugins.pop(node)) for node in nodes))

    async def configure(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart the plugin of a node with other values of its node-config. Raises ValueError naming an unknown one."""
        unknown = sorted(set(config) - NODE_KEYS)
        if unknown:
            raise ValueError(f"unknown node-config key {unknown[0]!r}; known are {', '.join(sorted(NODE_KEYS))}")
        self._plugins[node].config = dict(config)
        await self.restart([node])

    async def restart(self, nodes: Sequence[str]) -> None:
        """End plugins and start them again. One that has ended by itself is not revived."""
        await asyncio.gather(*(self._restart(self._plugins[node]) for node in nodes))

    async def prefer(self, node: str, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """Return the ids that the plugin would rather have taken; none where it does not care, or does not answer."""
        # kubelet goes on with its own choice when the call fails.
        with contextlib.suppress(AllocateError):
            return await self._endpoint(node).prefer(available, required, size)
        return ()

    async def allocate(self, node: str, pod: Mapping[str, Any], ids: Sequence[str]) -> Answer:
        """Return the plugin's answer; for whom, it finds out by itself. Raises AllocateError."""
        return await self._endpoint(node).allocate(ids)

    def _endpoint(self, node: str) -> Endpoint:
        endpoint = self._plugins[node].endpoint
        if endpoint is None:
            raise AllocateError(f"no device plugin of node {node} is registered", "Unavailable")
        return endpoint

    async def _start(self, plugin: _Plugin) -> None:
        assert self._kubelet is not None
        loop = asyncio.get_running_loop()
        self._write(plugin)
        if plugin.server is None:
            try:
                plugin.server = RegistrationServer(
                    plugin.lane.directory / "device-plugins", lambda registered: self._register(plugin, registered)
                )
            except ValueError as error:
                raise ClusterUnavailable(f"device-plugin: {error}") from None
            await plugin.server.start()
        plugin.listed, plugin.ended = loop.create_future(), loop.create_future()
        ended = plugin.ended

        def tell(obituary: str) -> None:
            # The loop may be gone before the process is.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, ended, obituary)

        program = self._program
        arguments = [f"--config-file={lanes.NODE / 'device-config.yaml'}", "-v=4"]
        env = {
            "NODE_NAME": plugin.node, "KUBECONFIG": str(lanes.NODE / "kubeconfig"), "HOOK_PATH": "/usr/local",
            "LD_LIBRARY_PATH": str(lanes.NVML), nvml.FLEET: str(lanes.NODE / "fleet"),
        }  # fmt: skip
        log = program.log(f"device-plugin-{plugin.node}")
        argv = plugin.lane.command(program.program, program.library, arguments)
        plugin.process = Process(f"device-plugin of node {plugin.node}", argv, log, env, on_end=tell)
        limit = START_LIMIT * program.scale
        await self._before_end(plugin, asyncio.shield(plugin.listed), limit, "no device list for kubelet")
        written = self._kubelet.changed(plugin.node, REGISTER, None, 2 * limit)
        await self._before_end(plugin, written, limit, f"no annotation {REGISTER}")

    async def _before_end(self, plugin: _Plugin, work: Awaitable[T], limit: float, missing: str) -> T:
        """Return what ``work`` gives, unless the process ends or ``limit`` seconds pass before."""
        assert plugin.ended is not None
        assert plugin.process is not None
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, plugin.ended}
        await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return cast(T, task.result())
        task.cancel()
        if plugin.ended.done():
            raise ClusterUnavailable(plugin.ended.result())
        process = plugin.process
        raise ClusterUnavailable(f"{process.name}: {missing} within {limit:g} s; {process.last_lines()}")

    def _end(self, ended: asyncio.Future[str], obituary: str) -> None:
        if not ended.done():
            ended.set_result(obituary)
        self._on_loss(obituary)

    def _register(self, plugin: _Plugin, registered: Registered) -> None:
        # The newest registration is the one that counts.
        if plugin.following is not None:
            plugin.following.cancel()
        plugin.endpoint = Endpoint(registered, CALL_LIMIT * self._program.scale)
        plugin.following = asyncio.create_task(self._follow(plugin, plugin.endpoint), name=f"devices of {plugin.node}")

    async def _follow(self, plugin: _Plugin, endpoint: Endpoint) -> None:
        assert self._kubelet is not None
        try:
            async for shares in endpoint.device_lists():
                await self._kubelet.advertise(plugin.node, shares)
                if plugin.listed is not None and not plugin.listed.done():
                    plugin.listed.set_result(None)
        finally:
            if plugin.endpoint is endpoint:
                plugin.endpoint = None
            await endpoint.close()

    async def _restart(self, plugin: _Plugin) -> None:
        assert self._kubelet is not None
        if plugin.process is not None:
            plugin.process.require_alive()
        await self._stop(plugin)
        # So that the old text does not pass for a new one.
        await self._kubelet.annotate(plugin.node, {REGISTER: None})
        await self._start(plugin)

    async def _stop(self, plugin: _Plugin) -> None:
        process, plugin.process = plugin.process, None
        if process is not None:
            await asyncio.to_thread(process.stop)
        following, plugin.following = plugin.following, None
        plugin.endpoint = None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _remove(self, plugin: _Plugin) -> None:
        await self._stop(plugin)
        if plugin.server is not None:
            await plugin.server.stop()

    def _write(self, plugin: _Plugin) -> None:
        lane, cards = plugin.lane, plugin.cards
        lane.furnish(cards, self._program.kubeconfig)
        lane.write("node/device-config.yaml", json.dumps({"nvidia": dict(self._program.device_config)}))
        own = {
            "operatingmode": cards[0].mode, "devicesplitcount": cards[0].count, "devicecorescaling": cards[0].devcore / 100,
        }  # fmt: skip
        config = {"nodeconfig": [{"name": plugin.node, **own, **plugin.config}]}
        lane.write("config/config.json", json.dumps(config))
