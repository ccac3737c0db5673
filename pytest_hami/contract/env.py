"""What the device plugin gives to a container: variables and mounts, in modes hami-core and mps.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hami.contract.allocation import DeviceShare

HOOK_LIBRARY = "/usr/local/vgpu/libvgpu.so"
PRELOAD_FILE = "/etc/ld.so.preload"
CACHE_PATTERN = re.compile(r"/usr/local/vgpu/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.cache")


@dataclass(frozen=True)
class Mount:
    """A mount of the answer to Allocate."""

    container_path: str
    host_path: str
    read_only: bool


def container_env(
    shares: Sequence[DeviceShare],
    *,
    oversubscribe: bool = False,
    log_level: str = "1",
    core_limit_disabled: bool = False,
) -> dict[str, str]:
    """Return the variables of a container, without the random cache path.

    Limits in MiB with suffix ``m``, one for each card; cores of the first card only; UUIDs in allocation order,
    each once. ``oversubscribe`` is a memory scaling above 1, ``core_limit_disabled`` the key disableCoreLimit of the
    device-config. Raises ValueError without a share: the plugin answers no container that has none.

    >>> container_env([DeviceShare("GPU-a", 4096, 25)])["CUDA_DEVICE_MEMORY_LIMIT_0"]
    '4096m'
    """
    if not shares:
        raise ValueError("expected at least one share; a container without cards gets no variables")
    env = {f"CUDA_DEVICE_MEMORY_LIMIT_{index}": f"{share.memory}m" for index, share in enumerate(shares)}
    env["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].cores)
    env["NVIDIA_VISIBLE_DEVICES"] = ",".join(dict.fromkeys(share.uuid for share in shares))
    if oversubscribe:
        env["CUDA_OVERSUBSCRIBE"] = "true"
    if log_level:
        env["LIBCUDA_LOG_LEVEL"] = log_level
    if core_limit_disabled:
        env["GPU_CORE_UTILIZATION_POLICY"] = "disable"
    return env


def mounts(
    pod_uid: str,
    container: str,
    *,
    control_disabled: bool,
    hooks: str = "/usr/local/vgpu",
    library: str | None = None,
    licensed: bool = False,
) -> tuple[Mount, ...]:
    """Return the mounts of a container; the preload file is left out when its control is disabled.

    ``hooks`` is HAMi's folder on the node, ``library`` the file there that has the plugin's version in its name, None where
    there is none, ``licensed`` whether there is a licence.
    """
    found = [
        Mount(f"{hooks}/libvgpu.so", library or f"{hooks}/libvgpu.so", read_only=True),
        Mount(hooks, f"{hooks}/containers/{pod_uid}_{container}", read_only=False),
        Mount("/tmp/vgpulock", "/tmp/vgpulock", read_only=False),
    ]
    if not control_disabled:
        found.append(Mount(PRELOAD_FILE, f"{hooks}/ld.so.preload", read_only=True))
    if licensed:
        found.append(Mount("/tmp/license", f"{hooks}/license", read_only=True))
        found.append(Mount("/usr/bin/vgpuvalidator", f"{hooks}/vgpuvalidator", read_only=True))
    return tuple(found)
