"""The entries of a pod that wait for their Allocate, read as leniently as the device plugin reads them.

Source: HAMi 2.10.0, pkg/device/devices.go (DecodePodDevices, EncodePodSingleDevice).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pytest_hami.contract.allocation import DeviceShare, encode
from pytest_hami.contract.quantities import INT32_MAX

Entries = list[tuple[DeviceShare, ...]]
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
# The annotations of other vendors; what they hold must be readable as well.
_OTHERS = tuple(
    f"hami.io/{vendor}-devices-to-allocate"
    for vendor in (
        "metax-gpu", "metax-sgpu", "amd", "mthreads-vgpu", "cambricon-mlu", "Biren", "Vastai", "enflame-gcu", "dcu", "xpu",
    )
)  # fmt: skip
_INTEGER = re.compile(r"[+-]?[0-9]+")


class EntriesError(ValueError):
    """Entries that the plugin cannot read; the text is its own."""


def read(annotations: Mapping[str, str]) -> Entries:
    """Return a pod's entries for NVIDIA cards, one for each piece between ``;``, the last one included.

    Raises EntriesError.

    >>> read({"hami.io/vgpu-devices-to-allocate": ";GPU-a,NVIDIA,10,5:;"})
    [(), (DeviceShare(uuid='GPU-a', memory=10, cores=5, vendor='NVIDIA'),), ()]
    """
    for key in _OTHERS:
        if key in annotations:
            _entries(annotations[key])
    if TO_ALLOCATE not in annotations:
        raise EntriesError("device request not found")
    return _entries(annotations[TO_ALLOCATE])


def write(entries: Entries) -> str:
    """Return the text of entries.

    >>> write(read({"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,10,5:;"}))
    'GPU-a,NVIDIA,10,5:;;'
    """
    return encode(entries)


def _entries(text: str) -> Entries:
    return [_shares(piece) for piece in text.split(";")]


def _shares(text: str) -> tuple[DeviceShare, ...]:
    shares = []
    for piece in text.split(":"):
        fields = piece.split(",")
        if len(fields) == 1:
            continue
        if len(fields) < 4:
            raise EntriesError("pod annotation format error, missing fields, do not use nodeName in task spec")
        shares.append(DeviceShare(fields[0], _integer("memory", fields[2]), _integer("core", fields[3]), fields[1]))
    return tuple(shares)


def _integer(what: str, text: str) -> int:
    problem = ""
    if not _INTEGER.fullmatch(text):
        problem = "invalid syntax"
    elif not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        problem = "value out of range"
    if problem:
        quoted = json.dumps(text, ensure_ascii=False)
        raise EntriesError(f"invalid {what} field: strconv.ParseInt: parsing {quoted}: {problem}")
    return int(text)
