"""One device plugin as kubelet calls it: a client of the device-plugin API over a unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from pytest_hami.contract.env import Mount
from pytest_hami.kubelet import wire
from pytest_hami.kubelet.plugin import AllocateError, Answer, DeviceSpec, Share
from pytest_hami.kubelet.registration import Registered

HEALTHY = "Healthy"
# A plugin of its own path may die and come again; gRPC would let the new one wait for the old one's back-off.
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
# What Go calls the status codes that it does not spell as one word in capitals and small letters.
GO_SPELLINGS = {"CANCELLED": "Canceled"}


class Endpoint:
    """A registered plugin. ``limit`` is how many seconds one call may take."""

    def __init__(self, registered: Registered, limit: float) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{registered.socket}", options=OPTIONS)
        self._limit = limit
        self._registered = registered

    async def close(self) -> None:
        """End the connection, and with it the stream of device lists."""
        await self._channel.close()

    async def device_lists(self) -> AsyncIterator[tuple[Share, ...]]:
        """Yield every device list; ends when the plugin does."""
        request, response, _ = wire.CALLS["ListAndWatch"]
        stream = self._channel.unary_stream(
            wire.path("ListAndWatch"), wire.message(request).SerializeToString, wire.message(response).FromString
        )
        try:
            async for listed in stream(wire.message(request)()):
                yield tuple(_share(device) for device in listed.devices)
        except (grpc.RpcError, asyncio.CancelledError):
            return

    async def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """Return the ids that the plugin would rather have taken; none where it does not care. Raises AllocateError."""
        if not self._registered.prefers:
            return ()
        request = {"available_deviceIDs": available, "must_include_deviceIDs": required, "allocation_size": size}
        answer = await self._call("GetPreferredAllocation", container_requests=[request])
        return tuple(id for one in answer.container_responses for id in one.deviceIDs)

    async def allocate(self, ids: Sequence[str]) -> Answer:
        """Return the answer for one container, made ready where the plugin wants to be told. Raises AllocateError."""
        answer = await self._call("Allocate", container_requests=[{"devices_ids": ids}])
        if len(answer.container_responses) != 1:
            raise AllocateError(f"expected one container response, seen {len(answer.container_responses)}")
        if self._registered.wants_start:
            await self._call("PreStartContainer", devices_ids=ids)
        return _answer(answer.container_responses[0])

    async def _call(self, name: str, **fields: Any) -> Any:
        request, response, _ = wire.CALLS[name]
        call = self._channel.unary_unary(
            wire.path(name), wire.message(request).SerializeToString, wire.message(response).FromString
        )
        try:
            return await call(wire.message(request)(**fields), timeout=self._limit)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            spelled = GO_SPELLINGS.get(code, "".join(word.capitalize() for word in code.split("_")))
            raise AllocateError(str(error.details()), spelled) from None


def _share(device: Any) -> Share:
    return Share(device.ID, device.health == HEALTHY, tuple(int(node.ID) for node in device.topology.nodes))


def _answer(response: Any) -> Answer:
    return Answer(
        env=dict(response.envs),
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in response.mounts),
        devices=tuple(DeviceSpec(d.container_path, d.host_path, d.permissions) for d in response.devices),
        annotations=dict(response.annotations),
        cdi_devices=tuple(device.name for device in response.cdi_devices),
    )
