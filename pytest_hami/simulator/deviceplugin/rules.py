"""Decisions of device plugin, kubelet and container that a mutant may break."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import container_env
from pytest_hami.contract.register import Device
from pytest_hami.simulator.deviceplugin.entries import Entries
from pytest_hami.simulator.deviceplugin.machine import Card
from pytest_hami.simulator.deviceplugin.settings import Settings

# What an entry of any vendor holds (CommonWord of pkg/device/*/device.go).
VENDOR_WORDS = (
    "NVIDIA", "MLU", "DCU", "GCU", "Enflame", "Mthreads", "Metax-GPU", "Metax-SGPU", "kunlun", "XPU", "AWSNeuron", "AMD",
    "Vastai", "Biren",
)  # fmt: skip


class NodeRules:
    """The rules of HAMi 2.10.0 (pkg/device-plugin/nvidiadevice/nvinternal/plugin), of kubelet, and of HAMi-core."""

    def register(self, card: Card, healthy: bool, settings: Settings) -> Device:
        """Return a card as it is registered: memory and cores scaled and cut, shares as configured."""
        assert settings.memory_scaling is not None
        assert settings.core_scaling is not None
        memory = card.memory or settings.preconfigured_memory or 0
        scale = settings.mode != "mig"
        return Device(
            id=card.uuid,
            index=card.index,
            count=settings.split_count or card.shares or 0,
            devmem=int(memory * settings.memory_scaling) if scale else memory,
            devcore=int(settings.core_scaling * card.cores) if scale else 100,
            type=card.name if card.name.startswith("NVIDIA") else f"NVIDIA-{card.name}",
            numa=max(card.numa or 0, 0),
            mode=settings.mode if card.mode is None else card.mode,
            health=healthy,
        )

    def advertised(self, card: Card, settings: Settings) -> int:
        """Return the shares of a card that the node advertises."""
        return settings.split_count or card.shares or 0

    def cut(self, device: Device, instances: int) -> Device:
        """Return a registered card that is cut into MIG instances: one share for each."""
        return replace(device, count=instances)

    def accepts_phase(self, phase: str | None) -> bool:
        """Return whether a pod with this bind-phase may be the one that an Allocate without a lock is for."""
        return phase in ("allocating", "success")

    def next_entry(self, entries: Entries) -> tuple[int, tuple[DeviceShare, ...]] | None:
        """Return position and shares of the entry that is served next."""
        return next(((index, shares) for index, shares in enumerate(entries) if shares), None)

    def env(self, shares: Sequence[DeviceShare], settings: Settings) -> dict[str, str]:
        """Return the variables of a container, with its cards by UUID."""
        assert settings.log_level is not None
        return container_env(
            shares,
            oversubscribe=self.oversubscribes(settings),
            log_level=settings.log_level,
            core_limit_disabled=settings.core_limit_disabled,
        )

    def oversubscribes(self, settings: Settings) -> bool:
        """Return whether containers are told that memory is oversubscribed."""
        assert settings.memory_scaling is not None
        return settings.memory_scaling > 1

    def cache_name(self) -> str:
        """Return the name of a container's shared cache."""
        return f"{uuid.uuid4()}.cache"

    def hooks(self, control_disabled: bool) -> bool:
        """Return whether a container is preloaded with the hook library."""
        return not control_disabled

    def serves(self, asks: bool) -> bool:
        """Return whether a container is given to the device plugin."""
        return asks

    def succeeds(self, rest: str) -> bool:
        """Return whether a pod is done with this rest of its entries."""
        return not any(word in rest for word in VENDOR_WORDS)

    def releases_lock(self, value: str, namespace: str, name: str) -> bool:
        """Return whether a pod's plugin removes the node lock with this value; an old one is a bare time."""
        return "," not in value or value.endswith(f",{namespace},{name}")

    def scans_after_restart(self) -> bool:
        """Return whether the scan loop of a plugin that was restarted goes on."""
        return True

    def nvml_index(self, position: int, device: Device) -> int:
        """Return the index that NVML shows for a visible card."""
        return position

    def nvml_total(self, share: DeviceShare, device: Device, hooked: bool) -> int:
        """Return the total MiB that NVML shows for a visible card."""
        return share.memory if hooked else device.devmem

    def restart_keeps_containers(self) -> bool:
        """Return whether running containers survive a restart of the plugin."""
        return True
