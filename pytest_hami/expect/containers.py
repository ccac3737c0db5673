"""What a container sees of the cards that its pod was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_hami.contract.env import CACHE_PATTERN, HOOK_LIBRARY, PRELOAD_FILE, container_env
from pytest_hami.expect import baseline
from pytest_hami.expect.failures import require, require_equal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_hami.contract.quantities import DeviceConfig
    from pytest_hami.expect.pods import Pod


def require_env(pod: Pod, config: DeviceConfig, scaling: float, caches: dict[str, tuple[str, str]]) -> None:
    """Assert the plugin's variables in every container that has cards, key by key. Raises ClaimFailed.

    ``scaling`` is the memory scaling of the pod's node; ``caches`` remembers whose cache path is whose.
    """
    for name, shares in pod.shares.items():
        if not shares or any(c["name"] == name for c in pod.stored["spec"].get("initContainers") or []):
            continue
        expected = container_env(shares, oversubscribe=scaling > 1, log_level=config.lib_cuda_log_level)
        # As submitted: what the webhook adds to a container with cards is the core policy and nothing else.
        container = next(c for c in pod.submitted["spec"]["containers"] if c["name"] == name)
        expected |= baseline.env_of_interest({e["name"]: e.get("value", "") for e in container.get("env") or []})
        if config.gpu_core_policy not in {"", "default"}:
            expected["GPU_CORE_UTILIZATION_POLICY"] = config.gpu_core_policy
        env = pod.env(name)
        require_equal(expected, baseline.env_of_interest(env), f"{pod!r} container {name} env")
        cache = env.get(baseline.CACHE, "absent")
        require(
            bool(CACHE_PATTERN.fullmatch(cache)) and caches.setdefault(cache, (pod.uid, name)) == (pod.uid, name),
            "a cache path of its own, /usr/local/vgpu/<uuid>.cache", cache,
            where=f"{pod!r} container {name} {baseline.CACHE}",
        )  # fmt: skip


def require_hook(pod: Pod, container: str | None = None) -> None:
    """Assert that a container is preloaded with the hook library and has it mapped. Raises ClaimFailed."""
    where = f"{pod!r} container {container or 'main'}"
    preload = pod.exec(["cat", PRELOAD_FILE], container)
    require_equal({PRELOAD_FILE: HOOK_LIBRARY}, {PRELOAD_FILE: preload.stdout.strip()}, where)
    maps = pod.exec(["cat", "/proc/1/maps"], container).stdout
    require(HOOK_LIBRARY in maps, f"{HOOK_LIBRARY} mapped", maps[:300], where=f"{where} /proc/1/maps")


def require_devices(pod: Pod, index: Mapping[str, int], container: str | None = None) -> None:
    """Assert that a container sees the device nodes of its cards and of no other; ``index`` by UUID. Raises ClaimFailed."""
    name = container or pod.stored["spec"]["containers"][0]["name"]
    expected = sorted(f"nvidia{index[share.uuid]}" for share in pod.shares.get(name, ()))
    listed = pod.exec(["ls", "/dev"], container).stdout.split()
    seen = sorted(entry for entry in listed if entry.startswith("nvidia") and entry[6:].isdigit())
    require(seen == expected, f"device nodes {expected}", seen, where=f"{pod!r} container {name} /dev")


def nvml_view(pod: Pod, container: str | None = None) -> list[tuple[int, str, int]]:
    """Return what NVML shows in a container: (index, UUID, total MiB) of each card. Raises ClaimFailed."""
    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.free", "--format=csv,noheader,nounits"]
    result = pod.exec(query, container)
    require(result.code == 0, "exit code 0 of nvidia-smi", f"{result.code}: {result.stderr}", where=repr(pod))
    rows = [[field.strip() for field in line.split(",")] for line in result.stdout.splitlines() if line.strip()]
    require(
        all(len(row) == 4 and row[0].isdigit() and row[2].isdigit() and row[3].isdigit() for row in rows),
        "lines of index, uuid, total MiB, free MiB", result.stdout[:500], where=f"nvidia-smi in {pod!r}",
    )  # fmt: skip
    require(
        all(int(free) <= int(whole) for *_, whole, free in rows), "free memory up to the total", rows,
        where=f"nvidia-smi in {pod!r}",
    )  # fmt: skip
    return [(int(index), uuid, int(whole)) for index, uuid, whole, _ in rows]
