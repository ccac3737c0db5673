"""Objects, versions, label index and the event log that watches read."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.simulator.apiserver.selectors import Term

WINDOW = 20_000
Key = tuple[str, str]


@dataclass
class Entry:
    """An object with its encoded form, made once for each version."""

    object: dict[str, Any]
    _encoded: bytes | None = None
    _item: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON bytes."""
        if self._encoded is None:
            self._encoded = json.dumps(self.object, separators=(",", ":")).encode()
        return self._encoded

    @property
    def encoded_item(self) -> bytes:
        """The object as JSON bytes without kind and version, as lists of built-in kinds hold it."""
        if self._item is None:
            rest = {key: value for key, value in self.object.items() if key not in {"kind", "apiVersion"}}
            self._item = json.dumps(rest, separators=(",", ":")).encode()
        return self._item


@dataclass(frozen=True)
class Change:
    """One change: version, type, the entry after it (before it, for DELETED) and the object before."""

    version: int
    type: str
    entry: Entry
    before: dict[str, Any] | None
    lines: dict[str, bytes] = field(default_factory=dict)


class Table:
    """All objects of one resource."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Entry] = {}
        self.namespaces: dict[str, dict[Key, Entry]] = {}
        self.labels: dict[tuple[str, str], set[Key]] = {}
        self.log: deque[Change] = deque()
        self.forgotten = 0
        self.watchers: set[asyncio.Queue[Change | None]] = set()

    def put(self, key: Key, entry: Entry) -> None:
        """Store an entry under its key."""
        self.drop(key)
        self.by_key[key] = entry
        self.namespaces.setdefault(key[0], {})[key] = entry
        for pair in (entry.object["metadata"].get("labels") or {}).items():
            self.labels.setdefault(pair, set()).add(key)

    def drop(self, key: Key) -> None:
        """Forget a key."""
        entry = self.by_key.pop(key, None)
        if entry is None:
            return
        self.namespaces[key[0]].pop(key, None)
        for pair in (entry.object["metadata"].get("labels") or {}).items():
            keys = self.labels.get(pair)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self.labels[pair]

    def select(self, namespace: str, terms: Iterable[Term]) -> Iterator[tuple[Key, Entry]]:
        """Yield the entries of a namespace (empty = all) that meet the label terms, by index where one value is named."""
        terms = tuple(terms)
        keys: Iterable[Key] | None = None
        for term in terms:
            if term.operator == "In" and len(term.values) == 1:
                found = self.labels.get((term.key, next(iter(term.values))), set())
                if keys is None or len(found) < len(keys):  # type: ignore[arg-type]
                    keys = found
        source = self.namespaces.get(namespace, {}) if namespace else self.by_key
        for key in sorted(source if keys is None else (k for k in keys if not namespace or k[0] == namespace)):
            entry = self.by_key[key]
            labels = entry.object["metadata"].get("labels") or {}
            if all(term.matches(labels) for term in terms):
                yield key, entry


class Store:
    """Every table, one version counter, and the log that watches replay."""

    def __init__(self) -> None:
        self.version = 1
        self._tables: dict[str, Table] = {}
        self._observers: list[Callable[[str, Change], None]] = []

    def table(self, storage: str) -> Table:
        """Return the table of a resource."""
        return self._tables.setdefault(storage, Table())

    def tables(self) -> Iterable[tuple[str, Table]]:
        """Return every table with its storage name."""
        return list(self._tables.items())

    def get(self, storage: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object; it must not be changed."""
        entry = self.table(storage).by_key.get((namespace, name))
        return entry.object if entry else None

    def write(self, storage: str, object_: dict[str, Any], type_: str) -> dict[str, Any]:
        """Store an object as ADDED or MODIFIED with a new resourceVersion, and tell the watchers."""
        table = self.table(storage)
        key = (object_["metadata"].get("namespace", ""), object_["metadata"]["name"])
        before = table.by_key.get(key)
        self.version += 1
        object_["metadata"]["resourceVersion"] = str(self.version)
        entry = Entry(object_)
        table.put(key, entry)
        self._tell(table, Change(self.version, type_, entry, before.object if before else None))
        return object_

    def remove(self, storage: str, namespace: str, name: str) -> dict[str, Any]:
        """Remove an object and tell the watchers; the last state carries a new resourceVersion."""
        table = self.table(storage)
        entry = table.by_key[(namespace, name)]
        table.drop((namespace, name))
        self.version += 1
        last = {**entry.object, "metadata": {**entry.object["metadata"], "resourceVersion": str(self.version)}}
        self._tell(table, Change(self.version, "DELETED", Entry(last), entry.object))
        return last

    def _tell(self, table: Table, change: Change) -> None:
        table.log.append(change)
        if len(table.log) > WINDOW:
            table.forgotten = table.log.popleft().version
        for watcher in table.watchers:
            watcher.put_nowait(change)
