"""The HAMi scheduler's metrics: names, label sets, and what they say about cards, pods and quotas.

Source: cmd/scheduler/metrics.go of HAMi 2.8.3, 2.9.0 and 2.10.0. The names of 2.10.0 stand for what they say;
``read`` gives them to what an older release says.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pytest_hami.contract.releases import Release, Traits

MIB = 1 << 20
MEMORY_LIMIT = "hami_gpu_memory_limit_bytes"
CORE_LIMIT = "hami_gpu_core_limit_ratio"
MEMORY = "hami_gpu_memory_allocated_bytes"
SHARES = "hami_gpu_shared_count"
CORES = "hami_gpu_core_allocated_ratio"
OVERVIEW = "hami_node_gpu_overview"
MEMORY_RATIO = "hami_node_gpu_memory_allocated_ratio"
VGPU_MEMORY = "hami_vgpu_memory_allocated_bytes"
VGPU_CORES = "hami_vgpu_core_allocated_ratio"
QUOTA_USED = "hami_resource_quota_used"
QUOTA_LIMIT = "hami_resource_quota_limit"
BUILD_INFO = "hami_build_info"

_CARD = frozenset({"node", "device_uuid", "device_index", "device_type", "zone"})
_POD = frozenset({"namespace", "node", "pod", "container_index", "device_uuid", "zone"})
LABELS_2_10: dict[str, frozenset[str]] = {
    MEMORY_LIMIT: _CARD,
    CORE_LIMIT: _CARD,
    MEMORY: _CARD | {"device_cores"},
    SHARES: _CARD,
    CORES: _CARD,
    OVERVIEW: _CARD | {"device_cores", "device_memory_limit"},
    MEMORY_RATIO: _CARD,
    "hami_node_gpu_mig_instance_info": frozenset(
        {
            "node", "device_uuid", "device_index", "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id",
            "placement_start", "placement_size", "zone",
        }
    ),
    QUOTA_USED: frozenset({"namespace", "quota_name", "limit", "zone"}),
    QUOTA_LIMIT: frozenset({"namespace", "quota_name", "zone"}),
    VGPU_MEMORY: _POD,
    VGPU_CORES: _POD,
    BUILD_INFO: frozenset({"version", "revision", "build_date", "go_version", "compiler", "platform"}),
}  # fmt: skip
LABELS_2_9: dict[str, frozenset[str]] = {
    **{name: labels for name, labels in LABELS_2_10.items() if name != QUOTA_LIMIT},
    OVERVIEW: LABELS_2_10[OVERVIEW] | {"shared_containers"},
    MEMORY_RATIO: _CARD - {"device_type"},
}
_CARD_2_8 = frozenset({"nodeid", "deviceuuid", "deviceidx", "zone"})
_POD_2_8 = frozenset({"podnamespace", "nodename", "podname", "containeridx", "deviceuuid", "zone"})
LABELS_2_8: dict[str, frozenset[str]] = {
    "GPUDeviceMemoryLimit": _CARD_2_8,
    "GPUDeviceCoreLimit": _CARD_2_8,
    "GPUDeviceMemoryAllocated": _CARD_2_8 | {"devicecores"},
    "GPUDeviceSharedNum": _CARD_2_8,
    "GPUDeviceCoreAllocated": _CARD_2_8,
    "nodeGPUOverview": _CARD_2_8 | {"devicecores", "sharedcontainers", "devicememorylimit", "devicetype"},
    "nodeGPUMemoryPercentage": _CARD_2_8,
    "nodeGPUMigInstance": _CARD_2_8 | {"migname"},
    "vGPUMemoryAllocated": _POD_2_8,
    "vGPUCoreAllocated": _POD_2_8,
    "QuotaUsed": frozenset({"quotanamespace", "quotaName", "limit", "zone"}),
    BUILD_INFO: LABELS_2_10[BUILD_INFO],
}
_SINCE_2_9 = Release(2, 9, 0)
# What 2.8 calls the series of later releases, and what became of its labels (2.9.0 renamed both).
OLD_NAMES: Mapping[str, str] = {
    MEMORY_LIMIT: "GPUDeviceMemoryLimit", CORE_LIMIT: "GPUDeviceCoreLimit", MEMORY: "GPUDeviceMemoryAllocated",
    SHARES: "GPUDeviceSharedNum", CORES: "GPUDeviceCoreAllocated", OVERVIEW: "nodeGPUOverview",
    MEMORY_RATIO: "nodeGPUMemoryPercentage", VGPU_MEMORY: "vGPUMemoryAllocated", VGPU_CORES: "vGPUCoreAllocated",
    QUOTA_USED: "QuotaUsed",
}  # fmt: skip
_NEW_NAMES = {old: new for new, old in OLD_NAMES.items()}
_NEW_LABELS = {
    "nodeid": "node", "nodename": "node", "deviceuuid": "device_uuid", "deviceidx": "device_index",
    "devicecores": "device_cores", "devicememorylimit": "device_memory_limit", "devicetype": "device_type",
    "sharedcontainers": "shared_containers", "podnamespace": "namespace", "podname": "pod",
    "containeridx": "container_index", "quotanamespace": "namespace", "quotaName": "quota_name",
}  # fmt: skip
_TYPED = frozenset(OLD_NAMES[name] for name in (MEMORY_LIMIT, CORE_LIMIT, MEMORY, SHARES, CORES))
# What ``--legacy-metrics=true`` adds.
LEGACY_2_9: dict[str, frozenset[str]] = {
    name: labels | {"devicetype"} if name in _TYPED else labels
    for name, labels in LABELS_2_8.items()
    if name != BUILD_INFO
}
LEGACY_2_10: dict[str, frozenset[str]] = {
    **LEGACY_2_9,
    OLD_NAMES[OVERVIEW]: LEGACY_2_9[OLD_NAMES[OVERVIEW]] - {"sharedcontainers"},
}
_HOST = frozenset({"node", "device_uuid", "device_index", "device_type", "zone"})
_CONTAINER = frozenset({"namespace", "pod", "container", "vdevice_index", "device_uuid", "zone"})
# What vGPUmonitor exports on each node, without the legacy names (cmd/vGPUmonitor/metrics.go).
MONITOR_LABELS_2_10: dict[str, frozenset[str]] = {
    "hami_host_gpu_memory_used_bytes": _HOST,
    "hami_host_gpu_utilization_ratio": _HOST,
    "hami_host_gpu_memory_controller_utilization_ratio": _HOST - {"node"},
    "hami_vgpu_memory_used_bytes": _CONTAINER,
    "hami_vgpu_memory_limit_bytes": _CONTAINER,
    "hami_container_device_memory_bytes": _CONTAINER,
    "hami_container_device_utilization_ratio": _CONTAINER,
    "hami_container_last_kernel_elapsed_seconds": _CONTAINER,
    "hami_vgpu_memory_context_bytes": _CONTAINER,
    "hami_vgpu_memory_module_bytes": _CONTAINER,
    "hami_vgpu_memory_buffer_bytes": _CONTAINER,
    BUILD_INFO: LABELS_2_10[BUILD_INFO],
}
# cmd/vGPUmonitor/metrics.go of v2.9.0.
MONITOR_LABELS_2_9: dict[str, frozenset[str]] = {
    **{name: labels - {"node"} for name, labels in MONITOR_LABELS_2_10.items() if "controller" not in name},
    "hami_container_device_memory_bytes": _CONTAINER | {"context_size", "module_size", "buffer_size", "offset"},
}
# The memory ratio is not among them: a card registered with 0 MiB has none.
USAGE_SERIES = frozenset({MEMORY_LIMIT, CORE_LIMIT, MEMORY, SHARES, CORES})
ACCOUNTING_SERIES = USAGE_SERIES | {VGPU_MEMORY, VGPU_CORES}
QUOTA_SERIES = frozenset({QUOTA_USED, QUOTA_LIMIT})
_CARD_SERIES = (MEMORY_LIMIT, CORE_LIMIT, MEMORY, SHARES, CORES, OVERVIEW)


class MetricsError(ValueError):
    """A text that is no exposition."""


@dataclass(frozen=True)
class Sample:
    """One series with its value."""

    name: str
    labels: frozenset[tuple[str, str]]
    value: float


@dataclass(frozen=True)
class CardUsage:
    """One card: limit in bytes, core limit in percent, memory in MiB, shares, cores in percent."""

    memory_limit: int
    core_limit: int
    memory: int
    shares: int
    cores: int


def parse(text: str, names: Collection[str] = ()) -> tuple[Sample, ...]:
    """Return the samples of an exposition, or only those of the series in ``names``. Raises MetricsError.

    >>> parse("a 1\\nb 2\\n", {"b"})
    (Sample(name='b', labels=frozenset(), value=2.0),)
    """
    if not names:
        return _samples(text)
    chosen = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(names)))})(?![a-zA-Z0-9_:])")
    return tuple(sample for line in text.splitlines() if chosen.match(line) for sample in _samples_of_line(line))


def read(text: str, names: Collection[str], release: Release) -> tuple[Sample, ...]:
    """Return the series in ``names``, all where it is empty, under the names and labels of 2.10.0, whatever the release.

    Raises MetricsError.

    >>> read('QuotaUsed{quotaName="a"} 1\\n', {QUOTA_USED}, Release(2, 8, 3))
    (Sample(name='hami_resource_quota_used', labels=frozenset({('quota_name', 'a')}), value=1.0),)
    """
    if release >= _SINCE_2_9:
        return parse(text, names)
    return tuple(map(_renamed, parse(text, {OLD_NAMES.get(name, name) for name in names})))


@functools.lru_cache(maxsize=4096)
def _renamed(sample: Sample) -> Sample:
    labels = frozenset((_NEW_LABELS.get(name, name), value) for name, value in sample.labels)
    return Sample(_NEW_NAMES.get(sample.name, sample.name), labels, sample.value)


# Between two reads of a page most lines stay as they are, and parsing one is slow.
@functools.lru_cache(maxsize=4096)
def _samples_of_line(line: str) -> tuple[Sample, ...]:
    return _samples(line + "\n")


def _samples(text: str) -> tuple[Sample, ...]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return tuple(
            Sample(sample.name, frozenset(sample.labels.items()), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    except (ValueError, IndexError, KeyError) as error:
        raise MetricsError(f"not an exposition of metrics: {str(error)[:200]}") from None


def label_sets(release: Release, legacy: bool = False) -> dict[str, frozenset[str]]:
    """Return the exact label names of every series of the scheduler in a release, ``zone`` included.

    ``legacy`` adds the series that the flag ``--legacy-metrics`` adds.
    """
    if release < _SINCE_2_9:
        return LABELS_2_8
    labels, old = (LABELS_2_10, LEGACY_2_10) if release >= Release(2, 10, 0) else (LABELS_2_9, LEGACY_2_9)
    return {**labels, **old} if legacy else labels


def later_label(label: str) -> str:
    """Return the name that a label of 2.8 has in later releases.

    >>> later_label("nodename"), later_label("deviceuuid"), later_label("limit")
    ('node', 'device_uuid', 'limit')
    """
    return _NEW_LABELS.get(label, label)


def _whole(sample: Sample) -> int:
    if not math.isfinite(sample.value) or sample.value != int(sample.value):
        raise MetricsError(f"expected a whole number as value of {sample.name}, seen {sample.value}")
    return int(sample.value)


def _mib(value: int, name: str) -> int:
    if value % MIB:
        raise MetricsError(f"expected whole MiB as value of {name}, seen {value} bytes")
    return value // MIB


def card_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], CardUsage]:
    """Return the usage of each card by (node, UUID), of those that have all five series.

    Raises MetricsError for a value that is no whole number, of MiB where it is memory.
    """
    found: dict[tuple[str, str], dict[str, int]] = {}
    for sample in samples:
        if sample.name in USAGE_SERIES:
            labels = dict(sample.labels)
            card = (labels.get("node", ""), labels.get("device_uuid", ""))
            found.setdefault(card, {})[sample.name] = _whole(sample)
    return {
        key: CardUsage(
            memory_limit=values[MEMORY_LIMIT],
            core_limit=values[CORE_LIMIT],
            memory=_mib(values[MEMORY], MEMORY),
            shares=values[SHARES],
            cores=values[CORES],
        )
        for key, values in found.items()
        if len(values) == 5
    }


def pod_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
    """Return (MiB, percent) by (namespace, pod) and card UUID, summed over container indexes.

    Raises MetricsError for a value that is no whole number, of MiB where it is memory.
    """
    found: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for sample in samples:
        if sample.name in {VGPU_MEMORY, VGPU_CORES}:
            labels = dict(sample.labels)
            pod = found.setdefault((labels.get("namespace", ""), labels.get("pod", "")), {})
            uuid = labels.get("device_uuid", "")
            memory, cores = pod.get(uuid, (0, 0))
            value = _whole(sample)
            pod[uuid] = (
                (memory + _mib(value, sample.name), cores) if sample.name == VGPU_MEMORY else (memory, cores + value)
            )
    return found


def quota_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], tuple[int, int | None]]:
    """Return (used, limit or None) by (namespace, resource): MiB for memory, percent for cores.

    Raises MetricsError for a value that is no whole number, of MiB where it is memory.
    """
    found: dict[tuple[str, str], tuple[int, int | None]] = {}
    for sample in samples:
        if sample.name in QUOTA_SERIES:
            labels = dict(sample.labels)
            key = (labels.get("namespace", ""), labels.get("quota_name", ""))
            used, limit = found.get(key, (0, None))
            found[key] = (_whole(sample), limit) if sample.name == QUOTA_USED else (used, _whole(sample))
    return found


def quota_limits(samples: Iterable[Sample], traits: Traits) -> dict[tuple[str, str], int | None]:
    """Return the limit by (namespace, resource) of every quota that the series know, None where none is set.

    Without a series of its own the label ``limit`` of the use tells it, and 0 stands for no limit. Raises MetricsError.
    """
    found: dict[tuple[str, str], int | None] = {}
    for sample in samples:
        if sample.name in QUOTA_SERIES:
            labels = dict(sample.labels)
            key = (labels.get("namespace", ""), labels.get("quota_name", ""))
            if sample.name == QUOTA_LIMIT:
                found[key] = _whole(sample)
            elif not traits.quota_limit_metric:
                text = labels.get("limit", "")
                if not text.removeprefix("-").isdecimal():
                    raise MetricsError(f"expected a whole number as label limit of {sample.name}, seen {text[:40]!r}")
                found[key] = int(text)
            else:
                found.setdefault(key, None)
    return found


def contract_violations(samples: Iterable[Sample], release: Release) -> list[str]:
    """Return what breaks the promised names and label sets of the scheduler, one line each; empty when nothing does.

    ``samples`` are as the release names them. Every card must have all card series, and no other name of HAMi may
    appear.
    """
    promised = label_sets(release)
    seen = tuple(samples)
    wrong = _label_violations(seen, promised, _prefixes(release))
    needed = _CARD_SERIES if release >= _SINCE_2_9 else tuple(OLD_NAMES[name] for name in _CARD_SERIES)
    cards: dict[tuple[str, str], set[str]] = {}
    for sample in seen:
        if sample.name in needed:
            labels = dict(_renamed(sample).labels)
            cards.setdefault((labels.get("node", ""), labels.get("device_uuid", "")), set()).add(sample.name)
    for (node, uuid), series in cards.items():
        wrong.update(f"card {uuid} on {node}: no {name}" for name in needed if name not in series)
    if all(sample.name != BUILD_INFO for sample in seen):
        wrong.add(f"no {BUILD_INFO}")
    return sorted(wrong)


def release_of(samples: Iterable[Sample]) -> Release | None:
    """Return the recorded release whose names and labels these series have, None where they could be of any.

    >>> release_of(parse('nodeGPUOverview{nodeid="n"} 0\\n'))
    Release(major=2, minor=8, patch=3)
    """
    seen = {sample.name: {name for name, _ in sample.labels} for sample in samples}
    # Only the labels of these two tell 2.9 and 2.10 apart on a page without quotas.
    telling = seen.keys() & {MEMORY_RATIO, OVERVIEW}
    if not telling:
        return Release(2, 8, 3) if seen.keys() & _NEW_NAMES.keys() else None
    releases = (Release(2, 10, 0), Release(2, 9, 0))
    return next((r for r in releases if all(seen[name] == label_sets(r)[name] for name in telling)), None)


def _prefixes(release: Release) -> tuple[str, ...]:
    return ("hami_",) if release >= _SINCE_2_9 else ("hami_", "GPUDevice", "nodeGPU", "vGPU", "Quota")


def type_violations(text: str, release: Release) -> list[str]:
    """Return the names of HAMi's own series that are no gauge, one line each."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, IndexError, KeyError) as error:
        raise MetricsError(f"not an exposition of metrics: {str(error)[:200]}") from None
    own = _prefixes(release)
    return sorted(f"{f.name} is a {f.type}" for f in families if f.name.startswith(own) and f.type != "gauge")


def monitor_violations(samples: Iterable[Sample], release: Release) -> list[str]:
    """Return what breaks the promised names and label sets of a release's vGPUmonitor; empty when nothing does."""
    promised = MONITOR_LABELS_2_10 if release >= Release(2, 10, 0) else MONITOR_LABELS_2_9
    return sorted(_label_violations(samples, promised, ("hami_",)))


def _label_violations(
    samples: Iterable[Sample], promised: Mapping[str, frozenset[str]], own: tuple[str, ...]
) -> set[str]:
    wrong = set()
    for sample in samples:
        labels = dict(sample.labels)
        expected = promised.get(sample.name)
        if expected is None:
            if sample.name.startswith(own):
                wrong.add(f"unknown metric {sample.name}")
            continue
        if set(labels) != expected:
            wrong.add(f"{sample.name}: expected labels {sorted(expected)}, seen {sorted(labels)}")
        if "zone" in expected and labels.get("zone") != "vGPU":
            wrong.add(f"{sample.name}: expected zone vGPU, seen {labels.get('zone')}")
    return wrong
