"""Binding, eviction, logs, exec and access reviews."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from pytest_hami.simulator.apiserver.errors import StatusError, not_found
from pytest_hami.simulator.apiserver.target import Target

if TYPE_CHECKING:
    from pytest_hami.simulator.apiserver.server import ApiServer

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


class Subresources:
    """Everything under an object that is not its status."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to kubelets."""
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Answer a subresource. Raises StatusError, 501 for one that is not simulated."""
        key = f"{target.kind.plural}/{target.subresource}"
        if key == "pods/binding" and request.method == "POST":
            return await self._bind(await _read(request), target)
        if key == "pods/eviction" and request.method == "POST":
            pod = Target(target.kind, target.namespace, target.name, "")
            self._server.objects.delete(pod, (await _read(request)).get("deleteOptions") or {})
            return _respond(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
            )
        if key == "pods/log":
            return await self._log(request, target)
        if key == "pods/exec":
            return await self._exec(request, target)
        if key == "services/proxy":
            name = target.name.split(":")[-2] if ":" in target.name else target.name
            if self._server.store.get("/services", target.namespace, name.removeprefix("https:")) is None:
                raise not_found("services", name)
            raise StatusError(503, f'no endpoints available for service "{target.name}"', reason="ServiceUnavailable")
        raise StatusError(501, f"the simulator does not implement {key}")

    async def bind_by_name(self, request: web.Request, namespace: str) -> web.Response:
        """Answer a Binding that is created in its own collection, where its name is that of the pod."""
        body = await _read(request)
        pods = self._server.registry.find("", "v1", "pods")
        assert pods is not None
        name = str((body.get("metadata") or {}).get("name", ""))
        return await self._bind(body, Target(pods, namespace, name, "binding"))

    async def _bind(self, body: dict[str, Any], target: Target) -> web.Response:
        pod = self._server.objects.lookup(Target(target.kind, target.namespace, target.name, ""))
        node = (body.get("target") or {}).get("name")
        if not node:
            raise StatusError(422, f'Binding "{target.name}" is invalid: target.name: Required value')
        uid = (body.get("metadata") or {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
            raise StatusError(409, f'Operation cannot be fulfilled on pods/binding "{target.name}": {text}')
        if pod["metadata"].get("deletionTimestamp"):
            raise StatusError(
                409, f'Operation cannot be fulfilled on pods/binding "{target.name}": pod is being deleted'
            )
        if pod["spec"].get("nodeName"):
            text = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise StatusError(409, f'Operation cannot be fulfilled on pods/binding "{target.name}": {text}')
        metadata = dict(pod["metadata"])
        notes = (body.get("metadata") or {}).get("annotations")
        if notes:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **notes}
        conditions = [c for c in pod["status"].get("conditions") or [] if c["type"] != "PodScheduled"]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }
        bound = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node},
                 "status": {**pod["status"], "conditions": [*conditions, scheduled]}}  # fmt: skip
        self._server.store.write(target.kind.storage, bound, "MODIFIED")
        return _respond({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _kubelet(self, target: Target) -> str:
        pod = self._server.objects.lookup(Target(target.kind, target.namespace, target.name, ""))
        node = self._server.store.get("/nodes", "", pod["spec"]["nodeName"])
        if node is None:
            raise not_found("nodes", pod["spec"]["nodeName"])
        status = node.get("status") or {}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        addresses = [entry["address"] for entry in status.get("addresses") or [] if entry.get("type") == "InternalIP"]
        if not port or not addresses:
            raise StatusError(500, "Internal error occurred: no preferred addresses found; known addresses: []")
        return f"127.0.0.1:{port}"

    def _container(self, request: web.Request, target: Target) -> str:
        pod = self._server.objects.lookup(Target(target.kind, target.namespace, target.name, ""))
        names = [c["name"] for c in pod["spec"]["containers"]]
        inits = [c["name"] for c in pod["spec"].get("initContainers") or []]
        asked = request.query.get("container")
        if not asked:
            if len(names) == 1:
                return str(names[0])
            listed = f"choose one of: [{' '.join(names)}]" + (
                f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
            )
            raise StatusError(400, f"a container name must be specified for pod {target.name}, {listed}")
        if asked not in [*names, *inits]:
            raise StatusError(400, f"container {asked} is not valid for pod {target.name}")
        return asked

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        container = self._container(request, target)
        pod = self._server.objects.lookup(Target(target.kind, target.namespace, target.name, ""))
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        url = f"http://{self._kubelet(target)}/containerLogs/{target.namespace}/{target.name}/{container}"
        try:
            async with self._client().get(url, params=dict(request.query)) as response:
                return web.Response(body=await response.read(), status=response.status, content_type="text/plain")
        except aiohttp.ClientError as error:
            raise StatusError(500, f"Internal error occurred: kubelet: {error}") from None

    async def _exec(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self._server.objects.lookup(Target(target.kind, target.namespace, target.name, ""))
        container = self._container(request, target)
        if not pod["spec"].get("nodeName"):
            raise StatusError(400, f"pod {target.name} does not have a host assigned")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise StatusError(501, "the simulator serves exec by websocket only, not by SPDY")
        url = f"http://{self._kubelet(target)}/exec/{target.namespace}/{target.name}/{container}"
        query = [(key, value) for key, value in request.query.items() if key != "container"]
        front = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
        try:
            async with self._client().ws_connect(url, params=query, protocols=PROTOCOLS, max_msg_size=0) as back:
                await front.prepare(request)
                forward = asyncio.ensure_future(_pipe(front, back))
                try:
                    await _pipe(back, front)
                finally:
                    forward.cancel()
                await front.close()
        except aiohttp.ClientError as error:
            raise StatusError(500, f"Internal error occurred: kubelet: {error}") from None
        return front

    async def review(self, request: web.Request, path: str) -> web.Response:
        """Answer an access review: everything is allowed here, as under ``AlwaysAllow``."""
        kind = {"selfsubjectaccessreviews": "SelfSubjectAccessReview", "subjectaccessreviews": "SubjectAccessReview",
                "selfsubjectreviews": "SelfSubjectReview"}.get(path.rsplit("/", 1)[-1])  # fmt: skip
        if kind is None or request.method != "POST":
            raise StatusError(501, f"the simulator does not implement {path}")
        raw = await request.read()
        try:
            # kubectl asks in protobuf, and whatever it asks is allowed.
            body = {} if request.content_type == "application/vnd.kubernetes.protobuf" else json.loads(raw)
        except ValueError as error:
            raise StatusError(400, f"the body is not usable JSON: {str(error)[:200]}") from None
        group = path.split("/")[2]
        answer = {**body, "kind": kind, "apiVersion": f"{group}/v1"}
        answer["status"] = (
            {"userInfo": {"username": "simulated-admin"}} if kind == "SelfSubjectReview" else {"allowed": True}
        )
        return _respond(answer, 201)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session


async def _pipe(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type is aiohttp.WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type is aiohttp.WSMsgType.TEXT:
            await sink.send_str(message.data)


async def _read(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        raise StatusError(400, "the body is not usable JSON") from None
    return body if isinstance(body, dict) else {}


def _respond(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")
