"""A model of kube-scheduler with one profile and at most one extender."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
import secrets
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from pytest_hami.simulator import predicates
from pytest_hami.simulator.client import Access, Api, ApiError, Informer

EXTENDER_TIMEOUT = 30.0


@dataclass(frozen=True)
class Backoff:
    """Seconds until a refused pod is tried again after a cluster event: doubling from ``first`` to ``longest``.

    kube-scheduler itself starts at 1 s and ends at 10 s; nothing here is so slow that waiting would help.
    """

    first: float = 0.005
    longest: float = 0.5

    def after(self, attempts: int) -> float:
        """Return the pause after this many attempts."""
        return float(min(self.first * 2 ** max(attempts - 1, 0), self.longest))


# Refused pods are tried again only when somebody asks for it.
ON_DEMAND = Backoff(math.inf, math.inf)


class SchedulerRules:
    """Decisions that a mutant may break."""

    def reason_of(self, refused: Mapping[str, str], node: str) -> str:
        """Return the reason that is shown for a node which the extender refused."""
        return refused[node]

    def wakes(self, kind: str) -> bool:
        """Return whether a cluster event of this kind brings refused pods back into the queue."""
        return kind in {"ADDED", "MODIFIED", "DELETED"}

    def asks_extender(self, mentioned: bool) -> bool:
        """Return whether the extender is asked about a pod that mentions one of its resources, or none."""
        return mentioned


class KubeScheduler:
    """One scheduler process: pods of its name, one after another."""

    def __init__(
        self,
        api_url: str | Access,
        *,
        scheduler_name: str,
        extender_url: str | None,
        ca_bundle: str | None,
        managed_resources: Iterable[str],
        rules: SchedulerRules | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._url = api_url
        self._name = scheduler_name
        self._extender = extender_url
        self._ca_bundle = ca_bundle
        self._managed = tuple(managed_resources)
        self._rules = rules or SchedulerRules()
        self._backoff = backoff or Backoff()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._refused: dict[str, int] = {}
        self._assumed: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: dict[tuple[str, str], str] = {}
        self._shapes: dict[str, Any] = {}

    async def start(self) -> None:
        """Read pods and nodes, then schedule. Raises ApiError."""
        self._session = aiohttp.ClientSession()
        self._ssl: ssl.SSLContext | None = None
        if self._ca_bundle:
            import base64

            self._ssl = ssl.create_default_context(cadata=base64.b64decode(self._ca_bundle).decode())
        self._api = Api(self._url, self._session)
        self._nodes = Informer(self._api, "/api/v1/nodes", self._node_event)
        self._pods = Informer(self._api, "/api/v1/pods", self._pod_event)
        await self._nodes.start()
        await self._pods.start()
        self._spawn(self._loop())

    async def stop(self) -> None:
        """Stop scheduling."""
        await self._nodes.stop()
        await self._pods.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def try_again(self, uids: Iterable[str]) -> None:
        """Try these pods once more, as far as they were refused, and return when that is done."""
        for uid in uids:
            if uid in self._refused:
                self._enqueue(uid)
        await self._queue.join()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _node_event(self, kind: str, node: dict[str, Any]) -> None:
        # Status-free changes of nodes happen at each bind (the lock); they wake nobody up in kube-scheduler either.
        if kind != "MODIFIED" or self._shape(node) != self._shapes.get(node["metadata"]["name"]):
            self._wake(kind, "")
        self._shapes[node["metadata"]["name"]] = self._shape(node)

    @staticmethod
    def _shape(node: Mapping[str, Any]) -> tuple[str, str]:
        spec, status = node.get("spec") or {}, node.get("status") or {}
        return repr((spec, status.get("allocatable"))), repr(node["metadata"].get("labels"))

    def _pod_event(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        mine = pod["spec"].get("schedulerName") == self._name
        if kind == "DELETED":
            self._refused.pop(uid, None)
            self._assumed.pop(uid, None)
            if pod["spec"].get("nodeName"):
                self._wake("DELETED", uid)
            return
        if pod["spec"].get("nodeName"):
            self._assumed.pop(uid, None)
            if pod["status"].get("phase") in {"Succeeded", "Failed"}:
                self._wake("MODIFIED", uid)
            return
        if mine and kind == "ADDED" and uid not in self._refused:
            self._enqueue(uid)

    def _enqueue(self, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._queue.put_nowait(uid)

    def _wake(self, kind: str, except_uid: str) -> None:
        if not self._rules.wakes(kind):
            return
        for uid in list(self._refused):
            if uid != except_uid:
                self._enqueue_later(uid, self._backoff.after(self._refused[uid]))

    def _enqueue_later(self, uid: str, seconds: float) -> None:
        if seconds < math.inf:
            asyncio.get_running_loop().call_later(seconds, self._enqueue, uid)

    async def _loop(self) -> None:
        while True:
            uid = await self._queue.get()
            self._queued.discard(uid)
            try:
                await self._try(uid)
            finally:
                self._queue.task_done()

    async def _try(self, uid: str) -> None:
        pod = self._pods.items.get(uid)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        if pod["spec"].get("schedulingGates") or uid in self._assumed:
            return
        try:
            await self._schedule(pod)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            await self._refuse(pod, "SchedulerError", str(error), retry=True)

    async def _schedule(self, pod: dict[str, Any]) -> None:
        used = self._used()
        mentioned = predicates.mentions(pod, self._managed)
        ask = self._extender is not None and self._rules.asks_extender(mentioned)
        reasons: dict[str, str] = {}
        left = []
        for node in sorted(self._nodes.items.values(), key=lambda found: str(found["metadata"]["name"])):
            name = node["metadata"]["name"]
            why = predicates.first_refusal(pod, node, used.get(name, {}), self._managed if self._extender else ())
            if why:
                reasons[name] = why
            else:
                left.append(name)
        own = len(reasons)
        if left and ask:
            answer = await self._post("filter", {"Pod": pod, "NodeNames": left})
            if answer.get("Error"):
                await self._refuse(pod, "SchedulerError", answer["Error"], retry=False)
                return
            failed = answer.get("FailedNodes") or {}
            left = answer.get("NodeNames") or []
            reasons |= {name: self._rules.reason_of(failed, name) for name in failed}
        if not left:
            message = predicates.failed_scheduling(len(self._nodes.items), list(reasons.values()), own)
            await self._refuse(pod, "Unschedulable", message, retry=False)
            return
        await self._bind(pod, min(left, key=lambda name: (used.get(name, {}).get("pods", 0), name)), ask)

    async def _bind(self, pod: dict[str, Any], node: str, ask: bool) -> None:
        metadata = pod["metadata"]
        self._assumed[metadata["uid"]] = node
        if ask:
            body = {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            }
            answer = await self._post("bind", body)
            if answer.get("Error"):
                self._assumed.pop(metadata["uid"], None)
                await self._refuse(pod, "SchedulerError", answer["Error"], retry=True)
                return
        else:
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]},
                       "target": {"kind": "Node", "name": node}}  # fmt: skip
            try:
                await self._api.create(
                    f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding", binding
                )
            except ApiError:
                self._assumed.pop(metadata["uid"], None)
                raise
        self._refused.pop(metadata["uid"], None)
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        await self._event(pod, "Normal", "Scheduled", text)

    async def _post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        limit = aiohttp.ClientTimeout(total=EXTENDER_TIMEOUT)
        async with self._session.post(
            f"{self._extender}/{verb}", json=body, ssl=self._ssl or True, timeout=limit
        ) as answer:
            found = await answer.json(content_type=None)
            return found if isinstance(found, dict) else {"Error": f"extender {verb}: no object"}

    async def _refuse(self, pod: dict[str, Any], reason: str, message: str, *, retry: bool) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        # The pod may go while this is written down, and its count with it.
        attempts = self._refused[uid] = self._refused.get(uid, 0) + 1
        current = self._pods.items.get(uid, pod)
        old: dict[str, Any] = next(
            (c for c in current["status"].get("conditions") or [] if c["type"] == "PodScheduled"), {}
        )
        if (old.get("reason"), old.get("message"), old.get("status")) != (reason, message, "False"):
            condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message,
                         "lastProbeTime": None, "lastTransitionTime": _now()}  # fmt: skip
            others = [c for c in current["status"].get("conditions") or [] if c["type"] != "PodScheduled"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
            with contextlib.suppress(ApiError):
                await self._api.merge_patch(path, {"status": {"conditions": [*others, condition]}})
        with contextlib.suppress(ApiError):
            await self._event(pod, "Warning", "FailedScheduling", message)
        if retry:
            self._enqueue_later(uid, self._backoff.after(attempts))

    async def _event(self, pod: dict[str, Any], type_: str, reason: str, note: str) -> None:
        metadata = pod["metadata"]
        if self._events.get((metadata["uid"], reason)) == note:
            return
        self._events[(metadata["uid"], reason)] = note
        body = {
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": metadata["namespace"]},
            "eventTime": _now(micro=True), "action": "Scheduling" if type_ == "Warning" else "Binding", "reason": reason,
            "type": type_, "note": note[:1024], "reportingController": self._name,
            "reportingInstance": f"{self._name}-simulated",
            "regarding": {"kind": "Pod", "apiVersion": "v1", "namespace": metadata["namespace"], "name": metadata["name"],
                          "uid": metadata["uid"]},
        }  # fmt: skip
        await self._api.create(f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events", body)

    def _used(self) -> dict[str, dict[str, int]]:
        used: dict[str, dict[str, int]] = {}
        for uid, pod in self._pods.items.items():
            node = pod["spec"].get("nodeName") or self._assumed.get(uid)
            if node and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                taken = used.setdefault(node, {})
                for name, value in predicates.requests(pod).items():
                    taken[name] = taken.get(name, 0) + value
        return used


def _now(*, micro: bool = False) -> str:
    moment = datetime.datetime.now(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
