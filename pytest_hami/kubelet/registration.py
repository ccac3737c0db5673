"""kubelet's own socket, at which device plugins register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from pytest_hami.kubelet import wire

SOCKET = "kubelet.sock"
# sockaddr_un.sun_path with its closing zero, unix(7).
MAX_PATH = 107


@dataclass(frozen=True)
class Registered:
    """What a plugin said of itself: the resource, the socket that it serves, and what it wants to be asked.

    HAMi's says here whether its node-config has ``enablegetpreferredallocation``; what kubelet may ask as well,
    GetDevicePluginOptions, it always answers with yes. Being asked in vain costs it two of the five API calls that it
    has a second (HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go), and changes nothing but
    which shares kubelet has in its book. So this is what counts here.
    """

    resource: str
    socket: Path
    prefers: bool = False
    wants_start: bool = False


class RegistrationServer:
    """Serves Registration in a directory; ``on_register`` hears of every plugin, on the event loop."""

    def __init__(self, directory: Path, on_register: Callable[[Registered], None]) -> None:
        """Raises ValueError for a directory whose path is too long for a socket."""
        self._directory = directory
        self._on_register = on_register
        self._server: grpc.aio.Server | None = None
        if len(str(directory / "nvidia-gpu.sock")) > MAX_PATH:
            raise ValueError(
                f"{directory}: too long for a unix socket ({MAX_PATH} characters); set TMPDIR to a shorter one"
            )

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=wire.message("RegisterRequest").FromString,
            response_serializer=wire.message("Empty").SerializeToString,
        )
        service, _, method = wire.REGISTER.strip("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix:{self._directory / SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)

    async def _register(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        if request.version != wire.VERSION or "/" in request.endpoint:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"expected version {wire.VERSION} and the name of a socket, got {request.version!r}, {request.endpoint!r}",
            )
        options = request.options
        self._on_register(
            Registered(
                request.resource_name, self._directory / request.endpoint,
                options.get_preferred_allocation_available, options.pre_start_required,
            )
        )  # fmt: skip
        return wire.message("Empty")()
