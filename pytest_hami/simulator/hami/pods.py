"""The pods that hold room, kept from reservations and pod events (HAMi, pkg/scheduler/scheduler.go)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_hami.contract.allocation import AllocationError, Groups
from pytest_hami.simulator.hami.quota import QuotaBook
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.state import (
    ALLOCATED,
    VGPU_NODE,
    Card,
    NodeRecord,
    PodRecord,
    meta,
    notes_of,
    spec,
    uid_of,
)


def init_count(pod: Mapping[str, Any]) -> int:
    """Return the number of init containers."""
    return len(spec(pod).get("initContainers") or [])


class PodBook:
    """All pods that were seen, and what some of them hold; the quota book follows every change."""

    def __init__(self, quota: QuotaBook, rules: Rules) -> None:
        self._quota = quota
        self._rules = rules
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.records: dict[str, PodRecord] = {}

    def fork(self, quota: QuotaBook) -> PodBook:
        """Return an independent book with the same content that keeps ``quota``."""
        other = PodBook(quota, self._rules)
        other.objects, other.records = dict(self.objects), dict(self.records)
        return other

    def event(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Take a pod event. Only annotated pods count, whatever scheduler or phase they have."""
        uid = uid_of(pod)
        if kind == "DELETED":
            self.objects.pop(uid, None)
            if VGPU_NODE in notes_of(pod) and self._rules.releases_on_delete(pod):
                self.release(uid)
            return
        self.objects[uid] = pod
        if VGPU_NODE not in notes_of(pod):
            return
        if self._rules.releases_on_phase(str((pod.get("status") or {}).get("phase") or "")):
            self.release(uid)
        elif uid not in self.records:
            self._insert(uid, pod)
        elif meta(pod).get("deletionTimestamp") and not self._rules.keeps_terminating():
            self.release(uid)
        elif meta(pod).get("deletionTimestamp") and self._rules.freezes_terminating():
            return
        elif self._rules.follows_annotation():
            self._follow(uid, pod)
        elif kind == "MODIFIED":
            self._shrink(uid, pod)

    def _insert(self, uid: str, pod: Mapping[str, Any]) -> None:
        groups = self._groups(pod)
        if groups is not None and self._rules.counts_new(pod):
            self.reserve(pod, notes_of(pod)[VGPU_NODE], groups)

    def _groups(self, pod: Mapping[str, Any]) -> Groups | None:
        """Return the groups of a pod's device string, none when it has none, None when the pod is passed over."""
        text = notes_of(pod).get(ALLOCATED)
        if text is None:
            return ()
        try:
            return self._rules.decode(text)
        except AllocationError:
            return () if self._rules.reads_undecodable() else None

    def _follow(self, uid: str, pod: Mapping[str, Any]) -> None:
        # HAMi replaces what the pod holds, yet leaves the quota as it was.
        usage = self._rules.collapse(self._groups(pod) or (), init_count(pod))
        self.records[uid] = replace(self.records[uid], usage=usage)

    def _shrink(self, uid: str, pod: Mapping[str, Any]) -> None:
        record = self.records[uid]
        if record.shrunk or not self._rules.init_done(pod):
            return
        groups = self._groups(pod)
        if groups is None:
            return
        usage = self._rules.after_init(groups, init_count(pod))
        self._quota.remove(record.namespace, record.usage)
        self._quota.add(record.namespace, usage)
        self.records[uid] = replace(record, usage=usage, shrunk=True)

    def reserve(self, pod: Mapping[str, Any], node: str, groups: Groups) -> None:
        """Count a pod on a node."""
        usage = self._rules.collapse(groups, init_count(pod))
        namespace = str(meta(pod).get("namespace"))
        self.records[uid_of(pod)] = PodRecord(namespace, str(meta(pod).get("name")), node, usage)
        self._quota.add(namespace, usage)

    def release(self, uid: str, with_quota: bool = True) -> None:
        """Give back what a pod holds, if anything; without ``with_quota`` the quota keeps counting it."""
        record = self.records.pop(uid, None)
        if record is not None and with_quota:
            self._quota.remove(record.namespace, record.usage)

    def cards(self, nodes: Mapping[str, NodeRecord]) -> dict[str, list[Card]]:
        """Return the cards of each node with their use; every entry of a UUID registered twice carries all of it."""
        result = {name: [Card(device) for device in record.devices] for name, record in nodes.items()}
        for record in self.records.values():
            for card in result.get(record.node, ()):
                for share in record.usage:
                    if share.uuid == card.device.id:
                        card.take(share.shares, share.memory, share.cores)
        return result
