"""kubelet's side of the device-plugin API, against a plugin of a few lines."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

grpc = pytest.importorskip("grpc", reason="needs the extra: pip install pytest-hami[real]")
pytest.importorskip("google.protobuf", reason="needs the extra: pip install pytest-hami[real]")

from pytest_hami.contract.env import Mount  # noqa: E402
from pytest_hami.kubelet.endpoint import Endpoint  # noqa: E402
from pytest_hami.kubelet.plugin import AllocateError, Answer, DeviceSpec, Share  # noqa: E402
from pytest_hami.kubelet.registration import Registered, RegistrationServer  # noqa: E402
from tests.kubelet.fake_plugin import FakePlugin  # noqa: E402


@pytest.fixture
def directory() -> Iterator[Path]:
    # A unix socket's path has at most 107 characters, and pytest's own directories can be longer.
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def plugin(directory: Path) -> Iterator[FakePlugin]:
    plugin = FakePlugin(directory)
    yield plugin
    plugin.stop()


@asynccontextmanager
async def registered(directory: Path, plugin: FakePlugin) -> AsyncIterator[tuple[Registered, Endpoint]]:
    seen: asyncio.Queue[Registered] = asyncio.Queue()
    server = RegistrationServer(directory, seen.put_nowait)
    await server.start()
    await asyncio.to_thread(plugin.start)
    found = await seen.get()
    endpoint = Endpoint(found, 10)
    try:
        yield found, endpoint
    finally:
        await endpoint.close()
        await server.stop()


def test_a_plugin_registers_and_tells_its_shares_until_it_ends(directory: Path, plugin: FakePlugin) -> None:
    async def follow() -> None:
        async with registered(directory, plugin) as (found, endpoint):
            assert found == Registered("nvidia.com/gpu", directory / "fake.sock", prefers=True, wants_start=True)
            lists = endpoint.device_lists()
            plugin.tell("Healthy", "Healthy")
            assert await anext(lists) == (Share("card-0", True, (1,)), Share("card-1", True, (1,)))
            plugin.tell("Healthy", "Unhealthy")
            assert [share.healthy for share in await anext(lists)] == [True, False]
            await asyncio.to_thread(plugin.stop)
            assert [shares async for shares in lists] == []

    asyncio.run(follow())


def test_what_is_asked_and_answered(directory: Path, plugin: FakePlugin) -> None:
    async def ask() -> None:
        async with registered(directory, plugin) as (_, endpoint):
            plugin.tell("Healthy")
            await anext(endpoint.device_lists())
            assert await endpoint.prefer(["a", "b", "c"], ["a"], 2) == ("b", "c")
            assert await endpoint.allocate(["b", "c"]) == Answer(
                {"NVIDIA_VISIBLE_DEVICES": "card"}, (Mount("/in", "/out", True),),
                (DeviceSpec("/dev/x", "/dev/null", "rw"),), {"a": "b"}, ("vendor/gpu=card",),
            )  # fmt: skip

    asyncio.run(ask())
    assert plugin.calls == [
        ("prefer", (["a", "b", "c"], ["a"], 2)), ("allocate", [["b", "c"]]), ("pre-start", ["b", "c"]),
    ]  # fmt: skip


def test_what_a_plugin_does_not_offer_is_not_called(directory: Path, plugin: FakePlugin) -> None:
    async def ask() -> None:
        plugin.options = {}
        async with registered(directory, plugin) as (_, endpoint):
            plugin.tell("Healthy")
            await anext(endpoint.device_lists())
            assert await endpoint.prefer(["a", "b"], [], 1) == ()
            await endpoint.allocate(["a"])

    asyncio.run(ask())
    assert [name for name, _ in plugin.calls] == ["allocate"]


def test_a_refusal_is_told_as_go_tells_it(directory: Path, plugin: FakePlugin) -> None:
    async def ask() -> None:
        async with registered(directory, plugin) as (_, endpoint):
            plugin.refuses = "device number not matched"
            with pytest.raises(AllocateError, match=r"^device number not matched$") as refused:
                await endpoint.allocate(["a"])
            assert refused.value.code == "Unknown"
            await asyncio.to_thread(plugin.stop)
            with pytest.raises(AllocateError) as gone:
                await endpoint.allocate(["a"])
            assert gone.value.code == "Unavailable"

    asyncio.run(ask())


def test_another_version_of_the_api_is_refused(directory: Path, plugin: FakePlugin) -> None:
    async def register() -> None:
        server = RegistrationServer(directory, lambda _: None)
        await server.start()
        with pytest.raises(grpc.RpcError, match="expected version v1beta1"):
            await asyncio.to_thread(plugin.start, "v1alpha")
        await server.stop()

    asyncio.run(register())


def test_a_path_that_no_socket_can_have() -> None:
    with pytest.raises(ValueError, match="set TMPDIR to a shorter one"):
        RegistrationServer(Path("/tmp") / ("x" * 100), lambda _: None)
