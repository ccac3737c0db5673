"""The API objects that a device plugin reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

PodKey = tuple[str, str]
"""Namespace and name."""
Pod = Mapping[str, Any]


class ObjectError(Exception):
    """A request that failed; the text is what Kubernetes' Go client says."""


class Objects(Protocol):
    """An API server as the plugin sees it. Every call raises ObjectError."""

    async def node_annotations(self, name: str) -> Mapping[str, str]:
        """Return the annotations of a node."""

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Change annotations of a node; None removes one."""

    async def pod(self, key: PodKey) -> Pod:
        """Return a pod."""

    async def pods(self, node: str) -> Sequence[Pod]:
        """Return the pods that are bound to a node, in the order of a list."""

    async def annotate_pod(self, key: PodKey, annotations: Mapping[str, str], version: str | None = None) -> Pod:
        """Change annotations of a pod and return it, with ``version`` only if that is its resource version still."""


def key_of(pod: Pod) -> PodKey:
    """Return namespace and name of a pod."""
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def notes_of(pod: Pod) -> Mapping[str, str]:
    """Return the annotations of a pod."""
    return pod["metadata"].get("annotations") or {}


def ended(pod: Pod) -> bool:
    """Return whether a pod is over or on its way out."""
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in ("Succeeded", "Failed")
