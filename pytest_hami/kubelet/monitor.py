"""HAMi's own monitor (vGPUmonitor), one process a node, started when somebody asks for its metrics.

It reads NVML, and the shared regions that our kubelet writes in place of the containers in which nothing runs.
Flags, variables and paths: HAMi 2.10.0, cmd/vGPUmonitor/main.go and charts/hami/templates/device-plugin/daemonsetnvidia.yaml.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp

from pytest_hami.contract.register import Device
from pytest_hami.kubelet import lane as lanes
from pytest_hami.kubelet import nvml, region
from pytest_hami.kubelet.lane import Lanes
from pytest_hami.kubelet.plugin import Answer
from pytest_hami.kubelet.program import HamiProgram
from pytest_hami.processes import ClusterUnavailable, Port, Process

START_LIMIT = 20.0
PROBE_LIMIT = 2.0
HOOK_DIRECTORY = "/usr/local/vgpu"
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"


class HamiMonitors:
    """The monitors of all nodes. ``on_loss`` is told, on another thread, why one ended when nobody had asked it to."""

    def __init__(self, program: HamiProgram, lanes_: Lanes, on_loss: Callable[[str], None]) -> None:
        self._program = program
        self._lanes = lanes_
        self._on_loss = on_loss
        self._running: dict[str, tuple[Process, Port]] = {}

    async def metrics_url(self, node: str, cards: Sequence[Device]) -> str:
        """Return the URL of a node's metrics, once they are served. Raises ClusterUnavailable."""
        if node not in self._running:
            await self._start(node, cards)
        process, port = self._running[node]
        process.require_alive()
        return f"http://{port.address}/metrics"

    def container_started(self, node: str, answer: Answer) -> None:
        """Write the shared region of a container that was given cards and the hook library."""
        (host,) = [m.host_path for m in answer.mounts if m.container_path == HOOK_DIRECTORY] or [""]
        cache = answer.env.get(CACHE, "")
        if not (host.startswith(f"{HOOK_DIRECTORY}/") and cache.startswith(f"{HOOK_DIRECTORY}/")):
            return
        place = self._lanes.of(node).directory / "vgpu" / host.removeprefix(f"{HOOK_DIRECTORY}/")
        place.mkdir(parents=True, exist_ok=True)
        (place / Path(cache).name).write_bytes(region.of_container(answer.env))

    async def remove(self, nodes: Sequence[str]) -> None:
        """End the monitors of nodes that are gone."""
        for node in nodes:
            process, port = self._running.pop(node, (None, None))
            if process is not None and port is not None:
                await asyncio.to_thread(process.stop)
                port.release()

    async def stop(self) -> None:
        """End all monitors."""
        await self.remove(list(self._running))

    async def _start(self, node: str, cards: Sequence[Device]) -> None:
        lane = self._lanes.of(node)
        lane.furnish(cards, self._program.kubeconfig)
        (lane.directory / "vgpu" / "containers").mkdir(exist_ok=True)
        port = Port()
        env = {
            "NODE_NAME": node, "KUBECONFIG": str(lanes.NODE / "kubeconfig"), "HOOK_PATH": HOOK_DIRECTORY,
            "LD_LIBRARY_PATH": str(lanes.NVML), nvml.FLEET: str(lanes.NODE / "fleet"),
        }  # fmt: skip
        argv = lane.command(
            self._program.program, self._program.library, [f"--metrics-bind-address={port.address}", "-v=4"]
        )
        process = Process(
            f"monitor of node {node}", argv, self._program.log(f"monitor-{node}"), env, on_end=self._on_loss
        )
        self._running[node] = process, port
        limit = START_LIMIT * self._program.scale
        try:
            async with asyncio.timeout(limit):
                while not await _serves(f"http://{port.address}/metrics"):
                    process.require_alive()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise ClusterUnavailable(f"{process.name}: no metrics within {limit:g} s; {process.last_lines()}") from None


async def _serves(url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        timeout = aiohttp.ClientTimeout(total=PROBE_LIMIT)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return response.status == 200
    return False
