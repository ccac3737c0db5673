"""The HAMi scheduler's metrics: names, label sets, and what they say about cards, pods and quotas.

Source: HAMi 2.10.0, cmd/scheduler/metrics.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_hami.contract.releases import Release

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
_CARD_SERIES = (MEMORY_LIMIT, CORE_LIMIT, MEMORY, SHARES, CORES, OVERVIEW, MEMORY_RATIO)


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


def parse(text: str) -> tuple[Sample, ...]:
    """Return the samples of an exposition. Raises MetricsError."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return tuple(
            Sample(sample.name, frozenset(sample.labels.items()), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    except (ValueError, IndexError, KeyError) as error:
        raise MetricsError(f"not an exposition of metrics: {str(error)[:200]}") from None


def card_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], CardUsage]:
    """Return the usage of each card by (node, UUID), of those that have all five series."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for sample in samples:
        if sample.name in {MEMORY_LIMIT, CORE_LIMIT, MEMORY, SHARES, CORES}:
            labels = dict(sample.labels)
            found.setdefault((labels.get("node", ""), labels.get("device_uuid", "")), {})[sample.name] = sample.value
    return {
        key: CardUsage(
            memory_limit=int(values[MEMORY_LIMIT]),
            core_limit=int(values[CORE_LIMIT]),
            memory=int(values[MEMORY] // MIB),
            shares=int(values[SHARES]),
            cores=int(values[CORES]),
        )
        for key, values in found.items()
        if len(values) == 5
    }


def pod_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
    """Return (MiB, percent) by (namespace, pod) and card UUID."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for sample in samples:
        if sample.name in {VGPU_MEMORY, VGPU_CORES}:
            labels = dict(sample.labels)
            pod = found.setdefault((labels["namespace"], labels["pod"]), {})
            pair = pod.setdefault(labels["device_uuid"], [0, 0])
            if sample.name == VGPU_MEMORY:
                pair[0] += int(sample.value // MIB)
            else:
                pair[1] += int(sample.value)
    return {key: {uuid: (pair[0], pair[1]) for uuid, pair in cards.items()} for key, cards in found.items()}


def quota_usage(samples: Iterable[Sample]) -> dict[tuple[str, str], tuple[int, int | None]]:
    """Return (used, limit or None) by (namespace, resource): MiB for memory, percent for cores."""
    used: dict[tuple[str, str], int] = {}
    limits: dict[tuple[str, str], int] = {}
    for sample in samples:
        if sample.name in {QUOTA_USED, QUOTA_LIMIT}:
            labels = dict(sample.labels)
            (used if sample.name == QUOTA_USED else limits)[(labels["namespace"], labels["quota_name"])] = int(
                sample.value
            )
    return {key: (used.get(key, 0), limits.get(key)) for key in {*used, *limits}}


def contract_violations(samples: Iterable[Sample], release: Release) -> list[str]:
    """Return what breaks the promised names and label sets, one line each; empty when nothing does.

    Every card must have all card series, and no other ``hami_`` name may appear. Only 2.10 has a table here.
    """
    if release < Release(2, 10, 0):
        return [f"no table of label sets for HAMi {release}"]
    wrong = []
    cards: dict[tuple[str, str], set[str]] = {}
    names = set()
    for sample in samples:
        names.add(sample.name)
        labels = dict(sample.labels)
        expected = LABELS_2_10.get(sample.name)
        if expected is None:
            if sample.name.startswith("hami_"):
                wrong.append(f"unknown metric {sample.name}")
            continue
        if set(labels) != expected:
            wrong.append(f"{sample.name}: expected labels {sorted(expected)}, seen {sorted(labels)}")
        if "zone" in expected and labels.get("zone") != "vGPU":
            wrong.append(f"{sample.name}: expected zone vGPU, seen {labels.get('zone')}")
        if sample.name in _CARD_SERIES:
            cards.setdefault((labels.get("node", ""), labels.get("device_uuid", "")), set()).add(sample.name)
    for (node, uuid), series in sorted(cards.items()):
        wrong.extend(f"card {uuid} on {node}: no {name}" for name in _CARD_SERIES if name not in series)
    if BUILD_INFO not in names:
        wrong.append(f"no {BUILD_INFO}")
    return sorted(set(wrong))
