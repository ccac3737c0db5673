"""One journal over shared watches: the history of every object by UID, without losing or inventing an observation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pytest_hami.kube.client import KubeClient, WatchStream
from pytest_hami.kube.errors import ApiError, ClusterLost, HostileInput, Unreachable
from pytest_hami.text import one_line

WATCHED = ("Pod", "Event", "Node")
WATCH_SECONDS = 300
LOST_AFTER = 5.0
HISTORY_LIMIT = 500
PAUSE = 0.02
ODDITIES = 100


@dataclass(frozen=True)
class Observation:
    """One state of one object: monotonic seconds, ADDED, MODIFIED or DELETED, and the object.

    ``synthetic`` marks what a list showed, at the start or after a watch could not go on: the state is true, the moment
    is not.
    """

    time: float
    type: str
    object: dict[str, Any]
    synthetic: bool = False

    @property
    def version(self) -> str:
        """The resourceVersion."""
        return str(self.object["metadata"].get("resourceVersion", ""))


def sound(object_: Any) -> dict[str, Any]:
    """Return an object whose parts have the kinds that Kubernetes promises, null being absent. Raises HostileInput."""
    if not isinstance(object_, dict):
        raise HostileInput(f"expected an object, seen {type(object_).__name__}")
    result = {key: value for key, value in object_.items() if value is not None}
    for key in ("metadata", "spec", "status", "involvedObject", "source", "series"):
        part = result.get(key)
        if part is None:
            continue
        if not isinstance(part, dict):
            raise HostileInput(f"{key}: expected an object, seen {type(part).__name__}")
        result[key] = {name: value for name, value in part.items() if value is not None}
    metadata = result.get("metadata") or {}
    if not isinstance(metadata.get("uid"), str) or not isinstance(metadata.get("name"), str):
        raise HostileInput("metadata: expected uid and name")
    for key in ("labels", "annotations"):
        part = metadata.get(key, {})
        if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
            raise HostileInput(f"metadata.{key} of {metadata['name']}: expected a map of texts")
    for part, key in (("status", "conditions"), ("status", "containerStatuses"), ("spec", "containers")):
        rows = result.get(part, {}).get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise HostileInput(f"{part}.{key} of {metadata['name']}: expected a list of objects")
    return result


class Journal:
    """Watches pods, events and nodes of the whole cluster."""

    def __init__(self, client: KubeClient, kinds: Iterable[str] = WATCHED, *, lost_after: float = LOST_AFTER) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._lost_after = lost_after
        self._condition = threading.Condition()
        self._count = 0
        self._history: dict[str, list[Observation]] = {}
        self._alive: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in self._kinds}
        self._names: dict[tuple[str, str, str], str] = {}
        self._events: dict[str, dict[str, dict[str, Any]]] = {}
        self._lost = ""
        self._outages = 0
        self._excused = 0.0
        self._troubles: dict[str, float] = {}
        self._oddities: list[str] = []
        self._stopping = threading.Event()
        self._streams: dict[str, WatchStream] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """List every kind, then watch. Raises ApiError or Unreachable when the first list fails."""
        for kind in self._kinds:
            version = self._relist(kind)
            thread = threading.Thread(target=self._follow, args=(kind, version), daemon=True, name=f"journal-{kind}")
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End all watches."""
        self._stopping.set()
        with self._condition:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        for thread in self._threads:
            thread.join(timeout=2)

    def history(self, uid: str) -> tuple[Observation, ...]:
        """Return the observations of an object, oldest first: the first one and the last 499."""
        with self._condition:
            return tuple(self._history.get(uid, ()))

    def latest(self, uid: str) -> dict[str, Any] | None:
        """Return the last state of an object, None when it is gone or was never seen."""
        with self._condition:
            seen = self._history.get(uid)
            return None if not seen or seen[-1].type == "DELETED" else seen[-1].object

    def find(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return a living object by name."""
        with self._condition:
            uid = self._names.get((kind, namespace or "", name))
            return self._alive[kind].get(uid) if uid else None

    def events_of(self, uid: str) -> tuple[dict[str, Any], ...]:
        """Return the core/v1 events about an object, by its UID, each in its last state, also after it expired."""
        with self._condition:
            return tuple(self._events.get(uid, {}).values())

    def news(self) -> int:
        """Return the number of observations so far. Raises ClusterLost."""
        with self._condition:
            self._require_cluster()
            return self._count

    def wait_for_news(self, seen: int, timeout: float) -> int:
        """Block until there are more than ``seen`` observations or the time is over. Raises ClusterLost."""
        with self._condition:
            self._condition.wait_for(lambda: self._count > seen or bool(self._lost), timeout)
            self._require_cluster()
            return self._count

    @property
    def oddities(self) -> tuple[str, ...]:
        """What was sent and could not be taken for an object, one line each: a reason to doubt an absence."""
        with self._condition:
            return tuple(self._oddities)

    def require_live(self) -> None:
        """Raise ClusterLost when a watch is broken right now: then an absence says nothing."""
        with self._condition:
            self._require_cluster()
            if self._troubles:
                raise ClusterLost("the API server does not answer the watch of " + ", ".join(sorted(self._troubles)))

    def lose(self, reason: str) -> None:
        """End all waits with ClusterLost: somebody else knows that the cluster is gone."""
        with self._condition:
            self._lost = self._lost or reason
            self._condition.notify_all()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Let the API server be silent inside this block without being lost: somebody restarts it."""
        with self._condition:
            self._outages += 1
        try:
            yield
        finally:
            with self._condition:
                self._outages -= 1
                self._excused = time.monotonic()

    def _require_cluster(self) -> None:
        if self._lost:
            raise ClusterLost(self._lost)

    def _follow(self, kind: str, version: str) -> None:
        try:
            self._keep_watching(kind, version)
        except Exception as error:
            # Without this thread every later absence would be invented.
            with self._condition:
                self._lost = f"the watch of {kind} broke: {type(error).__name__}: {one_line(error)}"
                self._condition.notify_all()

    def _keep_watching(self, kind: str, version: str) -> None:
        failing_since: float | None = None
        while not self._stopping.is_set():
            before = version
            try:
                if not version:
                    version = self._relist(kind)
                stream = self._client.watch(kind, None, version, timeout=WATCH_SECONDS)
                with self._condition:
                    self._streams[kind] = stream
                if self._stopping.is_set():
                    stream.close()
                    return
                self._answers(kind)
                failing_since = None
                for event in stream:
                    version = self._take(kind, event, version)
                    if not version:
                        break
                if version in {before, ""}:
                    # A server that ends each watch at once must not be asked in a tight loop.
                    self._stopping.wait(PAUSE)
            except ApiError as error:
                if error.code == 410:
                    version = ""
                    self._stopping.wait(PAUSE)
                    continue
                failing_since = self._failing(kind, failing_since, error)
            except HostileInput as error:
                # The list may be sound where the event was not.
                self._odd(f"watch of {kind}: {error}")
                version = ""
                self._stopping.wait(PAUSE)
            except Unreachable as error:
                failing_since = self._failing(kind, failing_since, error)

    def _answers(self, kind: str) -> None:
        with self._condition:
            self._troubles.pop(kind, None)

    def _odd(self, text: str) -> None:
        with self._condition:
            if len(self._oddities) < ODDITIES:
                self._oddities.append(one_line(text))
            self._count += 1
            self._condition.notify_all()

    def _failing(self, kind: str, since: float | None, error: Exception) -> float:
        now = time.monotonic()
        since = since or now
        with self._condition:
            self._troubles.setdefault(kind, since)
            silent = 0.0 if self._outages else now - max(since, self._excused)
        if silent > self._lost_after and not self._stopping.is_set():
            with self._condition:
                self._lost = f"the API server is gone for {self._lost_after:g} s: {one_line(error)}"
                self._condition.notify_all()
            self._stopping.wait(1.0)
        else:
            self._stopping.wait(PAUSE)
        return since

    def _take(self, kind: str, event: dict[str, Any], version: str) -> str:
        """Record one watch event; return the version to go on from, empty when a relist is needed."""
        type_, object_ = str(event.get("type", "")), event.get("object")
        if not isinstance(object_, dict):
            raise HostileInput(f"a watch event of {kind} without an object")
        if type_ == "ERROR":
            if object_.get("code") == 410:
                return ""
            raise ApiError(
                int(object_.get("code") or 500), str(object_.get("reason", "")), str(object_.get("message", ""))
            )
        metadata = object_.get("metadata")
        seen = str((metadata if isinstance(metadata, dict) else {}).get("resourceVersion") or version)
        if type_ in {"ADDED", "MODIFIED", "DELETED"}:
            sound = self._sound(kind, object_)
            if sound is not None:
                with self._condition:
                    self._record(kind, type_, sound, synthetic=False)
                    self._condition.notify_all()
        return seen

    def _sound(self, kind: str, object_: Any) -> dict[str, Any] | None:
        try:
            return sound(object_)
        except HostileInput as error:
            self._odd(f"{kind}: {error}")
            return None

    def _relist(self, kind: str) -> str:
        found = self._client.list_raw(kind)
        items = found.get("items")
        listed = [self._sound(kind, item) for item in (items if isinstance(items, list) else [])]
        with self._condition:
            gone = dict(self._alive[kind])
            for object_ in filter(None, listed):
                known = gone.pop(object_["metadata"]["uid"], None)
                if known is None:
                    self._record(kind, "ADDED", object_, synthetic=True)
                elif known["metadata"].get("resourceVersion") != object_["metadata"].get("resourceVersion"):
                    self._record(kind, "MODIFIED", object_, synthetic=True)
            for object_ in gone.values():
                self._record(kind, "DELETED", object_, synthetic=True)
            self._condition.notify_all()
        return str((found.get("metadata") or {}).get("resourceVersion", ""))

    def _record(self, kind: str, type_: str, object_: dict[str, Any], *, synthetic: bool) -> None:
        metadata = object_.get("metadata") or {}
        uid = str(metadata.get("uid", ""))
        history = self._history.setdefault(uid, [])
        observation = Observation(time.monotonic(), type_, object_, synthetic)
        if history and history[-1].version == observation.version and history[-1].type == type_:
            return
        if history and history[-1].type == "DELETED":
            return
        history.append(observation)
        if len(history) > HISTORY_LIMIT:
            del history[1]
        self._count += 1
        key = (kind, str(metadata.get("namespace") or ""), str(metadata.get("name", "")))
        if type_ == "DELETED":
            self._alive[kind].pop(uid, None)
            if self._names.get(key) == uid:
                del self._names[key]
        else:
            self._alive[kind][uid] = object_
            self._names[key] = uid
        if kind == "Event":
            about = str((object_.get("involvedObject") or {}).get("uid", ""))
            self._events.setdefault(about, {})[uid] = object_
