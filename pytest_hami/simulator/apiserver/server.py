"""The simulated API server: routing, reads, writes, watches."""

from __future__ import annotations

import copy
import datetime
import json
import secrets
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web

from pytest_hami.simulator.apiserver import apply, discovery, patches, selectors, subresources
from pytest_hami.simulator.apiserver.admission import Admission
from pytest_hami.simulator.apiserver.errors import StatusError, invalid
from pytest_hami.simulator.apiserver.events import from_events_v1, to_events_v1
from pytest_hami.simulator.apiserver.kinds import Registry
from pytest_hami.simulator.apiserver.objects import Objects, now, stamp
from pytest_hami.simulator.apiserver.store import Entry, Store
from pytest_hami.simulator.apiserver.target import Target, parse_target

BODY_LIMIT = 3 << 20
BOOKMARK_EVERY = 30.0
Fault = Callable[[web.Request], "web.StreamResponse | str | None"]


class ApiServer:
    """One API server on 127.0.0.1; start and stop it inside an asyncio loop.

    ``faults`` is for tests: each is asked before every request and may answer it, or return ``reset`` to drop the
    connection.
    """

    def __init__(self, *, port: int = 0, clock: Callable[[], datetime.datetime] = now) -> None:
        self.store = Store()
        self.registry = Registry()
        self.admission = Admission(self.store)
        self.faults: list[Fault] = []
        self._clock = clock
        self._port = port
        self._runner: web.AppRunner | None = None
        self._continues: dict[str, tuple[list[bytes], str]] = {}
        self.objects = Objects(self.store, self.registry, self.admission, clock)
        self.subresources = subresources.Subresources(self)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError when the port is in use."""
        application = web.Application(client_max_size=BODY_LIMIT)
        application.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self._port))
        except OSError:
            listener.close()
            await self._runner.cleanup()
            raise
        self._port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener, backlog=512).start()

    async def stop(self) -> None:
        """Stop listening and end all watches."""
        for _, table in self.store.tables():
            for watcher in list(table.watchers):
                watcher.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()
        await self.subresources.close()
        await self.admission.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        for fault in list(self.faults):
            answer = fault(request)
            if answer == "reset":
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError
            if isinstance(answer, web.StreamResponse):
                return answer
        try:
            return await self._route(request)
        except StatusError as error:
            return respond(error.to_dict(), error.code)
        except web.HTTPRequestEntityTooLarge:
            return respond(StatusError(413, "the request is too large", reason="RequestEntityTooLarge").to_dict(), 413)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in {"/readyz", "/livez", "/healthz"}:
            return web.Response(text="ok")
        document = self._document(path)
        if document is not None:
            return respond(document)
        target = parse_target(path, self.registry)
        if target is None:
            if path.startswith("/api/v1/namespaces/") and path.endswith("/bindings") and request.method == "POST":
                return await self.subresources.bind_by_name(request, path.split("/")[4])
            if path.startswith(("/apis/authorization.k8s.io/v1/", "/apis/authentication.k8s.io/v1/")):
                return await self.subresources.review(request, path)
            raise StatusError(404, "the server could not find the requested resource")
        if target.subresource not in {"", "status"}:
            return await self.subresources.handle(request, target)
        method = request.method
        if not target.name:
            if method == "GET":
                if request.query.get("watch", "").lower() in {"1", "true"}:
                    return await self._watch(request, target)
                return self._list(request, target)
            if method == "POST":
                return respond(await self.objects.create(target, await read(request), dry_run(request)), 201)
            if method == "DELETE":
                return await self._delete_collection(request, target)
        elif method == "GET":
            if request.query.get("watch", "").lower() in {"1", "true"}:
                return await self._watch(request, target)
            return self._get(request, target)
        elif method == "PUT":
            return respond(self._replace(target, await read(request), dry_run(request)))
        elif method == "PATCH":
            body, created = await self._patch(request, target)
            return respond(body, 201 if created else 200)
        elif method == "DELETE":
            options = await read(request, optional=True)
            return respond(self.objects.delete(target, options, request.query))
        raise StatusError(405, f"the server does not allow {method} on this resource")

    def _document(self, path: str) -> dict[str, Any] | None:
        if path == "/version":
            return discovery.VERSION
        if path == "/api":
            return discovery.api_versions()
        if path == "/apis":
            return discovery.groups(self.registry)
        if path == "/api/v1":
            return discovery.resources(self.registry, "", "v1")
        if path == "/openapi/v2":
            return discovery.openapi_v2()
        if path == "/openapi/v3":
            return discovery.openapi_v3(self.registry)
        steps = path.strip("/").split("/")
        if steps[:2] == ["openapi", "v3"]:
            group, version = (steps[3], steps[4]) if steps[2:3] == ["apis"] and len(steps) == 5 else ("", steps[-1])
            return discovery.openapi_v3_group(self.registry, group, version)
        if len(steps) == 3 and steps[0] == "apis":
            return discovery.resources(self.registry, steps[1], steps[2])
        if len(steps) == 2 and steps[0] == "apis":
            return next((g for g in discovery.groups(self.registry)["groups"] if g["name"] == steps[1]), None)
        return None

    def _get(self, request: web.Request, target: Target) -> web.Response:
        found = self.objects.lookup(target)
        if "as=Table" in request.headers.get("Accept", ""):
            return respond(
                discovery.table(target.kind, [found], {"resourceVersion": str(self.store.version)}, self._clock())
            )
        if "as=PartialObjectMetadata" in request.headers.get("Accept", ""):
            return respond(_metadata_alone(found))
        if target.kind.group == "events.k8s.io":
            return respond(to_events_v1(found))
        entry = self.store.table(target.kind.storage).by_key[(target.namespace, target.name)]
        return web.Response(body=entry.encoded, content_type="application/json")

    def _list(self, request: web.Request, target: Target) -> web.Response:
        accept = request.headers.get("Accept", "")
        found = self._selected(request, target)
        version = str(self.store.version)
        if "as=Table" in accept:
            objects = [entry.object for entry in found]
            return respond(discovery.table(target.kind, objects, {"resourceVersion": version}, self._clock()))
        if "as=PartialObjectMetadataList" in accept:
            items = [_metadata_alone(entry.object) for entry in found]
            return respond(
                {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                 "metadata": {"resourceVersion": version}, "items": items}
            )  # fmt: skip
        if target.kind.group == "events.k8s.io":
            encoded = [json.dumps(to_events_v1(entry.object)).encode() for entry in found]
        else:
            encoded = [entry.encoded_item if target.kind.built_in else entry.encoded for entry in found]
        metadata: dict[str, Any] = {"resourceVersion": version}
        if request.query.get("continue"):
            encoded, version = self._continues.pop(request.query["continue"], ([], ""))
            if not version:
                raise StatusError(400, "continue key is not valid: it was never given, or was used already")
            metadata["resourceVersion"] = version
        limit = int(request.query.get("limit") or 0)
        if limit and len(encoded) > limit:
            token = secrets.token_urlsafe(12)
            self._continues[token] = (encoded[limit:], version)
            metadata |= {"continue": token, "remainingItemCount": len(encoded) - limit}
            encoded = encoded[:limit]
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version, "metadata": metadata}
        body = json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"items":[' + b",".join(encoded) + b"]}"
        return web.Response(body=body, content_type="application/json")

    def _selected(self, request: web.Request, target: Target) -> list[Entry]:
        terms = selectors.parse_labels(request.query.get("labelSelector", ""))
        fits = selectors.parse_fields(request.query.get("fieldSelector", ""), target.kind.plural)
        table = self.store.table(target.kind.storage)
        return [entry for _, entry in table.select(target.namespace, terms) if fits(entry.object)]

    def _replace(self, target: Target, body: dict[str, Any], dry: bool) -> dict[str, Any]:
        if target.kind.group == "events.k8s.io":
            body = from_events_v1(body)
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            given = body["metadata"]["name"]
            text = f"the name of the object ({given}) does not match the name on the URL ({target.name})"
            raise StatusError(400, text)
        if target.kind.plural == "leases" and not (body.get("metadata") or {}).get("resourceVersion"):
            text = "Invalid value: 0: must be specified for an update"
            raise invalid("Lease", target.name, ("metadata.resourceVersion", text))
        return self.objects.update(target, self.objects.lookup(target), copy.deepcopy(body), dry)

    async def _patch(self, request: web.Request, target: Target) -> tuple[dict[str, Any], bool]:
        content = request.content_type
        raw = await request.read()
        if content == "application/apply-patch+yaml":
            return await self._apply(request, target, raw)
        body = decode(raw)
        old = self.objects.lookup(target)
        events = target.kind.group == "events.k8s.io"
        base = to_events_v1(old) if events else old
        if content == "application/json-patch+json":
            new = patches.apply_json(base, body)
        elif content == "application/merge-patch+json":
            new = patches.merge(base, body)
        elif content == "application/strategic-merge-patch+json":
            new = patches.strategic(base, body)
        else:
            raise StatusError(415, f"unsupported patch type {content}")
        if not isinstance(new, dict):
            raise StatusError(422, "the patched object is no object")
        versioned = isinstance(body, dict) and (body.get("metadata") or {}).get("resourceVersion")
        if not versioned and isinstance(new.get("metadata"), dict):
            new = {**new, "metadata": {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}}
        updated = self.objects.update(target, old, from_events_v1(new) if events else new, dry_run(request))
        return (to_events_v1(updated) if events else updated), False

    async def _apply(self, request: web.Request, target: Target, raw: bytes) -> tuple[dict[str, Any], bool]:
        import yaml

        manager = request.query.get("fieldManager", "")
        if not manager:
            text = "fieldManager: Required value: is required for apply patch"
            raise StatusError(422, f'PatchOptions.meta.k8s.io "" is invalid: {text}')
        try:
            body = yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise StatusError(400, f"error decoding YAML: {error}") from None
        if not isinstance(body, dict):
            raise StatusError(400, "an apply patch must be an object")
        entry = {"manager": manager, "operation": "Apply", "apiVersion": target.kind.api_version,
                  "time": stamp(self._clock()), "fieldsType": "FieldsV1"}  # fmt: skip
        old = self.store.get(target.kind.storage, target.namespace, target.name)
        if old is None:
            body.setdefault("metadata", {})["name"] = target.name
            created = await self.objects.create(target, body, dry_run(request))
            owned = {**entry, "fieldsV1": apply.encode(apply.fields(body))}
            owner = {**created, "metadata": {**created["metadata"], "managedFields": [owned]}}
            return (owner if dry_run(request) else self.objects.update(target, created, owner)), True
        new = apply.applied(old, body, entry, request.query.get("force", "").lower() == "true")
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self.objects.update(target, old, new, dry_run(request)), False

    async def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        items = []
        options = await read(request, optional=True)
        for entry in self._selected(request, target):
            metadata = entry.object["metadata"]
            one = Target(target.kind, metadata.get("namespace", ""), metadata["name"], "")
            items.append(self.objects.delete(one, options, request.query))
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
        return respond(head | {"metadata": {"resourceVersion": str(self.store.version)}, "items": items})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        from pytest_hami.simulator.apiserver.watch import serve_watch

        return await serve_watch(self.store, request, target)


def _metadata_alone(object_: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object_["metadata"]}


def respond(body: dict[str, Any], status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(
        body=json.dumps(body, separators=(",", ":")).encode(), status=status, content_type="application/json"
    )


def decode(raw: bytes) -> Any:
    """Return decoded JSON. Raises StatusError 400."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StatusError(400, f"the body is not usable JSON: {str(error)[:200]}") from None


async def read(request: web.Request, *, optional: bool = False) -> dict[str, Any]:
    """Return the body as an object. Raises StatusError 400, 415."""
    raw = await request.read()
    if not raw and optional:
        return {}
    if request.content_type == "application/vnd.kubernetes.protobuf":
        raise StatusError(415, "the simulator speaks JSON, not protobuf")
    if request.content_type == "application/yaml":
        import yaml

        body = yaml.safe_load(raw)
    else:
        body = decode(raw)
    if not isinstance(body, dict):
        raise StatusError(400, "expected an object")
    return body


def dry_run(request: web.Request) -> bool:
    """Return whether nothing may be stored."""
    return bool(request.query.get("dryRun"))
