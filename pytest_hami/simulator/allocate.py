"""The device plugin's decisions: registration and Allocate, without I/O.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go, register.go and util.go.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_hami.contract import allocation
from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import container_env, mounts
from pytest_hami.contract.register import Device
from pytest_hami.kubelet.plugin import AllocateError, Answer

VENDOR_WORDS = ("NVIDIA", "MLU", "DCU", "GCU", "Enflame", "Mthreads", "Metax", "kunlun", "XPU", "AWSNeuron", "AMD", "Vastai",
                "Biren")  # fmt: skip
TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclass(frozen=True)
class NodeConfig:
    """The plugin's configuration of one node: scalings as factors, shares of a card, unhealthy cards by UUID."""

    memory_scaling: float = 1.0
    core_scaling: float = 1.0
    split_count: int | None = None
    health: Mapping[str, bool] | None = None
    log_level: str = "1"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NodeConfig:
        """Return the configuration from the plugin's own keys. Raises ValueError naming an unknown key."""
        names = {
            "devicememoryscaling": "memory_scaling", "devicecorescaling": "core_scaling",
            "devicesplitcount": "split_count", "health": "health", "libcudaloglevel": "log_level",
        }  # fmt: skip
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise ValueError(f"unknown node-config key {unknown[0]!r}; known are {', '.join(sorted(names))}")
        return cls(**{names[key]: value for key, value in values.items()})


class NodeRules:
    """Decisions of plugin and kubelet that a mutant may break."""

    def register(self, device: Device, config: NodeConfig) -> Device:
        """Return a card as it is registered: memory and cores scaled and cut, shares as configured."""
        memory = int(device.devmem * config.memory_scaling) if config.memory_scaling != 1 else device.devmem
        health = device.health if config.health is None else config.health.get(device.id, device.health)
        return replace(
            device,
            devmem=memory,
            devcore=int(config.core_scaling * device.devcore),
            count=config.split_count or device.count,
            health=health,
        )

    def shares_of(self, device: Device) -> int:
        """Return the shares of a card that the node advertises."""
        return device.count

    def next_entry(self, text: str) -> tuple[int, tuple[DeviceShare, ...]]:
        """Return position and shares of the entry that is served next."""
        return allocation.pop_next(text)

    def erased(self, text: str) -> str:
        """Return ``to-allocate`` after one container was served."""
        return allocation.erase_next(text)

    def env(self, shares: Sequence[DeviceShare], config: NodeConfig) -> dict[str, str]:
        """Return the variables of a container."""
        return container_env(shares, oversubscribe=self.oversubscribes(config), log_level=config.log_level)

    def oversubscribes(self, config: NodeConfig) -> bool:
        """Return whether containers are told that memory is oversubscribed."""
        return config.memory_scaling > 1

    def cache_name(self) -> str:
        """Return the name of a container's shared cache."""
        return f"{uuid.uuid4()}.cache"

    def hooks(self, control_disabled: bool) -> bool:
        """Return whether a container is preloaded with the hook library."""
        return not control_disabled

    def serves(self, asks: bool) -> bool:
        """Return whether a container is given to the device plugin."""
        return asks

    def phase_after(self, rest: str) -> str:
        """Return bind-phase after an Allocate; empty while entries are left."""
        return "" if any(word in rest for word in VENDOR_WORDS) else "success"

    def releases_lock(self, value: str, namespace: str, name: str) -> bool:
        """Return whether a served pod's plugin removes the node lock with this value; an old one is a bare time."""
        return "," not in value or value.endswith(f",{namespace},{name}")

    def nvml_index(self, position: int, device: Device) -> int:
        """Return the index that NVML shows for a visible card."""
        return position

    def nvml_total(self, share: DeviceShare, device: Device, hooked: bool) -> int:
        """Return the total MiB that NVML shows for a visible card."""
        return share.memory if hooked else device.devmem

    def restart_keeps_containers(self) -> bool:
        """Return whether running containers survive a restart of the plugin."""
        return True


def asks_for_cards(container: Mapping[str, Any]) -> int:
    """Return the number of shares that kubelet asks for a container."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return int(limits.get("nvidia.com/gpu", 0))


def allocate(
    pod: Mapping[str, Any], to_allocate: str | None, asked: int, config: NodeConfig, rules: NodeRules
) -> tuple[Answer, str]:
    """Return the answer for the pod's next container and the new ``to-allocate``. Raises AllocateError.

    ``asked`` is the number of device ids in kubelet's request; which cards the container gets is said by the
    annotation alone, and so is which container it is: the position of the entry.
    """
    if not to_allocate:
        raise AllocateError("device request not found")
    try:
        index, shares = rules.next_entry(to_allocate)
    except allocation.AllocationError as error:
        raise AllocateError(str(error)) from None
    if len(shares) != asked:
        raise AllocateError("device number not matched")
    spec = pod["spec"]
    inits, containers = spec.get("initContainers") or [], spec["containers"]
    named = [*inits, *containers]
    if index >= len(named):
        raise AllocateError(f"container index {index} out of range (init={len(inits)}, regular={len(containers)})")
    identity = named[index]
    disabled = any(
        entry.get("name") == "CUDA_DISABLE_CONTROL" and entry.get("value") in TRUE_WORDS
        for entry in identity.get("env") or []
    )
    env = rules.env(shares, config)
    env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"/usr/local/vgpu/{rules.cache_name()}"
    mounted = mounts(pod["metadata"]["uid"], identity["name"], control_disabled=not rules.hooks(disabled))
    return Answer(env, mounted), rules.erased(to_allocate)
