"""Reads and writes as a kube-apiserver 1.36 answers them, through the official client and raw HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient

from pytest_hami.kube.client import KubeClient
from pytest_hami.kube.errors import ApiError

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def official(api: Any) -> Any:
    return config.new_client_from_config_dict(api.kubeconfig)


def raw(api: Any, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body)
    answer = urllib3.request(
        method, api.server.url + path, body=data, headers={"Content-Type": "application/json", **headers}, retries=False
    )
    return answer.status, json.loads(answer.data) if answer.data[:1] in b"{[" else answer.data.decode()


def test_the_official_client_reads_and_writes(official: Any, pod: dict[str, Any]) -> None:
    v1 = client.CoreV1Api(official)
    made = v1.create_namespaced_pod("default", pod)
    assert made.metadata.uid
    assert made.metadata.creation_timestamp
    assert v1.read_namespaced_pod("p1", "default").spec.scheduler_name == "nobody"
    assert [found.metadata.name for found in v1.list_pod_for_all_namespaces(label_selector="app in (x,y)").items] == [
        "p1"
    ]
    v1.delete_namespaced_pod("p1", "default", grace_period_seconds=0)
    with pytest.raises(ApiException) as caught:
        v1.read_namespaced_pod("p1", "default")
    assert caught.value.status == 404


def test_the_dynamic_client_discovers(official: Any, pod: dict[str, Any]) -> None:
    pods = DynamicClient(official).resources.get(api_version="v1", kind="Pod")
    assert pods.create(body=pod, namespace="default").metadata.name == "p1"


def test_creation_answers_201_and_fills_in(api: Any, pod: dict[str, Any]) -> None:
    code, made = raw(api, "POST", PODS, pod)
    assert code == 201
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["restartPolicy"] == "Always"
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(made["metadata"])


@pytest.mark.parametrize(
    ("method", "path", "change", "code", "reason", "text"),
    [
        ("GET", f"{PODS}/missing", None, 404, "NotFound", 'pods "missing" not found'),
        (
            "POST",
            "/api/v1/namespaces/nowhere/pods",
            {"metadata": {"name": "p1"}},
            404,
            "NotFound",
            'namespaces "nowhere" not found',
        ),
        ("POST", PODS, {"spec": {"containers": []}}, 422, "Invalid", "spec.containers"),
        ("POST", PODS, {"metadata": {"name": "Not_A_Name"}}, 422, "Invalid", "metadata.name"),
        ("POST", PODS, {"metadata": {"name": "p1"}, "kind": "Node"}, 400, "BadRequest", "cannot be handled as a Pod"),
    ],
)
def test_refusals(
    api: Any, pod: dict[str, Any], method: str, path: str, change: Any, code: int, reason: str, text: str
) -> None:
    seen, answer = raw(api, method, path, None if change is None else {**pod, **change})
    assert (seen, answer["reason"], answer["kind"]) == (code, reason, "Status")
    assert text in answer["message"]


def test_a_second_create_is_a_conflict(kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Pod", pod)
    with pytest.raises(ApiError) as caught:
        kube.create("Pod", pod)
    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


def test_a_stale_replace_is_a_conflict(api: Any, pod: dict[str, Any]) -> None:
    _, first = raw(api, "POST", PODS, pod)
    label = {"metadata": {"labels": {"app": "y"}}}
    raw(api, "PATCH", f"{PODS}/p1", label, **{"Content-Type": "application/merge-patch+json"})
    code, answer = raw(api, "PUT", f"{PODS}/p1", first)
    assert (code, answer["reason"]) == (409, "Conflict")
    fresh = raw(api, "GET", f"{PODS}/p1")[1]
    assert raw(api, "PUT", f"{PODS}/p1", fresh)[0] == 200


def test_patch_kinds(api: Any, pod: dict[str, Any]) -> None:
    raw(api, "POST", PODS, pod)

    def patch(kind: str, body: Any) -> Any:
        code, answer = raw(api, "PATCH", f"{PODS}/p1", body, **{"Content-Type": f"application/{kind}+json"})
        assert code == 200, answer
        return answer

    assert patch("merge-patch", {"metadata": {"labels": {"app": None, "b": "1"}}})["metadata"]["labels"] == {"b": "1"}
    step = {"op": "test", "path": "/metadata/labels/b", "value": "1"}, {"op": "remove", "path": "/metadata/labels/b"}
    assert not patch("json-patch", step)["metadata"].get("labels")
    image = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    (container,) = patch("strategic-merge-patch", image)["spec"]["containers"]
    assert (container["name"], container["image"]) == ("c", "other")


def test_status_and_spec_are_apart(api: Any, pod: dict[str, Any]) -> None:
    raw(api, "POST", PODS, pod)
    both = {"status": {"phase": "Running"}, "metadata": {"labels": {"app": "y"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    assert raw(api, "PATCH", f"{PODS}/p1", both, **merge)[1]["status"]["phase"] == "Pending"
    answer = raw(api, "PATCH", f"{PODS}/p1/status", {"status": {"phase": "Running"}}, **merge)[1]
    assert answer["status"]["phase"] == "Running"


def test_a_pod_is_bound_once(api: Any, pod: dict[str, Any]) -> None:
    raw(api, "POST", PODS, pod)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p1"},
        "target": {"kind": "Node", "name": "n"},
    }
    assert raw(api, "POST", f"{PODS}/p1/binding", binding)[0] == 201
    bound = raw(api, "GET", f"{PODS}/p1")[1]
    assert bound["spec"]["nodeName"] == "n"
    assert [c["type"] for c in bound["status"]["conditions"] if c["status"] == "True"] == ["PodScheduled"]
    assert raw(api, "POST", f"{PODS}/p1/binding", binding)[0] == 409


def test_paging(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    for number in range(5):
        kube.create("Pod", {**pod, "metadata": {"name": f"p{number}", "namespace": "default"}})
    names, token, pages = [], "", 0
    while True:
        _, page = raw(api, "GET", f"{PODS}?limit=2&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
        token, pages = page["metadata"].get("continue", ""), pages + 1
        if not token:
            break
    assert (names, pages) == ([f"p{number}" for number in range(5)], 3)


def test_selectors(kube: KubeClient, pod: dict[str, Any]) -> None:
    for name, labels in (("a", {"tier": "x", "env": "1"}), ("b", {"tier": "y"}), ("c", {})):
        kube.create("Pod", {**pod, "metadata": {"name": name, "namespace": "default", "labels": labels}})

    def names(**selector: str) -> list[str]:
        return [found["metadata"]["name"] for found in kube.list("Pod", "default", **selector)]

    assert names(label_selector="tier=x") == ["a"]
    assert names(label_selector="tier!=x") == ["b", "c"]
    assert names(label_selector="tier in (x,y),env") == ["a"]
    assert names(label_selector="!tier") == ["c"]
    assert names(label_selector="tier notin (y)") == ["a", "c"]
    assert names(field_selector="metadata.name=b") == ["b"]
    assert names(field_selector="status.phase!=Pending") == []
    with pytest.raises(ApiError, match="400"):
        names(label_selector="tier in (")


def test_namespaces_take_their_objects_along(kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    kube.create("Pod", {**pod, "metadata": {"name": "p1", "namespace": "team"}})
    kube.delete("Namespace", "team")
    assert kube.list("Pod", "team") == []
    with pytest.raises(ApiError, match="404"):
        kube.get("Namespace", "team")


def test_a_collection_is_deleted_with_the_grace_that_was_asked_for(
    api: Any, kube: KubeClient, pod: dict[str, Any]
) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p1"},
        "target": {"kind": "Node", "name": "n"},
    }
    kube.create("Pod", pod)
    raw(api, "POST", f"{PODS}/p1/binding", binding)
    kube.delete_all("Pod", "default")
    (marked,) = kube.list("Pod", "default")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    kube.delete("Pod", "p1", "default", grace_seconds=0)
    kube.create("Pod", pod)
    raw(api, "POST", f"{PODS}/p1/binding", binding)
    kube.delete_all("Pod", "default", grace_seconds=0)
    assert kube.list("Pod", "default") == []


def test_dry_run_stores_nothing(kube: KubeClient, pod: dict[str, Any]) -> None:
    assert kube.create("Pod", pod, dry_run=True)["metadata"]["name"] == "p1"
    assert kube.list("Pod", "default") == []


def test_a_quota_is_counted_and_enforced(kube: KubeClient, pod: dict[str, Any]) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "2", "pods": "2"}},
    }  # fmt: skip
    kube.create("ResourceQuota", quota)
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    asking = {**pod, "spec": {**pod["spec"], "containers": [{"name": "c", "image": "i", "resources": limits}]}}
    kube.create("Pod", asking)
    with pytest.raises(ApiError, match=r"exceeded quota: q, requested: requests\.nvidia\.com/gpu=2") as caught:
        kube.create("Pod", {**asking, "metadata": {"name": "p2", "namespace": "default"}})
    assert caught.value.code == 403


def test_what_is_not_implemented_says_so(api: Any) -> None:
    code, answer = raw(api, "POST", f"{PODS}/p1/portforward")
    assert (code, "portforward" in answer["message"]) == (501, True)
