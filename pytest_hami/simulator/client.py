"""The HTTP client and the informer with which the simulated parts talk to an API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

Object = dict[str, Any]
Operations = list[Object]
LOG = logging.getLogger(__name__)
RELIST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
NO_LIMIT = aiohttp.ClientTimeout(total=None)


@dataclass(frozen=True)
class Access:
    """How an API server is reached: its URL, and over TLS a bearer token and the path of its authority's certificate."""

    url: str
    token: str = ""
    authority: str = ""


class ApiError(Exception):
    """An answer of the API server that is not a success, or no answer at all (code 0)."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message


class Api:
    """Requests to one API server; paths are those of Kubernetes, such as ``/api/v1/namespaces/ns/pods/p``.

    Every method raises ApiError; its text is the message of the Status that the server sent.
    """

    def __init__(self, server: str | Access, session: aiohttp.ClientSession) -> None:
        access = Access(server) if isinstance(server, str) else server
        self.url = access.url.rstrip("/")
        self._session = session
        self._headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        self._trust = ssl.create_default_context(cafile=access.authority) if access.authority else True

    async def get(self, path: str) -> Object:
        """Return one object."""
        return await self._request("GET", path)

    async def list(self, path: str, **params: str) -> Object:
        """Return a List object."""
        return await self._request("GET", path, params=params)

    async def create(self, path: str, body: Object, **params: str) -> Object:
        """POST an object and return what was stored."""
        return await self._request("POST", path, body, params=params)

    async def replace(self, path: str, body: Object) -> Object:
        """PUT an object and return what was stored."""
        return await self._request("PUT", path, body)

    async def merge_patch(self, path: str, body: Object) -> Object:
        """Apply an RFC 7386 patch and return the object."""
        return await self._request("PATCH", path, body, content_type="application/merge-patch+json")

    async def delete(self, path: str, body: Object | None = None) -> Object:
        """Delete an object; ``body`` holds DeleteOptions."""
        return await self._request("DELETE", path, body)

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield ``(type, object)`` after ``resource_version`` until the server ends the stream.

        Raises ApiError, also for an ERROR event such as 410 Expired, and aiohttp.ClientError for a lost connection.
        """
        params = {"watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        async with self._session.get(
            self.url + path, params=params, timeout=NO_LIMIT, headers=self._headers, ssl=self._trust
        ) as response:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            # Lines are cut by hand: aiohttp's own line reader refuses lines beyond its buffer, and pods can be large.
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        event = json.loads(line)
                        kind, item = event["type"], event["object"]
                        if kind == "ERROR":
                            raise ApiError(
                                int(item.get("code", 500)), str(item.get("reason", "")), str(item.get("message", ""))
                            )
                        yield kind, item

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}
        try:
            async with self._session.request(
                method, self.url + path, params=params, data=data, headers=headers, ssl=self._trust
            ) as response:
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(0, "ServiceUnavailable", f"{method} {self.url}{path}: {error}") from error
        if status >= 400:
            raise _error(status, content)
        try:
            found = json.loads(content)
        except ValueError:
            raise ApiError(status, "InternalError", f"{method} {path}: expected JSON, seen {content[:80]!r}") from None
        return found if isinstance(found, dict) else {}


def _error(status: int, content: bytes) -> ApiError:
    try:
        found = json.loads(content)
        return ApiError(status, str(found.get("reason", "")), str(found.get("message", "")))
    except (ValueError, AttributeError):
        return ApiError(status, "", content.decode(errors="replace")[:200])


class Informer:
    """A local copy of a collection, kept by list and watch.

    ``on_event("ADDED"|"MODIFIED"|"DELETED", object)`` is called in order and synchronously, after ``items`` (by UID)
    was brought up to date. After a lost or expired watch the collection is listed again and the difference reported,
    so that a deletion is never missed.
    """

    def __init__(self, api: Api, path: str, on_event: Callable[[str, Object], None]) -> None:
        self.items: dict[str, Object] = {}
        self._api = api
        self._path = path
        self._on_event = on_event
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """List once, report every object as ADDED, then follow in the background. Raises ApiError."""
        await self._relist()
        self._task = asyncio.create_task(self._follow(), name=f"informer {self._path}")

    async def stop(self) -> None:
        """End the watch."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _relist(self) -> None:
        found = await self._api.list(self._path)
        present = {item["metadata"]["uid"]: item for item in found.get("items") or ()}
        kind = str(found.get("kind", "")).removesuffix("List")
        for uid in [uid for uid in self.items if uid not in present]:
            self._apply("DELETED", self.items[uid])
        for uid, item in present.items():
            # Items of a list carry no kind, those of a watch do.
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", found.get("apiVersion", "v1"))
            old = self.items.get(uid)
            if old is None:
                self._apply("ADDED", item)
            elif old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                self._apply("MODIFIED", item)
        self._version = str(found.get("metadata", {}).get("resourceVersion", ""))

    async def _follow(self) -> None:
        pause = RELIST_PAUSE
        while True:
            try:
                async for kind, item in self._api.watch(self._path, self._version):
                    pause = RELIST_PAUSE
                    self._version = str(item["metadata"].get("resourceVersion", self._version))
                    if kind != "BOOKMARK":
                        self._apply(kind, item)
                await asyncio.sleep(RELIST_PAUSE)
                continue
            except (ApiError, aiohttp.ClientError, OSError, ValueError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            with contextlib.suppress(ApiError):
                await self._relist()

    def _apply(self, kind: str, item: Object) -> None:
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            self.items.pop(uid, None)
        else:
            self.items[uid] = item
        try:
            self._on_event(kind, item)
        except Exception:
            # One bad object must not blind a part to all later ones.
            LOG.exception("informer %s: the handler failed on %s of %s", self._path, kind, item["metadata"].get("name"))
