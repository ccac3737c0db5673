"""The shared region: the file in which HAMi's hook library keeps what a container may have and what it uses.

Written here for containers in which nothing runs, so that a monitor finds what it would find. Version 1, little endian.
Source: HAMi 2.10.0, pkg/monitor/nvidia/v1/spec.go.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

MAGIC = 19920718
MAX_CARDS = 16
MAX_PROCESSES = 1024
MIB = 1 << 20
# Header: magic, major, minor, initialised, owner, semaphore, number of cards; then per card UUID, memory, cores.
HEADER = struct.Struct("<4iQ32xQ")
UUIDS = struct.Struct("96s" * MAX_CARDS)
LIMITS = struct.Struct(f"<{MAX_CARDS}Q{MAX_CARDS}Q")
# One process: pid, pid on the host, per card the used memory and the utilisation, status.
USED, USED_SIZE, UTILISATION, UTILISATION_SIZE, STATUS, PROCESS_SIZE = 8, 64, 1160, 48, 1928, 1960
PROCESSES = HEADER.size + UUIDS.size + LIMITS.size
# Behind the processes: their number, utilisation switch, recent kernel, priority, time of the last kernel.
TAIL = struct.Struct("<4iq32x")
LIMIT = re.compile(r"(\d+)m")


@dataclass(frozen=True)
class Use:
    """What one process uses of a card: MiB of contexts, of modules and of buffers, and percent of its time."""

    context: int
    module: int
    buffer: int
    utilisation: int

    @property
    def total(self) -> int:
        """All of its memory in MiB."""
        return self.context + self.module + self.buffer


def staged_use(position: int) -> Use:
    """Return what is told of the card at a position of a container: amounts that tell the cards apart."""
    return Use(context=16 + position, module=8 + position, buffer=24 + position, utilisation=30 + position)


def of_container(env: Mapping[str, str]) -> bytes:
    """Return the region of a container with these variables, in which one process makes the staged use of each card.

    >>> len(of_container({"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m"}))
    2008952
    """
    uuids = [uuid for uuid in env.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if uuid][:MAX_CARDS]
    empty = [0] * (MAX_CARDS - len(uuids))
    limits = [_mebibytes(env.get(f"CUDA_DEVICE_MEMORY_LIMIT_{i}", "")) * MIB for i in range(len(uuids))]
    cores = [int(env.get("CUDA_DEVICE_SM_LIMIT") or 0)] * len(uuids)
    region = bytearray(PROCESSES + MAX_PROCESSES * PROCESS_SIZE + TAIL.size)
    HEADER.pack_into(region, 0, MAGIC, 1, 1, 1, 0, len(uuids))
    UUIDS.pack_into(region, HEADER.size, *(uuid.encode() for uuid in [*uuids, *[""] * len(empty)]))
    LIMITS.pack_into(region, HEADER.size + UUIDS.size, *limits, *empty, *cores, *empty)
    struct.pack_into("<2i", region, PROCESSES, 1, 1)
    for position in range(len(uuids)):
        use = staged_use(position)
        amounts = (use.context * MIB, use.module * MIB, use.buffer * MIB, 0, use.total * MIB)
        struct.pack_into("<5Q", region, PROCESSES + USED + position * USED_SIZE, *amounts)
        at = PROCESSES + UTILISATION + position * UTILISATION_SIZE
        struct.pack_into("<3Q", region, at, 0, 0, use.utilisation)
    struct.pack_into("<i", region, PROCESSES + STATUS, 1)
    priority = int(env.get("CUDA_TASK_PRIORITY") or 0)
    TAIL.pack_into(region, len(region) - TAIL.size, 1, 0, 0, priority, 0)
    return bytes(region)


def _mebibytes(text: str) -> int:
    found = LIMIT.fullmatch(text)
    return int(found[1]) if found else 0
