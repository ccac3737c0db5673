"""Variables and mounts that the device plugin promises a container."""

from __future__ import annotations

import pytest

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.env import CACHE_PATTERN, HOOK_LIBRARY, PRELOAD_FILE, container_env, mounts

A, B = DeviceShare("GPU-A", 4096, 25), DeviceShare("GPU-B", 2048, 50)


def test_one_card() -> None:
    assert container_env([A], oversubscribe=False, log_level="1") == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m",
        "CUDA_DEVICE_SM_LIMIT": "25",
        "NVIDIA_VISIBLE_DEVICES": "GPU-A",
        "LIBCUDA_LOG_LEVEL": "1",
    }


def test_two_cards_keep_their_order_and_the_first_card_gives_the_cores() -> None:
    found = container_env([B, A], oversubscribe=False, log_level="")
    assert found == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "2048m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "4096m",
        "CUDA_DEVICE_SM_LIMIT": "50",
        "NVIDIA_VISIBLE_DEVICES": "GPU-B,GPU-A",
    }


def test_switches() -> None:
    found = container_env([A, A], oversubscribe=True, log_level="4", core_limit_disabled=True)
    assert found["CUDA_OVERSUBSCRIBE"] == "true"
    assert found["GPU_CORE_UTILIZATION_POLICY"] == "disable"
    assert found["LIBCUDA_LOG_LEVEL"] == "4"
    assert found["NVIDIA_VISIBLE_DEVICES"] == "GPU-A"
    assert found["CUDA_DEVICE_MEMORY_LIMIT_1"] == "4096m"


def test_no_share_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one share"):
        container_env([], oversubscribe=False, log_level="1")


def test_mounts() -> None:
    found = {mount.container_path: mount for mount in mounts("uid", "main", control_disabled=False)}
    assert found[HOOK_LIBRARY].read_only
    assert found[PRELOAD_FILE].read_only
    assert found["/usr/local/vgpu"].host_path == "/usr/local/vgpu/containers/uid_main"
    assert not found["/usr/local/vgpu"].read_only
    without = {mount.container_path for mount in mounts("uid", "main", control_disabled=True)}
    assert set(found) - without == {PRELOAD_FILE}


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        ("/usr/local/vgpu/2304c66d-92c5-41a1-841c-527e79b16436.cache", True),
        ("/usr/local/vgpu/2304c66d.cache", False),
        ("/vgpu/2304c66d-92c5-41a1-841c-527e79b16436.cache", False),
    ],
)
def test_cache_path(path: str, matches: bool) -> None:
    assert bool(CACHE_PATTERN.fullmatch(path)) is matches
