"""The text of ``/metrics`` (HAMi, cmd/scheduler/metrics.go)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from pytest_hami.contract import metrics as names
from pytest_hami.simulator.hami.config import SchedulerConfig
from pytest_hami.simulator.hami.quota import Entry
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.state import Card, PodRecord

_HELP = {
    names.BUILD_INFO: "hami build metadata exposed as labels with a constant value of 1.",
    names.CORES: "Device core allocated for a certain GPU",
    names.CORE_LIMIT: "Device core limit for a certain GPU",
    names.MEMORY: "Device memory allocated for a certain GPU",
    names.MEMORY_LIMIT: "Device memory limit for a certain GPU",
    names.SHARES: "Number of containers sharing this GPU",
    names.MEMORY_RATIO: "GPU Memory Allocated Percentage on a certain GPU",
    names.OVERVIEW: "GPU overview on a certain node",
    names.QUOTA_LIMIT: "resourcequota limit for a certain device",
    names.QUOTA_USED: "resourcequota usage for a certain device",
    names.VGPU_CORES: "vGPU core allocated from a container",
    names.VGPU_MEMORY: "vGPU memory allocated from a container",
}
_OLD_HELP = {
    **{names.OLD_NAMES[name]: text for name, text in _HELP.items() if name in names.OLD_NAMES},
    names.OLD_NAMES[names.CORE_LIMIT]: "Device memory core limit for a certain GPU",
}
Labels = Mapping[str, str]
Series = tuple[str, Labels, float]


class CollisionError(ValueError):
    """Two series with the same labels: HAMi then answers the whole scrape with code 500."""


def go_float(value: float) -> str:
    """Return a number as the Prometheus client for Go writes it.

    >>> go_float(4294967296), go_float(25), go_float(1 / 6), go_float(0), go_float(100000)
    ('4.294967296e+09', '25', '0.16666666666666666', '0', '100000')
    >>> go_float(math.nan), go_float(math.inf)
    ('NaN', '+Inf')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    if value == 0 or not isinstance(exponent, int):
        return "0"
    power = len(digits) - 1 + exponent
    text = "".join(map(str, digits))
    prefix = "-" if sign else ""
    # Go's shortest 'g' format takes an exponent from a million on.
    if -4 <= power < 6:
        return prefix + format(Decimal((0, digits, exponent)), "f")
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{prefix}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def render(
    config: SchedulerConfig,
    cards: Mapping[str, Sequence[Card]],
    pods: Iterable[PodRecord],
    quota: Mapping[tuple[str, str], Entry],
    rules: Rules,
) -> str:
    """Return the exposition. Raises CollisionError when two series have the same labels."""
    return _text(series(config, cards, pods, quota, rules), rules.repeated_series())


def series(
    config: SchedulerConfig,
    cards: Mapping[str, Sequence[Card]],
    pods: Iterable[PodRecord],
    quota: Mapping[tuple[str, str], Entry],
    rules: Rules,
) -> list[Series]:
    """Return every series under the names and with the labels of the release."""
    promised = names.label_sets(config.traits.release, config.legacy_metrics)
    found: list[Series] = [(names.BUILD_INFO, _build(config.release), 1)]
    for name, labels, value in _all_series(cards, pods, quota, rules):
        if name in promised:
            found.append((name, _chosen(labels, promised[name]), value))
        old = names.OLD_NAMES.get(name, "")
        if old in promised:
            found.append((old, _chosen(labels, promised[old]), value))
    return found


def _chosen(labels: Labels, promised: frozenset[str]) -> Labels:
    return {label: labels[names.later_label(label)] if label != "zone" else "vGPU" for label in promised}


def _build(release: str) -> Labels:
    return {
        "version": f"v{release}", "revision": "simulated", "build_date": "unknown", "go_version": "none",
        "compiler": "none", "platform": "simulated",
    }  # fmt: skip


def _all_series(
    cards: Mapping[str, Sequence[Card]],
    pods: Iterable[PodRecord],
    quota: Mapping[tuple[str, str], Entry],
    rules: Rules,
) -> Iterator[Series]:
    """Return the series under their later names with every label that some release has."""
    for node, listed in cards.items():
        for card in listed:
            yield from _card_series(node, card, rules)
    for pod in pods:
        for share in pod.usage:
            # A share without a UUID, from a malformed device string, is passed over.
            if share.uuid:
                labels = {
                    "namespace": pod.namespace, "node": pod.node, "pod": pod.name,
                    "container_index": str(share.position), "device_uuid": share.uuid,
                }  # fmt: skip
                yield names.VGPU_MEMORY, labels, rules.reported_pod_memory(share)
                yield names.VGPU_CORES, labels, rules.reported_pod_cores(share)
    for (namespace, resource), entry in quota.items():
        labels = {"namespace": namespace, "quota_name": resource}
        yield names.QUOTA_USED, {**labels, "limit": str(entry.limit or 0)}, entry.used
        if entry.limit is not None:
            yield names.QUOTA_LIMIT, labels, entry.limit


def _card_series(node: str, card: Card, rules: Rules) -> Iterator[Series]:
    device = card.device
    labels = {
        "node": node, "device_uuid": device.id, "device_index": str(device.index), "device_type": device.type,
        "device_cores": str(rules.labelled_cores(card)), "device_memory_limit": str(device.devmem),
        "shared_containers": str(card.used),
    }  # fmt: skip
    memory = rules.reported_memory(card)
    yield names.MEMORY_LIMIT, labels, rules.reported_memory_limit(card)
    yield names.CORE_LIMIT, labels, device.devcore
    yield names.MEMORY, labels, memory
    yield names.SHARES, labels, rules.reported_shares(card)
    yield names.CORES, labels, rules.reported_cores(card)
    yield names.OVERVIEW, labels, memory
    ratio = rules.reported_memory_ratio(card)
    if ratio is not None:
        yield names.MEMORY_RATIO, labels, ratio


def _text(found: Iterable[Series], repeated: str) -> str:
    families: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    dropped = set()
    for name, labels, value in found:
        family = families.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        if key not in family:
            family[key] = value
        elif repeated == "fail":
            raise CollisionError(f"collected metric {name} {dict(key)} was collected before with the same labels")
        elif repeated == "drop":
            dropped.add(name)
    lines = []
    for name in sorted(families.keys() - dropped):
        lines.append(f"# HELP {name} {_HELP.get(name) or _OLD_HELP[name]}")
        lines.append(f"# TYPE {name} gauge")
        for key, value in sorted(families[name].items()):
            lines.append(_start_of_line(name, key) + go_float(value))
    return "\n".join(lines) + "\n"


# The page is asked for after every step of a test, and its labels hardly change.
@functools.lru_cache(maxsize=8192)
def _start_of_line(name: str, key: tuple[tuple[str, str], ...]) -> str:
    labels = ",".join(f'{label}="{_escape(text)}"' for label, text in key)
    return f"{name}{{{labels}}} "


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
