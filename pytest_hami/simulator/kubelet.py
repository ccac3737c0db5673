"""The kubelet's own server, as far as the API server proxies to it: logs and exec by websocket."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Sequence

import aiohttp
from aiohttp import web

from pytest_hami.simulator.shell import Output

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
Run = Callable[[str, str, str, Sequence[str]], Output]


class NoContainer(LookupError):
    """There is no such running container; the text says which."""


class KubeletServer:
    """Serves ``/exec`` and ``/containerLogs`` for all simulated nodes on one loopback port.

    ``run(namespace, pod, container, argv)`` answers a command and raises NoContainer. ``identity`` are the paths of
    certificate and key; without them it speaks plain HTTP, which kube-apiserver does not.
    """

    def __init__(self, run: Run, identity: tuple[str, str] | None = None) -> None:
        self._run = run
        self._identity = identity
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        context = None
        if self._identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._identity)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        argv = request.query.getall("command", [])
        try:
            if not argv:
                raise NoContainer("you must specify at least 1 command for the container")
            output = self._run(names["namespace"], names["pod"], names["container"], argv)
        except NoContainer as error:
            return web.Response(status=404, text=str(error))
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        for channel, text in ((1, output.stdout), (2, output.stderr)):
            if text:
                await socket.send_bytes(bytes([channel]) + text.encode())
        await socket.send_bytes(b"\x03" + json.dumps(_status(output.code)).encode())
        await socket.close()
        return socket

    async def _log(self, request: web.Request) -> web.Response:
        names = request.match_info
        try:
            self._run(names["namespace"], names["pod"], names["container"], ["true"])
        except NoContainer as error:
            return web.Response(status=404, text=str(error))
        return web.Response(text=f"simulated container {names['container']}: nothing runs here\n")


def _status(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }  # fmt: skip


__all__ = ["KubeletServer", "NoContainer", "aiohttp"]
