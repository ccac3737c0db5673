"""The simulated API server: routing, reads, writes, watches."""

from __future__ import annotations

import asyncio
import copy
import datetime
import json
import secrets
import socket
import uuid
from collections.abc import Callable
from typing import Any

from aiohttp import web

from pytest_hami.simulator.apiserver import defaults, discovery, patches, selectors, subresources
from pytest_hami.simulator.apiserver.admission import Admission
from pytest_hami.simulator.apiserver.errors import StatusError, conflict, not_found
from pytest_hami.simulator.apiserver.events import from_events_v1, to_events_v1
from pytest_hami.simulator.apiserver.kinds import Kind, Registry
from pytest_hami.simulator.apiserver.store import Change, Entry, Store
from pytest_hami.simulator.apiserver.target import Target, parse_target

BODY_LIMIT = 3 << 20
BOOKMARK_EVERY = 30.0
Fault = Callable[[web.Request], "web.StreamResponse | str | None"]


def now() -> datetime.datetime:
    """Return the present in UTC."""
    return datetime.datetime.now(datetime.UTC)


def stamp(moment: datetime.datetime) -> str:
    """Return a timestamp as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


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
        self.subresources = subresources.Subresources(self)
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            namespaces = self.registry.find("", "v1", "namespaces")
            assert namespaces is not None
            self.store.write(namespaces.storage, self._complete(namespaces, body, ""), "ADDED")

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
                return respond(await self.create(target, await read(request), dry_run(request)), 201)
            if method == "DELETE":
                return self._delete_collection(request, target)
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
            return respond(self.delete(target, options, request.query))
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

    def lookup(self, target: Target) -> dict[str, Any]:
        """Return the stored object of a target. Raises StatusError 404."""
        found = self.store.get(target.kind.storage, target.namespace, target.name)
        if found is None:
            raise not_found(target.kind.plural, target.name)
        return found

    def _get(self, request: web.Request, target: Target) -> web.Response:
        found = self.lookup(target)
        if "as=Table" in request.headers.get("Accept", ""):
            return respond(
                discovery.table(target.kind, [found], {"resourceVersion": str(self.store.version)}, self._clock())
            )
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
            items = [
                {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": entry.object["metadata"]}
                for entry in found
            ]
            return respond(
                {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                 "metadata": {"resourceVersion": version}, "items": items}
            )  # fmt: skip
        if target.kind.group == "events.k8s.io":
            encoded = [json.dumps(to_events_v1(entry.object)).encode() for entry in found]
        else:
            encoded = [entry.encoded for entry in found]
        metadata: dict[str, Any] = {"resourceVersion": version}
        if request.query.get("continue"):
            encoded, version = self._continues.pop(request.query["continue"], ([], ""))
            if not version:
                raise StatusError(410, "the provided continue parameter is too old")
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
        fits = selectors.parse_fields(request.query.get("fieldSelector", ""))
        table = self.store.table(target.kind.storage)
        return [entry for _, entry in table.select(target.namespace, terms) if fits(entry.object)]

    async def create(self, target: Target, body: dict[str, Any], dry: bool = False) -> dict[str, Any]:
        """Create an object through defaulting, admission and validation. Raises StatusError."""
        kind = target.kind
        if kind.group == "events.k8s.io":
            body = from_events_v1(body)
        elif body.get("kind", kind.kind) != kind.kind:
            text = f"{body['kind']} in version {body.get('apiVersion')!r} cannot be handled as a {kind.kind}"
            raise StatusError(400, text.replace("'", '"'))
        object_ = self._complete(kind, body, target.namespace)
        name = object_["metadata"]["name"]
        if target.namespace:
            self._require_namespace(target)
        defaults.validate_metadata(kind.kind, object_)
        if kind.plural == "pods" and not kind.group:
            submitted = copy.deepcopy(object_)
            object_ = await self.admission.mutate(kind, submitted, dry_run=dry)
            defaults.default(kind.kind, object_)
            defaults.validate_metadata(kind.kind, object_)
            defaults.validate_pod(object_)
            self.admission.require_quota(object_)
        if self.store.get(kind.storage, target.namespace, name) is not None:
            raise StatusError(409, f'{kind.plural} "{name}" already exists', reason="AlreadyExists")
        if dry:
            return object_
        self.store.write(kind.storage, object_, "ADDED")
        if kind.plural == "customresourcedefinitions":
            self.registry.add(object_)
        self._count_quota(target.namespace)
        return to_events_v1(object_) if kind.group == "events.k8s.io" else object_

    def _complete(self, kind: Kind, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        given = body.get("metadata")
        if given is not None and not isinstance(given, dict):
            raise StatusError(400, "metadata must be an object")
        metadata = {key: value for key, value in (given or {}).items() if value not in (None, {}, [])}
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise StatusError(422, f'{kind.kind} "" is invalid: metadata.name: Required value: name is required')
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        if kind.namespaced:
            if metadata.get("namespace", namespace) != namespace:
                raise StatusError(400, "the namespace of the object does not match the namespace on the request")
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp(self._clock())}
        for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(key, None)
        own = kind if kind.plural != "events" else Kind("", "v1", "events", "Event")
        object_ = {"kind": own.kind, "apiVersion": own.api_version, "metadata": metadata} | {
            key: value for key, value in body.items() if key not in {"kind", "apiVersion", "metadata"}
        }
        if kind.plural == "pods" and not kind.group:
            object_.pop("status", None)
        defaults.default(kind.kind, object_)
        return object_

    def _require_namespace(self, target: Target) -> None:
        found = self.store.get("/namespaces", "", target.namespace)
        if found is None:
            raise not_found("namespaces", target.namespace)
        if found["metadata"].get("deletionTimestamp"):
            text = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise StatusError(403, f"{target.kind.plural} is forbidden: {text}",
                              details={"causes": [{"reason": "NamespaceTerminating"}]})  # fmt: skip

    def _replace(self, target: Target, body: dict[str, Any], dry: bool) -> dict[str, Any]:
        if target.kind.group == "events.k8s.io":
            body = from_events_v1(body)
        return self.update(target, self.lookup(target), copy.deepcopy(body), dry)

    async def _patch(self, request: web.Request, target: Target) -> tuple[dict[str, Any], bool]:
        content = request.content_type
        raw = await request.read()
        if content == "application/apply-patch+yaml":
            return await self._apply(request, target, raw)
        body = decode(raw)
        old = self.lookup(target)
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
        updated = self.update(target, old, from_events_v1(new) if events else new, dry_run(request))
        return (to_events_v1(updated) if events else updated), False

    async def _apply(self, request: web.Request, target: Target, raw: bytes) -> tuple[dict[str, Any], bool]:
        import yaml

        manager = request.query.get("fieldManager", "")
        if not manager:
            raise StatusError(400, "fieldManager is required for apply patch")
        try:
            body = yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise StatusError(400, f"error decoding YAML: {error}") from None
        if not isinstance(body, dict):
            raise StatusError(400, "an apply patch must be an object")
        fields = {"manager": manager, "operation": "Apply", "apiVersion": target.kind.api_version,
                  "time": stamp(self._clock()), "fieldsType": "FieldsV1", "fieldsV1": {}}  # fmt: skip
        old = self.store.get(target.kind.storage, target.namespace, target.name)
        if old is None:
            body.setdefault("metadata", {})["name"] = target.name
            created = await self.create(target, body, dry_run(request))
            created = {**created, "metadata": {**created["metadata"], "managedFields": [fields]}}
            return created, True
        new = patches.strategic(old, body)
        others = [entry for entry in old["metadata"].get("managedFields") or [] if entry["manager"] != manager]
        new["metadata"] = {**new["metadata"], "managedFields": [*others, fields],
                           "resourceVersion": old["metadata"]["resourceVersion"]}  # fmt: skip
        return self.update(target, old, new, dry_run(request)), False

    def update(self, target: Target, old: dict[str, Any], new: dict[str, Any], dry: bool = False) -> dict[str, Any]:
        """Store a new state of an object: of its status only, or of everything else. Raises StatusError."""
        kind = target.kind
        if not isinstance(new.get("metadata"), dict):
            raise StatusError(400, "metadata must be an object")
        version = new["metadata"].get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(kind.plural, target.name)
        if target.subresource == "status":
            metadata = {**old["metadata"]}
            for key in ("annotations", "labels"):
                if key in new["metadata"]:
                    metadata[key] = new["metadata"][key]
            new = {**old, "metadata": metadata, "status": new.get("status") or {}}
        else:
            kept = {key: old["metadata"][key] for key in ("uid", "creationTimestamp", "name", "namespace",
                    "deletionTimestamp", "deletionGracePeriodSeconds") if key in old["metadata"]}  # fmt: skip
            new = {**new, "kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": {**new["metadata"], **kept}}
            for key in ("labels", "annotations", "finalizers"):
                if not new["metadata"].get(key, True):
                    del new["metadata"][key]
            if kind.plural in discovery.SUBRESOURCES and not kind.group and "status" in old:
                new["status"] = old["status"]
            defaults.validate_metadata(kind.kind, new)
            if kind.plural == "pods" and new["spec"].get("nodeName") != old["spec"].get("nodeName"):
                raise StatusError(
                    422, f'Pod "{target.name}" is invalid: spec: Forbidden: pod updates may not change nodeName'
                )
        new["metadata"] = {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}
        if dry or new == old:
            return new
        if (
            new["metadata"].get("deletionTimestamp")
            and not new["metadata"].get("finalizers")
            and old["metadata"].get("finalizers")
        ):
            self.store.write(kind.storage, new, "MODIFIED")
            return self.store.remove(kind.storage, target.namespace, target.name)
        written = self.store.write(kind.storage, new, "MODIFIED")
        if kind.plural in {"pods", "resourcequotas"}:
            self._count_quota(target.namespace)
        return written

    def delete(self, target: Target, options: dict[str, Any], query: Any = None) -> dict[str, Any]:
        """Delete an object, at once or by marking it. Raises StatusError."""
        kind, old = target.kind, self.lookup(target)
        precondition = (options.get("preconditions") or {}).get("uid")
        if precondition and precondition != old["metadata"]["uid"]:
            raise StatusError(
                409,
                f"Precondition failed: UID in precondition: {precondition}, UID in object meta: {old['metadata']['uid']}",
            )
        if (query or {}).get("dryRun") or options.get("dryRun"):
            return old
        if kind.plural == "namespaces":
            return self._delete_namespace(old)
        grace = options.get("gracePeriodSeconds", (query or {}).get("gracePeriodSeconds"))
        if grace is None:
            grace = old.get("spec", {}).get("terminationGracePeriodSeconds", 30) if kind.plural == "pods" else 0
        bound = (
            kind.plural == "pods"
            and old["spec"].get("nodeName")
            and old["status"].get("phase") not in {"Succeeded", "Failed"}
        )
        if (bound and int(grace) > 0) or old["metadata"].get("finalizers"):
            if old["metadata"].get("deletionTimestamp"):
                return old
            moment = self._clock() + datetime.timedelta(seconds=int(grace))
            marked = {**old, "metadata": {**old["metadata"], "deletionTimestamp": stamp(moment),
                                          "deletionGracePeriodSeconds": int(grace)}}  # fmt: skip
            return self.store.write(kind.storage, marked, "MODIFIED")
        last = self.store.remove(kind.storage, target.namespace, target.name)
        self._count_quota(target.namespace)
        return last

    def _delete_namespace(self, old: dict[str, Any]) -> dict[str, Any]:
        name = old["metadata"]["name"]
        marked = {**old, "metadata": {**old["metadata"], "deletionTimestamp": stamp(self._clock())},
                  "status": {**old.get("status", {}), "phase": "Terminating"}}  # fmt: skip
        self.store.write("/namespaces", marked, "MODIFIED")
        asyncio.get_running_loop().call_soon(self._empty_namespace, name)
        return marked

    def _empty_namespace(self, name: str) -> None:
        for storage, table in self.store.tables():
            for _, key in list(table.namespaces.get(name, {})):
                self.store.remove(storage, name, key)
        if self.store.get("/namespaces", "", name) is not None:
            self.store.remove("/namespaces", "", name)

    def _delete_collection(self, request: web.Request, target: Target) -> web.Response:
        items = []
        for entry in self._selected(request, target):
            metadata = entry.object["metadata"]
            one = Target(target.kind, metadata.get("namespace", ""), metadata["name"], "")
            items.append(self.delete(one, {}, request.query))
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
        return respond(head | {"metadata": {"resourceVersion": str(self.store.version)}, "items": items})

    def _count_quota(self, namespace: str) -> None:
        quotas = self.store.table("/resourcequotas").namespaces.get(namespace, {})
        for (_, name), entry in list(quotas.items()):
            hard = (entry.object.get("spec") or {}).get("hard") or {}
            used = self.admission.used(namespace)
            counted = {key: str(used.get(key, 0)) for key in hard if key.startswith("requests.") or key == "pods"}
            status = {"hard": {key: hard[key] for key in counted}, "used": counted}
            if (entry.object.get("status") or {}) != status:
                self.store.write("/resourcequotas", {**entry.object, "status": status}, "MODIFIED")
            assert name

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        from pytest_hami.simulator.apiserver.watch import serve_watch

        return await serve_watch(self.store, request, target)


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


__all__ = ["ApiServer", "Change"]
