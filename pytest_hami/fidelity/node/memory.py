"""The API objects around a replayed device plugin, in memory."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from pytest_hami.simulator.deviceplugin.objects import ObjectError, Pod, PodKey

LOCK = "hami.io/mutex.lock"
T = TypeVar("T")


class Memory:
    """One node and its pods; see ``deviceplugin.objects.Objects``.

    ``pods`` are those bound to the node unless named in ``unbound``; ``refusal`` is the address at which no API server listens.
    """

    def __init__(self, node: str, lock: str | None = None) -> None:
        self.node = node
        self.notes: dict[str, str] = {} if lock is None else {LOCK: lock}
        self.stored: dict[PodKey, dict[str, Any]] = {}
        self.unbound = False
        self.refusal = ""
        self._version = 0

    def add(self, key: PodKey, pod: Mapping[str, Any]) -> None:
        """Store a pod."""
        self.stored[key] = {**pod, "metadata": {**pod["metadata"], "resourceVersion": self._next()}}

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _reach(self, path: str) -> None:
        if self.refusal:
            refused = f"dial tcp {self.refusal}: connect: connection refused"
            raise ObjectError(f'Get "https://{self.refusal}/api/v1/{path}": {refused}')

    def _known(self, name: str) -> None:
        self._reach(f"nodes/{name}")
        if name != self.node:
            raise ObjectError(f'nodes "{name}" not found')

    async def node_annotations(self, name: str) -> Mapping[str, str]:
        """Return the annotations of the node."""
        self._known(name)
        return self.notes

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of the node."""
        self._known(name)
        for key, text in annotations.items():
            if text is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = text

    async def pod(self, key: PodKey) -> Pod:
        """Return a pod."""
        self._reach(f"namespaces/{key[0]}/pods/{key[1]}")
        if key not in self.stored:
            raise ObjectError(f'pods "{key[1]}" not found')
        return self.stored[key]

    async def pods(self, node: str) -> Sequence[Pod]:
        """Return the pods that are bound to the node."""
        self._reach("pods")
        return [] if self.unbound or node != self.node else [self.stored[key] for key in sorted(self.stored)]

    async def annotate_pod(self, key: PodKey, annotations: Mapping[str, str], version: str | None = None) -> Pod:
        """Change annotations of a pod and return it."""
        pod = await self.pod(key)
        if version is not None and version != pod["metadata"]["resourceVersion"]:
            raise ObjectError(
                f'Operation cannot be fulfilled on pods "{key[1]}": the object has been modified; '
                "please apply your changes to the latest version and try again"
            )
        notes = {**(pod["metadata"].get("annotations") or {}), **annotations}
        if notes != pod["metadata"].get("annotations"):
            self.add(key, {**pod, "metadata": {**pod["metadata"], "annotations": notes}})
        return self.stored[key]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine gives that waits for nothing but ``Memory``."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise RuntimeError("a replay waits for something outside its memory")
