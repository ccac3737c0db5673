"""What a test writes on nodes, and the nodes that it adds; all of it is taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_hami.contract import register
from pytest_hami.expect import observe
from pytest_hami.kube.errors import BadStatus

if TYPE_CHECKING:
    from pytest_hami.cluster.base import Cluster


class NodeEdits:
    """The edits of one test, in a cluster that is ours alone."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._labels = dict(labels)
        self._before: dict[str, dict[str, str | None]] = {}
        self._added: list[str] = []

    def annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a node; None removes one."""
        found = observe.annotations(self._cluster.client.get("Node", node))
        before = self._before.setdefault(node, {})
        for key in annotations:
            before.setdefault(key, found.get(key))
        self._write(node, annotations)

    def add(self, name: str, devices: Sequence[register.Device]) -> None:
        """Create a node that registers these cards, whole at once, and that no pod tolerates."""
        from pytest_hami.kube.nodes import bystander

        self._added.append(name)
        notes = {observe.REGISTER: register.encode(devices)}
        shares = sum(device.count for device in devices)
        self._cluster.client.create("Node", bystander(name, notes, shares=shares, labels=self._labels))

    def read_again(self, node: str) -> None:
        """Make the next register run read a node anew, as it does where the handshake is gone, and force that run.

        Source: HAMi 2.10.0, pkg/device/nvidia/device.go (CheckHealth).
        """
        self._write(node, {observe.HANDSHAKE: None})
        self._cluster.poke()

    def undo(self) -> None:
        """Take back every edit, and wait until the scheduler has seen that."""
        if not (self._before or self._added):
            return
        for name in self._added:
            self._cluster.client.delete("Node", name)
        for node, before in self._before.items():
            self._write(node, {**before, observe.HANDSHAKE: None})
        names, self._added, self._before = tuple(self._added), [], {}
        self._await_absence(names)
        self._cluster.poke()

    def _write(self, node: str, annotations: Mapping[str, str | None]) -> None:
        self._cluster.client.patch("Node", node, {"metadata": {"annotations": dict(annotations)}})

    def _await_absence(self, names: Sequence[str]) -> None:
        from pytest_hami.kube.wait import poll

        def gone() -> bool:
            try:
                text = self._cluster.scheduler_metrics()
            except BadStatus:
                return False
            return not any(f'node="{name}"' in text for name in names)

        poll(gone, timeout=self._cluster.timing.settle, missing=lambda: f"metrics without the nodes {', '.join(names)}")
