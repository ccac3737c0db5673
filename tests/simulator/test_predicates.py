"""kube-scheduler's own filters."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hami.simulator import predicates

NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"zone": "a", "rank": "5"}}, "spec": {},
    "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2", "nvidia.com/gpu": "10"}},
}  # fmt: skip
TAINTED = {**NODE, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}


def pod(requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}


def affinity(operator: str, key: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def refusal(what: dict[str, Any], node: dict[str, Any] = NODE, used: dict[str, int] | None = None) -> str:
    return predicates.first_refusal(what, node, used or {}, {"nvidia.com/gpu"})


@pytest.mark.parametrize(
    ("what", "node", "expected"),
    [
        (pod(), NODE, ""),
        (pod(nodeSelector={"zone": "a"}), NODE, ""),
        (pod(nodeSelector={"zone": "b"}), NODE, predicates.SELECTOR),
        (pod(affinity=affinity("In", "zone", "a", "b")), NODE, ""),
        (pod(affinity=affinity("NotIn", "zone", "a")), NODE, predicates.SELECTOR),
        (pod(affinity=affinity("Exists", "zone")), NODE, ""),
        (pod(affinity=affinity("DoesNotExist", "zone")), NODE, predicates.SELECTOR),
        (pod(affinity=affinity("Gt", "rank", "4")), NODE, ""),
        (pod(affinity=affinity("Lt", "rank", "4")), NODE, predicates.SELECTOR),
        (pod(), TAINTED, predicates.TAINT),
        (pod(tolerations=[{"key": "k", "operator": "Exists"}]), TAINTED, ""),
        (pod(tolerations=[{"key": "k", "value": "other", "effect": "NoSchedule"}]), TAINTED, predicates.TAINT),
        (pod(tolerations=[{"operator": "Exists"}]), TAINTED, ""),
        (pod(), {**NODE, "spec": {"unschedulable": True}}, predicates.UNSCHEDULABLE),
        (pod({"nvidia.com/gpu": "11"}), NODE, ""),
    ],
)
def test_first_refusal(what: dict[str, Any], node: dict[str, Any], expected: str) -> None:
    assert refusal(what, node) == expected


def test_resources_are_counted_unless_the_extender_does() -> None:
    assert "Insufficient cpu" in refusal(pod({"cpu": "3"}))
    assert refusal(pod({"cpu": "2"})) == ""
    assert "Insufficient nvidia.com/gpu" in predicates.first_refusal(pod({"nvidia.com/gpu": "11"}), NODE, {}, ())


def test_mentions_looks_at_every_container() -> None:
    asking = {"name": "i", "resources": {"limits": {"nvidia.com/gpumem": "1"}}}
    assert predicates.mentions(pod(initContainers=[asking]), ("nvidia.com/gpumem",))
    assert not predicates.mentions(pod(), ("nvidia.com/gpumem",))
