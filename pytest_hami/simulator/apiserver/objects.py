"""The life of objects: created, changed, deleted, each through defaulting, admission and validation."""

from __future__ import annotations

import asyncio
import copy
import datetime
import secrets
import uuid
from collections.abc import Callable
from typing import Any

from pytest_hami.simulator.apiserver import defaults, discovery
from pytest_hami.simulator.apiserver.admission import Admission
from pytest_hami.simulator.apiserver.errors import StatusError, conflict, invalid, not_found
from pytest_hami.simulator.apiserver.events import from_events_v1, to_events_v1
from pytest_hami.simulator.apiserver.kinds import Kind, Registry
from pytest_hami.simulator.apiserver.store import Store
from pytest_hami.simulator.apiserver.target import Target

BUILT_IN_PRIORITIES = ("system-node-critical", "system-cluster-critical")
# These may not be deleted (plugin/pkg/admission/namespace/lifecycle, 1.36).
KEPT_NAMESPACES = ("default", "kube-system", "kube-public")
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def now() -> datetime.datetime:
    """Return the present in UTC."""
    return datetime.datetime.now(datetime.UTC)


def stamp(moment: datetime.datetime) -> str:
    """Return a timestamp as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Objects:
    """Every write to the store; the namespaces that each cluster has are there from the start."""

    def __init__(
        self, store: Store, registry: Registry, admission: Admission, clock: Callable[[], datetime.datetime]
    ) -> None:
        self._store = store
        self._registry = registry
        self._admission = admission
        self._clock = clock
        namespaces = registry.find("", "v1", "namespaces")
        assert namespaces is not None
        for name in NAMESPACES:
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            store.write(namespaces.storage, self._complete(namespaces, body, ""), "ADDED")

    def lookup(self, target: Target) -> dict[str, Any]:
        """Return the stored object of a target. Raises StatusError 404."""
        found = self._store.get(target.kind.storage, target.namespace, target.name)
        if found is None:
            raise not_found(target.kind.plural, target.name)
        return found

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
        if kind.plural == "events":
            defaults.validate_event(object_)
        if kind.plural == "pods" and not kind.group:
            submitted = copy.deepcopy(object_)
            object_ = await self._admission.mutate(kind, submitted, dry_run=dry)
            defaults.default(kind.kind, object_)
            defaults.validate_metadata(kind.kind, object_)
            defaults.validate_pod(object_)
            self._require_runtime_class(object_)
            self._require_priority_class(object_)
            self._admission.require_quota(object_)
        if self._store.get(kind.storage, target.namespace, name) is not None:
            raise StatusError(409, f'{kind.plural} "{name}" already exists', reason="AlreadyExists")
        if dry:
            return object_
        self._store.write(kind.storage, object_, "ADDED")
        if kind.plural == "customresourcedefinitions":
            self._registry.add(object_)
        self._count_quota(target.namespace)
        return to_events_v1(object_) if kind.group == "events.k8s.io" else object_

    def _complete(self, kind: Kind, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        given = body.get("metadata")
        if given is not None and not isinstance(given, dict):
            raise StatusError(400, "metadata must be an object")
        metadata = {key: value for key, value in (given or {}).items() if value not in (None, {}, [])}
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise invalid(kind.kind, "", ("metadata.name", "Required value: name or generateName is required"))
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        if kind.namespaced:
            if metadata.get("namespace", namespace) != namespace:
                raise StatusError(
                    400, "the namespace of the provided object does not match the namespace sent on the request"
                )
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
        found = self._store.get("/namespaces", "", target.namespace)
        if found is None:
            raise not_found("namespaces", target.namespace)
        if found["metadata"].get("deletionTimestamp"):
            text = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise StatusError(403, f"{target.kind.plural} is forbidden: {text}",
                              details={"causes": [{"reason": "NamespaceTerminating"}]})  # fmt: skip

    def _require_runtime_class(self, pod: dict[str, Any]) -> None:
        name = pod["spec"].get("runtimeClassName")
        if name and self._store.get("node.k8s.io/runtimeclasses", "", name) is None:
            text = f'pod rejected: RuntimeClass "{name}" not found'
            raise StatusError(403, f'pods "{pod["metadata"]["name"]}" is forbidden: {text}')

    def _require_priority_class(self, pod: dict[str, Any]) -> None:
        name = pod["spec"].get("priorityClassName")
        known = self._store.get("scheduling.k8s.io/priorityclasses", "", name or "")
        if name and known is None and name not in BUILT_IN_PRIORITIES:
            text = f"no PriorityClass with name {name} was found"
            raise StatusError(403, f'pods "{pod["metadata"]["name"]}" is forbidden: {text}')

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
            if kind.plural == "pods" and not kind.group:
                new = copy.deepcopy(new)
                defaults.default(kind.kind, new)
                defaults.validate_pod_update(old, new)
        new["metadata"] = {**new["metadata"], "resourceVersion": old["metadata"]["resourceVersion"]}
        if dry or new == old:
            return new
        if (
            new["metadata"].get("deletionTimestamp")
            and not new["metadata"].get("finalizers")
            and old["metadata"].get("finalizers")
        ):
            self._store.write(kind.storage, new, "MODIFIED")
            last = self._store.remove(kind.storage, target.namespace, target.name)
            self._empty_namespace(target.namespace)
            return last
        written = self._store.write(kind.storage, new, "MODIFIED")
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
            if target.name in KEPT_NAMESPACES:
                text = f'namespaces "{target.name}" is forbidden: this namespace may not be deleted'
                raise StatusError(403, text)
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
            return self._store.write(kind.storage, marked, "MODIFIED")
        last = self._store.remove(kind.storage, target.namespace, target.name)
        self._count_quota(target.namespace)
        return last

    def _delete_namespace(self, old: dict[str, Any]) -> dict[str, Any]:
        name = old["metadata"]["name"]
        marked = {**old, "metadata": {**old["metadata"], "deletionTimestamp": stamp(self._clock())},
                  "status": {**old.get("status", {}), "phase": "Terminating"}}  # fmt: skip
        self._store.write("/namespaces", marked, "MODIFIED")
        asyncio.get_running_loop().call_soon(self._empty_namespace, name)
        return marked

    def _empty_namespace(self, name: str) -> None:
        """Go on with a namespace that ends: what nothing keeps is removed, and the namespace with the last of it."""
        namespace = self._store.get("/namespaces", "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        kept = False
        for storage, table in self._store.tables():
            for (_, key), entry in list(table.namespaces.get(name, {}).items()):
                metadata = entry.object["metadata"]
                if not metadata.get("finalizers"):
                    self._store.remove(storage, name, key)
                    continue
                kept = True
                if not metadata.get("deletionTimestamp"):
                    marked = {**metadata, "deletionTimestamp": stamp(self._clock())}
                    self._store.write(storage, {**entry.object, "metadata": marked}, "MODIFIED")
        if not kept:
            self._store.remove("/namespaces", "", name)

    def _count_quota(self, namespace: str) -> None:
        quotas = self._store.table("/resourcequotas").namespaces.get(namespace, {})
        for (_, name), entry in list(quotas.items()):
            hard = (entry.object.get("spec") or {}).get("hard") or {}
            used = self._admission.used(namespace)
            counted = {key: str(used.get(key, 0)) for key in hard if key.startswith("requests.") or key == "pods"}
            status = {"hard": {key: hard[key] for key in counted}, "used": counted}
            if (entry.object.get("status") or {}) != status:
                self._store.write("/resourcequotas", {**entry.object, "status": status}, "MODIFIED")
            assert name
