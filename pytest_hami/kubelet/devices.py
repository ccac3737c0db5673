"""kubelet's book of one node's shares: which are there, which are healthy, which container holds which.

Source: Kubernetes, pkg/kubelet/cm/devicemanager/manager.go (devicesToAllocate, GetCapacity).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_hami.kubelet.plugin import Share


class TooFewShares(Exception):
    """A container asks for more shares than are healthy and free; the text is kubelet's own."""


class DeviceBook:
    """The shares of one resource on one node."""

    def __init__(self, resource: str, shares: Iterable[Share] = ()) -> None:
        self._resource = resource
        self._shares = {share.id: share for share in shares}
        self._held: dict[tuple[str, str], tuple[str, ...]] = {}

    def update(self, shares: Iterable[Share]) -> None:
        """Take a new device list; what containers hold stays theirs."""
        self._shares = {share.id: share for share in shares}

    @property
    def capacity(self) -> int:
        """All shares."""
        return len(self._shares)

    @property
    def allocatable(self) -> int:
        """The healthy shares."""
        return sum(share.healthy for share in self._shares.values())

    def available(self, reusable: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the healthy shares that nobody holds, after those that an init container of the pod may hand on."""
        held = {id for ids in self._held.values() for id in ids}
        healthy = {share.id for share in self._shares.values() if share.healthy}
        free = sorted(id for id in healthy if id not in held)
        return (*(id for id in reusable if id in healthy), *free)

    def choose(self, count: int, available: Sequence[str], preferred: Sequence[str] = ()) -> tuple[str, ...]:
        """Return ``count`` of the available shares, preferred ones first. Raises TooFewShares."""
        if len(available) < count:
            raise TooFewShares(
                f"requested number of devices unavailable for {self._resource}. "
                f"Requested: {count}, Available: {len(available)}"
            )
        wanted = [id for id in preferred if id in available]
        return tuple([*wanted, *(id for id in available if id not in wanted)][:count])

    def hold(self, pod_uid: str, container: str, ids: Sequence[str]) -> None:
        """Note that a container holds shares."""
        self._held[(pod_uid, container)] = tuple(ids)

    def release(self, pod_uid: str) -> None:
        """Take back what the containers of a pod hold."""
        for key in [key for key in self._held if key[0] == pod_uid]:
            del self._held[key]
