"""The monitor of a node and the shared regions that it reads."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import Mount, container_env, mounts
from pytest_hami.contract.register import Device
from pytest_hami.kubelet import region
from pytest_hami.kubelet.lane import Lanes
from pytest_hami.kubelet.monitor import HamiMonitors
from pytest_hami.kubelet.plugin import Answer
from pytest_hami.kubelet.program import HamiProgram
from pytest_hami.processes import ClusterUnavailable

CARD = Device("GPU-11111111-2222-3333-4444-555555555555", 0, 10, 4096, 100, "NVIDIA A10", 0, "hami-core", True)
# Serves what it finds, with what every Linux distribution has in /usr/bin.
SERVES = """#!/usr/bin/python3
import http.server, os, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        hook = pathlib.Path(os.environ["HOOK_PATH"])
        found = sorted(str(path.relative_to(hook)) for path in hook.rglob("*.cache"))
        self.send_response(200); self.end_headers()
        self.wfile.write((os.environ["NODE_NAME"] + " " + " ".join(found)).encode())
host, port = next(a for a in sys.argv if a.startswith("--metrics-bind-address=")).partition("=")[2].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


@pytest.fixture
def monitors(workspace: Path, scripted: Callable[..., HamiProgram]) -> Callable[..., HamiMonitors]:
    """Make monitors of a script."""
    return lambda text, scale=1.0: HamiMonitors(scripted(text, scale), Lanes(workspace / "lanes"), lambda _: None)


def answer() -> Answer:
    env = container_env([DeviceShare(CARD.id, 2048, 30)]) | {
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/a.cache"
    }
    return Answer(env, mounts("uid", "main", control_disabled=False))


def test_it_serves_on_loopback_and_finds_what_containers_were_given(
    monitors: Callable[..., HamiMonitors], workspace: Path
) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no /usr/bin/python3 to play the monitor")
    made = monitors(SERVES)

    async def run() -> str:
        made.container_started("n1", answer())
        made.container_started("n1", Answer({"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/b.cache"}))
        outside = Mount("/usr/local/vgpu", "/somewhere", read_only=False)
        made.container_started("n1", Answer(answer().env, (outside,)))
        url = await made.metrics_url("n1", [CARD])
        assert await made.metrics_url("n1", [CARD]) == url
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            text = await response.text()
        await made.stop()
        return text

    assert asyncio.run(run()) == "n1 containers/uid_main/a.cache"
    assert (workspace / "lanes/1/vgpu/containers/uid_main/a.cache").stat().st_size == 2_008_952


def test_one_that_does_not_serve_is_one_line(monitors: Callable[..., HamiMonitors]) -> None:
    for text, message in (
        ("#!/bin/sh\necho unknown flag: --metrics-bind-address\nexit 1\n", "exit code 1; its last lines: unknown flag"),
        ("#!/bin/sh\necho thinking\nexec sleep 60\n", "no metrics within 1 s; its last lines: "),
    ):
        made = monitors(text, 0.05)

        async def run(made: HamiMonitors) -> None:
            try:
                await made.metrics_url("n1", [CARD])
            finally:
                await made.stop()

        with pytest.raises(ClusterUnavailable) as failed:
            asyncio.run(run(made))
        assert str(failed.value).startswith("monitor of node n1: ")
        assert message in str(failed.value)


def test_a_region_says_what_a_container_may_have_and_uses() -> None:
    data = region.of_container(
        {"NVIDIA_VISIBLE_DEVICES": f"{CARD.id},GPU-b", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m",
         "CUDA_DEVICE_MEMORY_LIMIT_1": "100m", "CUDA_DEVICE_SM_LIMIT": "30", "CUDA_TASK_PRIORITY": "1"}
    )  # fmt: skip
    # Offsets as the C compiler lays the structure out (HAMi-core, src/multiprocess/multiprocess_memory_limit.h).
    assert struct.unpack_from("<4i", data) == (19920718, 1, 1, 1)
    assert struct.unpack_from("<Q", data, 56) == (2,)
    assert data[64 : 64 + 40].decode() == CARD.id
    assert data[160:166] == b"GPU-b\0"
    assert struct.unpack_from("<2Q", data, 1600) == (4096 << 20, 100 << 20)
    assert struct.unpack_from("<2Q", data, 1728) == (30, 30)
    process = 1856
    assert struct.unpack_from("<5Q", data, process + 8 + 64) == (17 << 20, 9 << 20, 25 << 20, 0, 51 << 20)
    assert struct.unpack_from("<3Q", data, process + 1160 + 48) == (0, 0, 31)
    assert struct.unpack_from("<i", data, process + 1928) == (1,)
    assert struct.unpack_from("<4iq", data, 2_008_896) == (1, 0, 0, 1, 0)
    assert region.staged_use(1).total == 51
