"""kube-scheduler's own filters, as pure functions. Source: Kubernetes 1.36, pkg/scheduler/framework/plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_hami.contract.quantities import parse_quantity

SELECTOR = "node(s) didn't match Pod's node affinity/selector"
UNSCHEDULABLE = "node(s) were unschedulable"
TAINT = "node(s) had untolerated taint(s)"
NO_NODES = "no nodes available to schedule pods"


def first_refusal(
    pod: Mapping[str, Any], node: Mapping[str, Any], used: Mapping[str, int], ignored: Iterable[str]
) -> str:
    """Return why a node cannot take a pod, empty when it can. ``used`` counts requests of pods bound there."""
    spec = node.get("spec") or {}
    tolerations = pod["spec"].get("tolerations") or []
    if spec.get("unschedulable") and not _tolerates(
        tolerations, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return UNSCHEDULABLE
    if any(
        taint.get("effect") in {"NoSchedule", "NoExecute"} and not _tolerates(tolerations, taint)
        for taint in spec.get("taints") or []
    ):
        return TAINT
    if not _selected(pod, node):
        return SELECTOR
    short = _insufficient(pod, node, used, frozenset(ignored))
    return ", ".join(short)


def _tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("key") and toleration["key"] != taint.get("key"):
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _selected(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, labels, node["metadata"]["name"]) for term in required.get("nodeSelectorTerms") or [])


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_expression(e, labels) for e in expressions) and all(
        _expression(e, {"metadata.name": name}) for e in fields
    )


def _expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    seen, wanted = parse_quantity(labels.get(key, "")), parse_quantity(values[0]) if values else None
    if seen is None or wanted is None:
        return False
    return seen > wanted if operator == "Gt" else seen < wanted


def millis(name: str, value: str | int) -> int:
    """Return a quantity as a whole number: CPU in thousandths, everything else as it is."""
    if name == "cpu":
        text = str(value)
        return int(text[:-1]) if text.endswith("m") and text[:-1].isdigit() else round(1000 * float(text or 0))
    return parse_quantity(value) or 0


def requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod asks of a node: the sum of its containers, or the largest init container."""
    total: dict[str, int] = {"pods": 1}
    for container in pod["spec"].get("containers") or []:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, 0) + millis(name, value)
    for container in pod["spec"].get("initContainers") or []:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total.get(name, 0), millis(name, value))
    return total


def _insufficient(
    pod: Mapping[str, Any], node: Mapping[str, Any], used: Mapping[str, int], ignored: frozenset[str]
) -> list[str]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    short = []
    for name, asked in sorted(requests(pod).items()):
        if name in ignored or asked == 0:
            continue
        if used.get(name, 0) + asked > millis(name, allocatable.get(name, 0)):
            short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return short


def mentions(pod: Mapping[str, Any], resources: Iterable[str]) -> bool:
    """Return whether any container mentions one of the resources in limits or requests."""
    wanted = set(resources)
    for container in [*(pod["spec"].get("initContainers") or []), *(pod["spec"].get("containers") or [])]:
        for source in ("limits", "requests"):
            if wanted & set((container.get("resources") or {}).get(source) or {}):
                return True
    return False


def failed_scheduling(nodes: int, reasons: Sequence[str], own: int) -> str:
    """Return the message of kube-scheduler 1.36 for ``nodes`` nodes; ``own`` of them it refused itself."""
    if nodes == 0:
        return NO_NODES
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    left = nodes - own
    hints = []
    if left:
        hints.append(f"{left} No preemption victims found for incoming pod")
    if own:
        hints.append(f"{own} Preemption is not helpful for scheduling")
    preemption = f"preemption: 0/{nodes} nodes are available: {', '.join(sorted(hints))}."
    return f"0/{nodes} nodes are available: {listed}. no new claims to deallocate, {preemption}"
