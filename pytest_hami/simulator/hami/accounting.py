"""What a pod holds of each card (HAMi 2.10.0, pkg/device/pods.go and pkg/device/initContainer.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_hami.contract.allocation import Groups
from pytest_hami.simulator.hami.state import CardShare


def collapse(groups: Groups, inits: int) -> tuple[CardShare, ...]:
    """Return one share for each card: the larger of the init maximum and the sum of the rest, ordered by UUID.

    The first ``inits`` groups count as init containers. Lost positions (issue 2899) therefore turn containers into
    init containers here, as they do in HAMi.

    >>> from pytest_hami.contract.allocation import DeviceShare
    >>> a = lambda memory, cores: (DeviceShare("A", memory, cores),)
    >>> collapse((a(4000, 10), a(3000, 20), a(3000, 20)), 1)
    (CardShare(uuid='A', memory=6000, cores=40, shares=2),)
    >>> collapse((a(4000, 10), a(3000, 20)), 1)
    (CardShare(uuid='A', memory=4000, cores=20, shares=1),)
    """
    first: dict[str, tuple[int, int]] = {}
    rest: dict[str, tuple[int, int, int]] = {}
    for position, group in enumerate(groups):
        for share in group:
            if position < inits:
                memory, cores = first.get(share.uuid, (0, 0))
                first[share.uuid] = (max(memory, share.memory), max(cores, share.cores))
            else:
                memory, cores, shares = rest.get(share.uuid, (0, 0, 0))
                rest[share.uuid] = (memory + share.memory, cores + share.cores, shares + 1)
    return tuple(_larger(uuid, first.get(uuid, (0, 0)), rest.get(uuid, (0, 0, 0))) for uuid in sorted({*first, *rest}))


def _larger(uuid: str, init: tuple[int, int], app: tuple[int, int, int]) -> CardShare:
    return CardShare(uuid, max(init[0], app[0]), max(init[1], app[1]), max(app[2], 1))


def init_done(pod: Mapping[str, Any]) -> bool:
    """Whether the pod reports init containers and all of them ended with exit code 0."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or []
    ends = [(status.get("state") or {}).get("terminated") for status in statuses]
    return bool(ends) and all(end is not None and end.get("exitCode", 0) == 0 for end in ends)
