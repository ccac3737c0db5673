"""The allocation string in ``hami.io/vgpu-devices-allocated`` and ``…-to-allocate``.

Grammar (HAMi 2.10.0, pkg/device/devices.go): ``device := UUID "," vendor "," MiB "," cores ":"``,
``container := device*``, ``pod := (container ";")*``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class AllocationError(ValueError):
    """An allocation string that breaks the grammar or does not fit its pod."""


@dataclass(frozen=True)
class DeviceShare:
    """A share of one card: memory in MiB, cores in percent of a card."""

    uuid: str
    memory: int
    cores: int
    vendor: str = "NVIDIA"


Groups = tuple[tuple[DeviceShare, ...], ...]


def parse(text: str) -> Groups:
    """Return the groups of an allocation string, one for each ``;``. Raises AllocationError.

    >>> parse("GPU-a,NVIDIA,4096,25:;")
    ((DeviceShare(uuid='GPU-a', memory=4096, cores=25, vendor='NVIDIA'),),)
    >>> parse(";;")
    ((), ())
    >>> parse("")
    ()
    """
    if not text:
        return ()
    if not text.endswith(";"):
        raise AllocationError(f"expected ';' at the end of {text[-80:]!r}")
    return tuple(_group(piece) for piece in text[:-1].split(";"))


def _group(text: str) -> tuple[DeviceShare, ...]:
    if not text:
        return ()
    if not text.endswith(":"):
        raise AllocationError(f"expected ':' at the end of {text[-80:]!r}")
    return tuple(_share(piece) for piece in text[:-1].split(":"))


def _share(text: str) -> DeviceShare:
    fields = text.split(",")
    if len(fields) != 4 or not all(fields):
        raise AllocationError(f"expected UUID,vendor,MiB,cores, seen {text[:80]!r}")
    uuid, vendor, memory, cores = fields
    try:
        return DeviceShare(uuid, _integer(memory), _integer(cores), vendor)
    except ValueError:
        raise AllocationError(f"expected whole numbers for MiB and cores, seen {text[:80]!r}") from None


def _integer(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        raise ValueError(text)
    return int(text)


def encode(groups: Sequence[Sequence[DeviceShare]]) -> str:
    """Return the text of groups; the inverse of ``parse``.

    >>> encode([[DeviceShare("GPU-a", 4096, 25)], []])
    'GPU-a,NVIDIA,4096,25:;;'
    """
    return "".join(
        "".join(f"{share.uuid},{share.vendor},{share.memory},{share.cores}:" for share in group) + ";"
        for group in groups
    )


def pop_next(text: str) -> tuple[int, tuple[DeviceShare, ...]]:
    """Return position and shares of the first group that is not empty. Raises AllocationError when there is none."""
    for index, group in enumerate(parse(text)):
        if group:
            return index, group
    raise AllocationError("no pending device allocation found")


def erase_next(text: str, containers: int = 1) -> str:
    """Return the string after one Allocate call for ``containers`` containers: their groups emptied, one ``;`` more.

    The growth is HAMi 2.10.0's own: decoding keeps the empty piece behind the last ``;``, once for each call
    (pkg/device-plugin/nvidiadevice/nvinternal/plugin/util.go). Raises AllocationError when a group is missing.

    >>> erase_next("GPU-A,NVIDIA,1000,10:;GPU-B,NVIDIA,2000,20:;")
    ';GPU-B,NVIDIA,2000,20:;;'
    >>> erase_next(";GPU-B,NVIDIA,2000,20:;;")
    ';;;;'
    >>> erase_next("GPU-A,NVIDIA,1000,10:;GPU-B,NVIDIA,2000,20:;", containers=2)
    ';;;'
    """
    groups = list(parse(text))
    for _ in range(containers):
        index, _ = pop_next(encode(groups))
        groups[index] = ()
    return encode([*groups, ()])


def erase_all(text: str) -> str:
    """Return the string after the Allocate calls of every container.

    >>> erase_all("GPU-A,NVIDIA,1000,10:;GPU-B,NVIDIA,2000,20:;")
    ';;;;'
    """
    while any(parse(text)):
        text = erase_next(text)
    return text


def assign(
    groups: Groups, containers: Sequence[tuple[str, bool]], *, positions_kept: bool
) -> dict[str, tuple[DeviceShare, ...]]:
    """Return the shares of each container, init containers first in ``containers`` of ``(name, asks_for_cards)``.

    Where positions are kept there is one group for each container. Where they are lost (HAMi 2.10.0 on cards whose type
    is a model name, issue 2899) the groups that hold cards belong to the asking containers in their order; empty groups
    are passed over, so that a HAMi that keeps positions after all is still read right. Raises AllocationError when the
    numbers do not fit or a card belongs to a container that did not ask.
    """
    if positions_kept:
        slots = [name for name, _ in containers]
    else:
        slots = [name for name, asks in containers if asks]
        groups = tuple(group for group in groups if group)
    if len(groups) != len(slots):
        raise AllocationError(f"expected {len(slots)} groups for containers {slots}, seen {len(groups)}")
    result: dict[str, tuple[DeviceShare, ...]] = {name: () for name, _ in containers}
    for name, group in zip(slots, groups, strict=True):
        result[name] = group
    for name, asks in containers:
        if asks != bool(result[name]):
            raise AllocationError(f"container {name} {'has no' if asks else 'did not ask for'} card")
    return result
