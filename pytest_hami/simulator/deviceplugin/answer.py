"""What the device plugin answers for one container.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go (Allocate, getAllocateResponse).
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import Mount, mounts
from pytest_hami.kubelet.plugin import Answer, DeviceSpec
from pytest_hami.simulator.deviceplugin.machine import Machine
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import TRUE_WORDS, Settings, Unmodelled

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_LIST = "/var/run/nvidia-container-devices"
_OPTIONAL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_CDI = "k8s.device-plugin.nvidia.com/gpu"


def devices_answer(ids: Sequence[str], settings: Settings, machine: Machine) -> Answer:
    """Return an answer that names cards or MIG instances, in the ways that the settings ask for.

    Where cards are named by index, their order is chance: that of the indexes here.
    """
    names = _names(ids, settings, machine)
    annotations: dict[str, str] = {}
    cdi: list[str] = []
    if settings.cdi and settings.enabled:
        raise Unmodelled(f"CDI beside {settings.enabled[0]}")
    qualified = [f"{_CDI}={name}" for name in names]
    if "cdi-annotations" in settings.strategies and qualified:
        annotations[f"{settings.annotation_prefix}nvidia-device-plugin_{uuid.uuid4()}"] = ",".join(qualified)
    if "cdi-cri" in settings.strategies:
        cdi = qualified
    if settings.cdi_only:
        return Answer({}, annotations=annotations, cdi_devices=tuple(cdi))
    env: dict[str, str] = {}
    mounted: list[Mount] = []
    if "envvar" in settings.strategies:
        env[VISIBLE] = ",".join(names)
    if "volume-mounts" in settings.strategies:
        env[VISIBLE] = _LIST
        mounted = [Mount(f"{_LIST}/{name}", "/dev/null", read_only=False) for name in names]
    specs = _specs(ids, settings, machine) if settings.device_specs else ()
    env |= dict.fromkeys(settings.enabled, "enabled")
    return Answer(env, tuple(mounted), specs, annotations, tuple(cdi))


def shared_answer(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    shares: Sequence[DeviceShare],
    settings: Settings,
    machine: Machine,
    rules: NodeRules,
) -> Answer:
    """Return the answer for shares of cards: limits, HAMi's library and the container's own directory."""
    named = devices_answer([share.uuid for share in shares], settings, machine)
    limits = rules.env(shares, settings)
    # What rules say of visible cards counts only where cards are named by UUID in a variable.
    plain = settings.id_strategy == "uuid" and settings.strategies & {"envvar", "volume-mounts"} == {"envvar"}
    if not plain or limits.get(VISIBLE) == ",".join(dict.fromkeys(share.uuid for share in shares)):
        limits.pop(VISIBLE, None)
    hooks = f"{settings.hook_path}/vgpu"
    env = {**named.env, **limits, "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{hooks}/{rules.cache_name()}"}
    library = f"{hooks}/libvgpu.so.{machine.version}"
    mounted = mounts(
        pod["metadata"]["uid"],
        container["name"],
        control_disabled=not rules.hooks(_control_disabled(container)),
        hooks=hooks,
        library=library if library in machine.files else None,
        licensed=f"{hooks}/license" in machine.files,
    )
    return Answer(env, (*named.mounts, *mounted), named.devices, named.annotations, named.cdi_devices)


def _names(ids: Sequence[str], settings: Settings, machine: Machine) -> list[str]:
    if settings.id_strategy == "index":
        known = {card.uuid: card.index for card in machine.cards if card.uuid in ids}
        return [str(index) for index in sorted(known.values())]
    return list(dict.fromkeys(id.split("::", 1)[0] for id in ids))


def _specs(ids: Sequence[str], settings: Settings, machine: Machine) -> tuple[DeviceSpec, ...]:
    paths = [path for path in _OPTIONAL if path in machine.files]
    paths += [card.path for card in machine.cards if card.uuid in ids]
    return tuple(DeviceSpec(path, posixpath.normpath(f"{settings.dev_root}/{path}"), "rw") for path in paths)


def _control_disabled(container: Mapping[str, Any]) -> bool:
    return any(
        entry.get("name") == "CUDA_DISABLE_CONTROL" and entry.get("value") in TRUE_WORDS
        for entry in container.get("env") or []
    )
