"""Defects of the node: the device plugin's registration and Allocate, and the hook in the container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.register import Device
from pytest_hami.simulator.deviceplugin.entries import Entries
from pytest_hami.simulator.deviceplugin.machine import Card
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings
from pytest_hami.simulator.mutants.record import Mutant, mutant

SERVER = "HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go"
REGISTER = "HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go"
HOOK = "HAMi-core, the NVML hook of HAMi 2.10.0"


def _defect(name: str, defect: str, source: str, caught_by: str, shows: str) -> Callable[[type[Any]], Mutant]:
    return mutant(name, "node", defect, source=source, caught_by=caught_by, shows=shows)


@_defect(
    "register-drops-model", "Cards are registered without their model.", REGISTER, "mock-01", "NVIDIA A100-SXM4-40GB"
)
class DropsModel(NodeRules):
    def register(self, card: Card, healthy: bool, settings: Settings) -> Device:
        return replace(super().register(card, healthy, settings), type="NVIDIA")


@_defect("register-repeats-index", "Every card is registered with index 0.", REGISTER, "mock-01", "index=1")
class RepeatsIndex(NodeRules):
    def register(self, card: Card, healthy: bool, settings: Settings) -> Device:
        return replace(super().register(card, healthy, settings), index=0)


@_defect("allocatable-counts-cards", "The node advertises its cards and not their shares.", SERVER, "mock-01",
         "nvidia.com/gpu")  # fmt: skip
class CountsCards(NodeRules):
    def advertised(self, card: Card, settings: Settings) -> int:
        return 1


@_defect("scaling-not-registered", "A node with scaled memory registers what the cards have.", REGISTER, "mock-32",
         "registered MiB")  # fmt: skip
class Unscaled(NodeRules):
    def register(self, card: Card, healthy: bool, settings: Settings) -> Device:
        return super().register(card, healthy, replace(settings, memory_scaling=1.0))


@_defect("oversubscription-not-told", "Containers are not told that memory is oversubscribed.", SERVER, "mock-32",
         "CUDA_OVERSUBSCRIBE")  # fmt: skip
class TellsNothing(NodeRules):
    def oversubscribes(self, settings: Settings) -> bool:
        return False


@_defect(
    "hook-not-preloaded", "Containers are not preloaded with the hook library.", SERVER, "mock-02", "ld.so.preload"
)
class NoHook(NodeRules):
    def hooks(self, control_disabled: bool) -> bool:
        return False


@_defect("cpu-containers-served", "Containers that ask for no card are given to the device plugin as well.", SERVER, "mock-24",
         "Allocate failed")  # fmt: skip
class ServesEveryone(NodeRules):
    def serves(self, asks: bool) -> bool:
        return True


@_defect("cache-shared", "All containers of a node share one cache.", SERVER, "mock-03", "SHARED_CACHE")
class OneCache(NodeRules):
    def cache_name(self) -> str:
        return "shared.cache"


@_defect("second-card-unlimited", "A container with two cards gets a memory limit for the first one only.", SERVER,
         "mock-04", "CUDA_DEVICE_MEMORY_LIMIT_1")  # fmt: skip
class FirstLimitOnly(NodeRules):
    def env(self, shares: Sequence[DeviceShare], settings: Settings) -> dict[str, str]:
        found = super().env(shares, settings)
        return {name: value for name, value in found.items() if name != "CUDA_DEVICE_MEMORY_LIMIT_1"}


@_defect("visible-devices-all", "A container sees every card of the node.", SERVER, "mock-02", "NVIDIA_VISIBLE_DEVICES")
class SeesAll(NodeRules):
    def env(self, shares: Sequence[DeviceShare], settings: Settings) -> dict[str, str]:
        return super().env(shares, settings) | {"NVIDIA_VISIBLE_DEVICES": "all"}


@_defect("core-limit-missing", "A container gets no core limit.", SERVER, "mock-07", "CUDA_DEVICE_SM_LIMIT")
class NoCoreLimit(NodeRules):
    def env(self, shares: Sequence[DeviceShare], settings: Settings) -> dict[str, str]:
        return {name: value for name, value in super().env(shares, settings).items() if name != "CUDA_DEVICE_SM_LIMIT"}


@_defect("containers-swapped", "The first container to be served gets the cards of the last one.", SERVER, "mock-21",
         "CUDA_DEVICE_MEMORY_LIMIT_0")  # fmt: skip
class SwapsContainers(NodeRules):
    def next_entry(self, entries: Entries) -> tuple[int, tuple[DeviceShare, ...]] | None:
        found = super().next_entry(entries)
        return found and (found[0], [shares for shares in entries if shares][-1])


@_defect("bind-never-succeeds", "The last Allocate of a pod does not report success.", SERVER, "mock-29",
         "hami.io/bind-phase=success")  # fmt: skip
class NeverSucceeds(NodeRules):
    def succeeds(self, rest: str) -> bool:
        return False


@_defect("lock-kept", "A served pod keeps the node lock.", "HAMi 2.10.0, pkg/util/nodelock/nodelock.go", "mock-29",
         "release of node lock")  # fmt: skip
class KeepsLock(NodeRules):
    def releases_lock(self, value: str, namespace: str, name: str) -> bool:
        return False


@_defect("restart-kills-containers", "A restart of the device plugin restarts running containers.", SERVER, "mock-23",
         "restart")  # fmt: skip
class KillsContainers(NodeRules):
    def restart_keeps_containers(self) -> bool:
        return False


@_defect("nvml-shows-whole-card", "NVML in a container shows the memory of the whole card.", HOOK, "mock-27a", "40960")
class WholeCard(NodeRules):
    def nvml_total(self, share: DeviceShare, device: Device, hooked: bool) -> int:
        return device.devmem


@_defect(
    "nvml-shows-host-index", "NVML in a container numbers the cards as the node does.", HOOK, "mock-27b", "nvml_view"
)
class HostIndex(NodeRules):
    def nvml_index(self, position: int, device: Device) -> int:
        return device.index


ALL = tuple(value for value in list(vars().values()) if isinstance(value, Mutant))
