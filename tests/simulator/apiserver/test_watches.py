"""Watches: from a version, with selectors, ended and expired."""

from __future__ import annotations

import json
from typing import Any

import urllib3

from pytest_hami.kube.client import KubeClient

PODS = "/api/v1/namespaces/default/pods"


def watched(api: Any, query: str, path: str = PODS) -> list[tuple[str, str]]:
    """Return what a watch of one second or less shows."""
    answer = urllib3.request("GET", f"{api.server.url}{path}?watch=1&timeoutSeconds=0.3&{query}", retries=False)
    events = [json.loads(line) for line in answer.data.splitlines()]
    return [(event["type"], event["object"].get("metadata", {}).get("name", str(event["object"].get("code", ""))))
            for event in events]  # fmt: skip


def test_from_a_version_nothing_old_is_shown(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Pod", pod)
    version = kube.list_raw("Pod")["metadata"]["resourceVersion"]
    kube.patch("Pod", "p1", {"metadata": {"labels": {"a": "1"}}}, "default")
    kube.delete("Pod", "p1", "default", grace_seconds=0)
    assert watched(api, f"resourceVersion={version}") == [("MODIFIED", "p1"), ("DELETED", "p1")]


def test_without_a_version_what_is_there_comes_first(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Pod", pod)
    assert watched(api, "") == [("ADDED", "p1")]


def test_an_object_enters_and_leaves_a_selector(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    version = kube.list_raw("Pod")["metadata"]["resourceVersion"]
    kube.create("Pod", pod)
    for value in ("y", "x", "y"):
        kube.patch("Pod", "p1", {"metadata": {"labels": {"app": value}}}, "default")
    seen = watched(api, f"resourceVersion={version}&labelSelector=app%3Dy")
    assert seen == [("ADDED", "p1"), ("DELETED", "p1"), ("ADDED", "p1")]


def test_a_version_that_is_too_old_is_an_error_410_in_the_stream(
    api: Any, kube: KubeClient, pod: dict[str, Any]
) -> None:
    kube.create("Pod", pod)
    table = api.server.store.table(api.server.registry.find("", "v1", "pods").storage)
    table.forgotten = api.server.store.version
    assert watched(api, "resourceVersion=1") == [("ERROR", "410")]


def test_cluster_scoped_watch(api: Any, kube: KubeClient) -> None:
    kube.create("Node", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert watched(api, "", "/api/v1/nodes") == [("ADDED", "n1")]
