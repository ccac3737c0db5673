"""Pods that the checks create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

END_FILE = "/tmp/pytest-hami-end"
IMAGE = "docker.io/library/ubuntu:22.04"
# Plain shell and no signal handling: the same pod ends by itself on a real node and in the node model.
WAIT_FOR_END = f"until [ -f {END_FILE} ]; do sleep 0.2; done; exit $(cat {END_FILE})"


@dataclass(frozen=True)
class Container:
    """One container: ``count`` cards, ``memory`` in MiB a card, ``percent`` and ``cores`` in percent of a card.

    None leaves the resource out; ``limits`` adds or overrides raw quantities by full resource name.
    """

    name: str = "main"
    count: int | None = 1
    memory: int | None = None
    cores: int | None = None
    percent: int | None = None
    image: str = IMAGE
    env: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, *, ends: bool = False) -> dict[str, Any]:
        """Return the container as Kubernetes takes it; ``ends`` for init containers, which must finish."""
        wanted = {
            "nvidia.com/gpu": self.count,
            "nvidia.com/gpumem": self.memory,
            "nvidia.com/gpumem-percentage": self.percent,
            "nvidia.com/gpucores": self.cores,
        }
        limits = {name: str(value) for name, value in wanted.items() if value is not None} | dict(self.limits)
        container: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "command": ["true"] if ends else ["sh", "-c", WAIT_FOR_END],
        }
        if limits:
            container["resources"] = {"limits": limits}
        if self.env:
            container["env"] = [{"name": name, "value": value} for name, value in self.env.items()]
        if self.privileged:
            container["securityContext"] = {"privileged": True}
        return container


def pod_manifest(
    name: str,
    namespace: str,
    containers: Sequence[Container],
    *,
    init: Sequence[Container] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a pod that runs until told to end, never restarts and needs no grace to die."""
    body: dict[str, Any] = {
        "containers": [container.manifest() for container in containers],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }
    if init:
        body["initContainers"] = [container.manifest(ends=True) for container in init]
    if node_selector:
        body["nodeSelector"] = dict(node_selector)
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body | dict(spec or {})}
