"""What a command answers in a simulated container, as a pure function of what the container was given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import HOOK_LIBRARY, PRELOAD_FILE, Mount
from pytest_hami.contract.register import Device
from pytest_hami.simulator.deviceplugin.rules import NodeRules

LIMIT = re.compile(r"(\d+)([gmk]?)")
MIB = {"g": 1 << 10, "m": 1, "": 1 / (1 << 20), "k": 1 / (1 << 10)}
EXIT = re.compile(r"exit (\d{1,3})")
END = re.compile(r"echo (\d{1,3}) > /tmp/pytest-hami-end")


@dataclass(frozen=True)
class View:
    """A container from inside: variables, mounts, and the cards of its node by UUID, if a plugin served it."""

    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    cards: Mapping[str, Device]

    @property
    def shares(self) -> tuple[DeviceShare, ...]:
        """The visible cards in order, with the MiB that the hook library lets the container have of each.

        A card without a readable limit is there as a whole (HAMi-core 2.10.0).
        """
        visible = self.env.get("NVIDIA_VISIBLE_DEVICES", "")
        uuids = list(self.cards) if visible == "all" else [uuid for uuid in visible.split(",") if uuid in self.cards]
        return tuple(
            DeviceShare(uuid, self._limit(index) or self.cards[uuid].devmem, cores=0)
            for index, uuid in enumerate(uuids)
        )

    def _limit(self, index: int) -> int:
        found = LIMIT.fullmatch(self.env.get(f"CUDA_DEVICE_MEMORY_LIMIT_{index}", ""))
        return int(int(found[1]) * MIB[found[2]]) if found else 0


@dataclass(frozen=True)
class Output:
    """What a command wrote, its exit code, and the exit code that it told the container to end with."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    ends: int | None = None


def run(argv: Sequence[str], view: View, rules: NodeRules) -> Output:
    """Return the output of a command; what is not simulated says so and exits with 127."""
    command, *rest = argv
    hooked = any(mount.container_path == PRELOAD_FILE for mount in view.mounts)
    if command == "true":
        return Output()
    if command == "echo":
        return Output(f"{' '.join(rest)}\n")
    if command == "env" and not rest:
        return Output("".join(f"{name}={value}\n" for name, value in view.env.items()))
    if command == "printenv" and len(rest) == 1:
        return Output(f"{view.env[rest[0]]}\n") if rest[0] in view.env else Output(code=1)
    if command == "cat" and len(rest) == 1:
        return _cat(rest[0], view, hooked)
    if command == "ls" and rest == ["/dev"]:
        cards = [f"nvidia{view.cards[share.uuid].index}" for share in view.shares]
        names = [
            "fd",
            "null",
            "pts",
            "random",
            "shm",
            "tty",
            "zero",
            *cards,
            *(["nvidiactl", "nvidia-uvm"] if cards else []),
        ]
        return Output("\n".join(sorted(names)) + "\n")
    if command == "nvidia-smi":
        return _smi(rest, view, hooked, rules)
    if command == "sh" and len(rest) == 2 and rest[0] == "-c" and (match := END.fullmatch(rest[1])):
        return Output(ends=int(match[1]))
    if command == "sh" and len(rest) == 2 and rest[0] == "-c" and (match := EXIT.fullmatch(rest[1])):
        return Output(code=int(match[1]))
    return Output(stderr=f"{command}: not simulated\n", code=127)


def _cat(path: str, view: View, hooked: bool) -> Output:
    if path == PRELOAD_FILE and hooked:
        return Output(f"{HOOK_LIBRARY}\n")
    if path == "/proc/1/environ":
        return Output("".join(f"{name}={value}\0" for name, value in view.env.items()))
    if path == "/proc/1/maps":
        return Output(f"7f0000000000-7f0000010000 r-xp 00000000 00:00 0 {HOOK_LIBRARY}\n" if hooked else "")
    return Output(stderr=f"cat: {path}: No such file or directory\n", code=1)


def _smi(arguments: Sequence[str], view: View, hooked: bool, rules: NodeRules) -> Output:
    visible = [(share, view.cards[share.uuid]) for share in view.shares]
    if not visible:
        return Output(stderr="nvidia-smi: not found\n", code=127)
    rows = [
        (rules.nvml_index(position, device), device, rules.nvml_total(share, device, hooked))
        for position, (share, device) in enumerate(visible)
    ]
    if list(arguments) == ["-L"]:
        return Output("".join(f"GPU {index}: {device.type} (UUID: {device.id})\n" for index, device, _ in rows))
    fields = next((a.removeprefix("--query-gpu=").split(",") for a in arguments if a.startswith("--query-gpu=")), None)
    if fields is None or "--format=csv,noheader,nounits" not in arguments:
        return Output(stderr="nvidia-smi: these arguments are not simulated\n", code=127)
    lines = []
    for index, device, total in rows:
        values = {"index": index, "uuid": device.id, "name": device.type, "memory.total": total, "memory.free": total}
        if not set(fields) <= set(values):
            return Output(stderr="nvidia-smi: these fields are not simulated\n", code=127)
        lines.append(", ".join(str(values[name]) for name in fields))
    return Output("\n".join(lines) + "\n")
