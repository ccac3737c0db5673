"""Kubernetes events (core/v1) as client-go's recorder writes them: an equal event raises the count of the first."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_hami.simulator.client import Api, ApiError

REMEMBERED = 4096
Key = tuple[str, str, str, str]


class Recorder:
    """Writes events about pods; an event that the API server refuses is lost, as with the real recorder.

    Source of the shape: client-go, tools/record/event.go and events_cache.go.
    """

    def __init__(self, api: Api, component: str) -> None:
        self._api = api
        self._component = component
        self._seen: OrderedDict[Key, tuple[str, int]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def record_later(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """Write an event in the background; ``drain`` waits for it."""
        task = asyncio.create_task(self.record(pod, kind, reason, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until every event begun with ``record_later`` is written."""
        await asyncio.gather(*self._tasks)

    async def record(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """Write an event of type ``kind`` (Normal or Warning) about a pod."""
        metadata = pod.get("metadata") or {}
        namespace = str(metadata.get("namespace", "default"))
        path = f"/api/v1/namespaces/{namespace}/events"
        key = (str(metadata.get("uid", "")), kind, reason, message)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name, count = self._seen.get(key, ("", 0))
        if name and await self._raise(f"{path}/{name}", count + 1, now):
            self._remember(key, name, count + 1)
            return
        name = f"{metadata.get('name')}.{uuid.uuid4().hex[:16]}"
        self._remember(key, name, 1)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": metadata.get("name"),
                "uid": metadata.get("uid"),
                "resourceVersion": metadata.get("resourceVersion"),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.create(path, body)
        except ApiError:
            self._seen.pop(key, None)

    async def _raise(self, path: str, count: int, now: str) -> bool:
        try:
            await self._api.merge_patch(path, {"count": count, "lastTimestamp": now})
        except ApiError:
            return False
        return True

    def _remember(self, key: Key, name: str, count: int) -> None:
        self._seen[key] = (name, count)
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
