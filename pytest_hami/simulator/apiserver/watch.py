"""Watches: replay from a version, then live, each event encoded once for all watchers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from pytest_hami.simulator.apiserver import selectors
from pytest_hami.simulator.apiserver.errors import StatusError
from pytest_hami.simulator.apiserver.events import to_events_v1
from pytest_hami.simulator.apiserver.store import Change, Store, Table
from pytest_hami.simulator.apiserver.target import Target

DEFAULT_SECONDS = 1800.0


async def serve_watch(store: Store, request: web.Request, target: Target) -> web.StreamResponse:
    """Answer a watch until its time is over, the client goes, or the server stops."""
    query = request.query
    table = store.table(target.kind.storage)
    view = _View(request, target)
    queue: asyncio.Queue[Change | None] = asyncio.Queue()
    since = query.get("resourceVersion", "")
    _require_match(query)
    initial = query.get("sendInitialEvents", "").lower() == "true" or since in {"", "0"}
    if not initial and not since.isdigit():
        raise StatusError(400, f"invalid resourceVersion {since!r}")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    table.watchers.add(queue)
    try:
        if initial:
            start = [
                line for _, entry in table.select(target.namespace, ()) if (line := view.line("ADDED", entry.object))
            ]
            if query.get("sendInitialEvents", "").lower() == "true" and query.get("allowWatchBookmarks"):
                start.append(_bookmark(store, target, initial_end=True))
        else:
            start = _replay(table, view, int(since))
        await response.prepare(request)
        if start:
            await response.write(b"".join(start))
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or DEFAULT_SECONDS)
        while (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    change = await queue.get()
            except TimeoutError:
                break
            lines = []
            while change is not None:
                lines.append(view.of(change))
                if queue.empty():
                    break
                change = queue.get_nowait()
            text = b"".join(line for line in lines if line)
            if text:
                await response.write(text)
            if change is None:
                break
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        table.watchers.discard(queue)
    return response


def _require_match(query: Mapping[str, str]) -> None:
    """Kubernetes 1.36, apimachinery, pkg/apis/meta/internalversion/validation (ValidateListOptions)."""
    streamed, match = "sendInitialEvents" in query, query.get("resourceVersionMatch", "")
    if streamed and match != "NotOlderThan":
        raise StatusError(422, "resourceVersionMatch: Forbidden: sendInitialEvents requires NotOlderThan")
    if match and not streamed:
        raise StatusError(422, "resourceVersionMatch: Forbidden: it is for watches with sendInitialEvents only")


def _replay(table: Table, view: _View, since: int) -> list[bytes]:
    if since < table.forgotten:
        status = StatusError(410, f"too old resource version: {since} ({table.forgotten})").to_dict()
        return [json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"]
    return [line for change in table.log if change.version > since and (line := view.of(change))]


def _bookmark(store: Store, target: Target, *, initial_end: bool) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(store.version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    object_ = {"kind": target.kind.kind, "apiVersion": target.kind.api_version, "metadata": metadata}
    return json.dumps({"type": "BOOKMARK", "object": object_}).encode() + b"\n"


class _View:
    """What one watcher sees: selectors, the API group, tables or objects."""

    def __init__(self, request: web.Request, target: Target) -> None:
        self._target = target
        self._terms = selectors.parse_labels(request.query.get("labelSelector", ""))
        self._fields = request.query.get("fieldSelector", "")
        self._fits = selectors.parse_fields(self._fields, target.kind.plural)
        self._table = "as=Table" in request.headers.get("Accept", "")
        self._plain = not (
            self._terms or self._fields or target.name or self._table or target.kind.group == "events.k8s.io"
        )

    def _sees(self, object_: dict[str, Any] | None) -> bool:
        if object_ is None:
            return False
        metadata = object_["metadata"]
        if self._target.name and metadata["name"] != self._target.name:
            return False
        labels = metadata.get("labels") or {}
        return all(term.matches(labels) for term in self._terms) and self._fits(object_)

    def of(self, change: Change) -> bytes:
        """Return the line for a change, empty when this watcher does not see it."""
        object_ = change.entry.object
        if self._target.namespace and object_["metadata"].get("namespace") != self._target.namespace:
            return b""
        if self._plain:
            line = change.lines.get("plain")
            if line is None:
                line = b'{"type":"' + change.type.encode() + b'","object":' + change.entry.encoded + b"}\n"
                change.lines["plain"] = line
            return line
        before, after = self._sees(change.before), self._sees(object_)
        if change.type == "DELETED":
            return self._encode("DELETED", object_) if before else b""
        if after:
            return self._encode("MODIFIED" if before else "ADDED", object_)
        return self._encode("DELETED", object_) if before else b""

    def line(self, type_: str, object_: dict[str, Any]) -> bytes:
        """Return the line for a present object, empty when this watcher does not see it."""
        if self._target.namespace and object_["metadata"].get("namespace") != self._target.namespace:
            return b""
        return self._encode(type_, object_) if self._sees(object_) else b""

    def _encode(self, type_: str, object_: dict[str, Any]) -> bytes:
        if self._table:
            import datetime

            from pytest_hami.simulator.apiserver import discovery

            metadata = {"resourceVersion": object_["metadata"]["resourceVersion"]}
            object_ = discovery.table(self._target.kind, [object_], metadata, datetime.datetime.now(datetime.UTC))
        elif self._target.kind.group == "events.k8s.io":
            object_ = to_events_v1(object_)
        return json.dumps({"type": type_, "object": object_}, separators=(",", ":")).encode() + b"\n"
