"""Brings what a record and the model hold into one form, so that they can be compared literally."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_hami.contract import metrics
from pytest_hami.contract.releases import Traits
from pytest_hami.simulator.hami.scheduler import PodEvent

_CARD_SERIES = (metrics.MEMORY_LIMIT, metrics.CORE_LIMIT, metrics.MEMORY, metrics.SHARES, metrics.CORES)
EventKey = tuple[str, str, str]
_SUCCESS = re.compile(r"(find fit node.* nodes fit\()(.*)\)")
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?")
_UNIX = frozenset({"hami.io/vgpu-time", "hami.io/bind-time"})


def pod_content(pod: Mapping[str, Any]) -> Any:
    """Return annotations, labels and spec of a pod without empty values."""
    meta = pod["metadata"]
    return _prune({"annotations": meta.get("annotations"), "labels": meta.get("labels"), "spec": pod["spec"]})


def _prune(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: kept for key, inner in value.items() if (kept := _prune(inner)) not in ({}, [], None)}
    return [_prune(one) for one in value] if isinstance(value, list) else value


def pod_annotations(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return HAMi's annotations of a pod with ``<unix>`` for times, as the record has them."""
    notes = pod["metadata"].get("annotations") or {}
    return {key: "<unix>" if key in _UNIX else text for key, text in notes.items() if key.startswith("hami.io/")}


def node_annotations(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of a node without its register annotation and with ``<time>`` for times."""
    notes = node["metadata"].get("annotations") or {}
    return {key: _TIMES.sub("<time>", text) for key, text in notes.items() if key != "hami.io/node-nvidia-register"}


def event_key(type_: str, reason: str, message: str) -> EventKey:
    """Return an event with the nodes before the chosen one in a fixed order: equal scores come by chance.

    >>> event_key("Normal", "FilteringSucceed", "find fit node(a), 0 nodes not fit, 2 nodes fit(b:1,a:1)")[2]
    'find fit node(a), 0 nodes not fit, 2 nodes fit(a:1,b:1)'
    """
    match = _SUCCESS.fullmatch(message)
    if match:
        message = f"{match[1]}{','.join(sorted(match[2].split(',')))})"
    return type_, reason, message


def made_events(events: Iterable[PodEvent]) -> set[EventKey]:
    """Return the events that the model made."""
    return {event_key(event.type, event.reason, event.message) for event in events}


def recorded_events(events: Iterable[Mapping[str, Any]]) -> set[EventKey]:
    """Return HAMi's own among recorded events."""
    return {
        event_key(event["type"], event["reason"], event["message"])
        for event in events
        if event["reason"].startswith(("Filtering", "Binding"))
    }


def device_usage(samples: Iterable[metrics.Sample]) -> dict[str, dict[str, list[int]]]:
    """Return by node and card ``[memory limit bytes, core limit, memory bytes, shares, cores]``; -1 for a missing series."""
    result: dict[str, dict[str, list[int]]] = {}
    for sample in samples:
        if sample.name in _CARD_SERIES:
            labels = dict(sample.labels)
            card = result.setdefault(labels["node"], {}).setdefault(labels["device_uuid"], [-1] * len(_CARD_SERIES))
            card[_CARD_SERIES.index(sample.name)] = int(sample.value)
    return result


def pod_usage(samples: Iterable[metrics.Sample]) -> dict[str, dict[str, list[float]]]:
    """Return by pod and ``uuid@node#container_index`` ``[memory bytes, cores]``."""
    result: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        if sample.name not in (metrics.VGPU_MEMORY, metrics.VGPU_CORES):
            continue
        labels = dict(sample.labels)
        card = f"{labels['device_uuid']}@{labels['node']}#{labels['container_index']}"
        pair = result.setdefault(f"{labels['namespace']}/{labels['pod']}", {}).setdefault(card, [0, 0])
        pair[sample.name == metrics.VGPU_CORES] = sample.value
    return result


def quota_usage(samples: Sequence[metrics.Sample], of: Traits) -> dict[str, dict[str, list[float | None]]]:
    """Return by namespace and resource ``[used, limit]``; where the release has no metric for limits, 0 is none."""
    result: dict[str, dict[str, list[float | None]]] = {}
    limits = metrics.quota_limits(samples, of)
    for (namespace, resource), (used, _) in metrics.quota_usage(samples).items():
        result.setdefault(namespace, {})[resource] = [used, limits[namespace, resource]]
    return result
