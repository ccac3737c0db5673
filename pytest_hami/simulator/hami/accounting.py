"""What a pod holds of each card (HAMi, pkg/device/pods.go and pkg/device/initContainer.go)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_hami.contract.allocation import AllocationError, DeviceShare, Groups
from pytest_hami.contract.quantities import INT32_MAX
from pytest_hami.simulator.hami.state import CardShare

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")


def collapse(groups: Groups, inits: int) -> tuple[CardShare, ...]:
    """Return one share for each card: the larger of the init maximum and the sum of the rest, ordered by UUID.

    The first ``inits`` groups count as init containers. Lost positions (issue 2899) therefore turn containers into
    init containers here, as they do in HAMi.

    >>> from pytest_hami.contract.allocation import DeviceShare
    >>> a = lambda memory, cores: (DeviceShare("A", memory, cores),)
    >>> collapse((a(4000, 10), a(3000, 20), a(3000, 20)), 1)
    (CardShare(uuid='A', memory=6000, cores=40, shares=2, position=0),)
    >>> collapse((a(4000, 10), a(3000, 20)), 1)
    (CardShare(uuid='A', memory=4000, cores=20, shares=1, position=0),)
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
    found = {uuid: (first.get(uuid, (0, 0)), rest.get(uuid, (0, 0, 0))) for uuid in {*first, *rest}}
    return tuple(_larger(uuid, *found[uuid]) for uuid in sorted(found, key=str.encode))


def every_share(groups: Groups) -> tuple[CardShare, ...]:
    """Return each share by itself, as HAMi kept them before 2.10.0.

    >>> from pytest_hami.contract.allocation import DeviceShare
    >>> every_share(((), (DeviceShare("A", 3000, 20),)))
    (CardShare(uuid='A', memory=3000, cores=20, shares=1, position=1),)
    """
    return tuple(
        CardShare(share.uuid, share.memory, share.cores, 1, position)
        for position, group in enumerate(groups)
        for share in group
    )


def decode(text: str, *, strict: bool) -> Groups:
    """Return the groups of a device string as the scheduler reads them, with the empty one behind the last ``;``.

    Raises AllocationError for a share of fewer than four fields and, if ``strict``, for a number outside int32; else
    such a number is 0, or the largest there is.

    >>> [len(group) for group in decode("A,NVIDIA,10,0:;;", strict=True)]
    [1, 0, 0]
    """
    return tuple(
        tuple(_share(piece, strict) for piece in group.split(":") if "," in piece) for group in text.split(";")
    )


def _share(text: str, strict: bool) -> DeviceShare:
    fields = text.split(",")
    if len(fields) < 4:
        raise AllocationError(f"expected UUID,vendor,MiB,cores, seen {text[:80]!r}")
    return DeviceShare(fields[0], _int32(fields[2], strict), _int32(fields[3], strict), fields[1])


def _int32(text: str, strict: bool) -> int:
    # Go's strconv.ParseInt: the nearest number beside its error when only the range is exceeded.
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -INT32_MAX - 1 <= number <= INT32_MAX:
            return number
        if not strict:
            return INT32_MAX if number > 0 else -INT32_MAX - 1
    if strict:
        raise AllocationError(f"expected a 32-bit number, seen {text[:80]!r}")
    return 0


def _larger(uuid: str, init: tuple[int, int], app: tuple[int, int, int]) -> CardShare:
    return CardShare(uuid, max(init[0], app[0]), max(init[1], app[1]), max(app[2], 1))


def init_done(pod: Mapping[str, Any]) -> bool:
    """Whether the pod reports init containers and all of them ended with exit code 0."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or []
    ends = [(status.get("state") or {}).get("terminated") for status in statuses]
    return bool(ends) and all(end is not None and end.get("exitCode", 0) == 0 for end in ends)
