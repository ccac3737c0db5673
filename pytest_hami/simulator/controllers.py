"""What kube-controller-manager does and nobody else does beside a bare kube-apiserver: namespaces end, quotas are counted.

A model of two controllers, as far as checks see them. Sources: Kubernetes 1.36, pkg/controller/namespace/deletion and
pkg/controller/resourcequota.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import aiohttp

from pytest_hami.contract.quantities import exact_quantity
from pytest_hami.simulator.client import Access, Api, ApiError, Informer, Object

LOG = logging.getLogger(__name__)
NAMESPACES = "/api/v1/namespaces"
FINALIZER = "kubernetes"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
ENDED = frozenset({"Succeeded", "Failed"})


class Controllers:
    """The two controllers against one API server."""

    def __init__(self, server: str | Access) -> None:
        self._server = server
        self._pods: dict[str, dict[str, Object]] = {}
        self._ending: set[str] = set()
        self._sweeping = False
        self._dirty: set[str] = set()
        self._collections: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._informers: list[Informer] = []

    async def start(self) -> None:
        """Read namespaces, quotas and pods, then follow them. Raises ApiError."""
        self._session = aiohttp.ClientSession()
        self._api = Api(self._server, self._session)
        self._quotas = Informer(self._api, "/api/v1/resourcequotas", self._quota_event)
        self._informers = [
            Informer(self._api, "/api/v1/pods", self._pod_event),
            self._quotas,
            Informer(self._api, NAMESPACES, self._namespace_event),
        ]
        for informer in self._informers:
            await informer.start()

    async def stop(self) -> None:
        """Stop following."""
        for informer in self._informers:
            await informer.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _namespace_event(self, kind: str, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        if kind == "DELETED":
            self._ending.discard(name)
        elif namespace["metadata"].get("deletionTimestamp") and name not in self._ending:
            self._ending.add(name)
            if not self._sweeping:
                self._sweeping = True
                self._spawn(self._sweep())

    async def _sweep(self) -> None:
        """End the namespaces that are to end, all of them together."""
        pause = FIRST_PAUSE
        while self._ending:
            # Whoever ends one namespace soon ends another, and to look for what they hold is the same work for all.
            await asyncio.sleep(pause)
            ending = frozenset(self._ending)
            try:
                holding = await self._emptied(ending)
            except ApiError as error:
                LOG.info("namespaces %s: %s", ", ".join(sorted(ending)), error.message)
                holding = ending
            for name in ending - holding:
                await self._finalize(name)
            pause = min(2 * pause, LONGEST_PAUSE) if holding else FIRST_PAUSE
        self._sweeping = False

    async def _finalize(self, name: str) -> None:
        try:
            found = await self._api.get(f"{NAMESPACES}/{name}")
            left = [entry for entry in found["spec"].get("finalizers") or [] if entry != FINALIZER]
            await self._api.replace(f"{NAMESPACES}/{name}/finalize", {**found, "spec": {"finalizers": left}})
        except ApiError as error:
            LOG.info("namespace %s: %s", name, error.message)
            if error.code != 404:
                return
        self._ending.discard(name)

    async def _emptied(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Delete what these namespaces hold and return those that held anything."""
        if not self._collections:
            self._collections = await self._deletable()
        holding = set()
        for collection in self._collections:
            items = (await self._api.list(collection)).get("items") or ()
            prefix, plural = collection.rsplit("/", 1)
            for name in {item["metadata"]["namespace"] for item in items} & namespaces:
                holding.add(name)
                await self._api.delete(f"{prefix}/namespaces/{name}/{plural}")
        return frozenset(holding)

    async def _deletable(self) -> list[str]:
        """Return the paths of all namespaced collections that can be deleted, pods first."""
        groups = await self._api.get("/apis")
        prefixes = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups.get("groups") or ())]
        found = []
        for prefix in prefixes:
            for resource in (await self._api.get(prefix)).get("resources") or ():
                if resource.get("namespaced") and "deletecollection" in (resource.get("verbs") or ()):
                    found.append(f"{prefix}/{resource['name']}")
        # Nobody asks for the events of what is gone, and they end by themselves.
        found = [path for path in found if not path.endswith("/events")]
        return sorted(found, key=lambda path: path != "/api/v1/pods")

    def _pod_event(self, kind: str, pod: Object) -> None:
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        pods = self._pods.setdefault(namespace, {})
        if kind == "DELETED":
            pods.pop(uid, None)
        else:
            pods[uid] = pod
        # What is added was counted when it was admitted.
        if kind == "DELETED" or pod["status"].get("phase") in ENDED:
            self._recount(namespace)

    def _quota_event(self, kind: str, quota: Object) -> None:
        if kind != "DELETED" and quota["spec"].get("hard") != (quota.get("status") or {}).get("hard"):
            self._recount(quota["metadata"]["namespace"])

    def _recount(self, namespace: str) -> None:
        if namespace not in self._dirty:
            self._dirty.add(namespace)
            self._spawn(self._count(namespace))

    async def _count(self, namespace: str) -> None:
        self._dirty.discard(namespace)
        for quota in [q for q in self._quotas.items.values() if q["metadata"]["namespace"] == namespace]:
            hard = quota["spec"].get("hard") or {}
            used = {
                key: format(value, "f") for key, value in usage(hard, self._pods.get(namespace, {}).values()).items()
            }
            path = f"{NAMESPACES}/{namespace}/resourcequotas/{quota['metadata']['name']}/status"
            # It may be gone, and whoever changed it meanwhile causes another count.
            with contextlib.suppress(ApiError):
                await self._api.merge_patch(path, {"status": {"hard": hard, "used": used}})


def usage(hard: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> dict[str, Decimal]:
    """Return what living pods use of the limits of a quota that Kubernetes counts: ``pods`` and ``requests.*``.

    ``limits.*`` of extended resources are not among them, and so have no use (pkg/quota/v1/evaluator/core/pods.go).
    """
    living = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]
    used = {}
    for key in hard:
        if key in {"pods", "count/pods"}:
            used[key] = Decimal(len(living))
        elif key.startswith("requests."):
            used[key] = sum((_requested(pod, key.removeprefix("requests.")) for pod in living), Decimal(0))
    return used


def _requested(pod: Mapping[str, Any], resource: str) -> Decimal:
    def of(container: Mapping[str, Any]) -> Decimal:
        requests = (container.get("resources") or {}).get("requests") or {}
        return exact_quantity(requests.get(resource, 0)) or Decimal(0)

    spec = pod["spec"]
    return max([sum(map(of, spec["containers"]), Decimal(0)), *map(of, spec.get("initContainers") or ())])
