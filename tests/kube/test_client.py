"""The client: what is retried, what is not, and what hostile answers become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from pytest_hami.kube import client as client_module
from pytest_hami.kube.client import KubeClient
from pytest_hami.kube.errors import ApiError, HostileInput, Unreachable


def once(answer: Callable[[], Any], method: str, part: str) -> tuple[Callable[[web.Request], Any], list[str]]:
    """Return a fault that answers the first matching request, and the list of requests that it saw."""
    seen: list[str] = []

    def fault(request: web.Request) -> Any:
        if request.method != method or part not in request.path:
            return None
        seen.append(request.path)
        return answer() if len(seen) == 1 else None

    return fault, seen


def status(code: int, reason: str) -> Callable[[], web.Response]:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"}
    return lambda: web.json_response(body, status=code)


@pytest.mark.parametrize(
    "answer", [status(429, "TooManyRequests"), status(503, "ServiceUnavailable"), lambda: "reset"],
    ids=["429", "503", "reset"],
)  # fmt: skip
def test_an_idempotent_call_is_repeated(api: Any, kube: KubeClient, answer: Callable[[], Any]) -> None:
    fault, seen = once(answer, "GET", "/nodes")
    api.server.faults.append(fault)
    assert kube.list("Node") == []
    assert len(seen) == 2


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
def test_an_answer_that_will_not_change_is_not_repeated(api: Any, kube: KubeClient, code: int) -> None:
    fault, seen = once(status(code, "Whatever"), "GET", "/nodes")
    api.server.faults.append(fault)
    with pytest.raises(ApiError) as caught:
        kube.list("Node")
    assert (caught.value.code, len(seen)) == (code, 1)


def test_a_create_is_not_repeated_on_an_error(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    fault, seen = once(status(503, "ServiceUnavailable"), "POST", "/pods")
    api.server.faults.append(fault)
    with pytest.raises(ApiError, match="503"):
        kube.create("Pod", pod)
    assert len(seen) == 1


def test_a_create_that_was_put_off_is_sent_again(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    fault, seen = once(status(429, "TooManyRequests"), "POST", "/pods")
    api.server.faults.append(fault)
    assert kube.create("Pod", pod)["metadata"]["name"] == "p1"
    assert len(seen) == 2


def test_no_proxy_is_asked_for_loopback(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    client = KubeClient.connect(api.kubeconfig)
    assert client.list("Node") == []
    client.close()


def test_a_create_whose_connection_breaks_before_it_arrives_is_sent_again(
    api: Any, kube: KubeClient, pod: dict[str, Any]
) -> None:
    fault, seen = once(lambda: "reset", "POST", "/pods")
    api.server.faults.append(fault)
    assert kube.create("Pod", pod)["metadata"]["name"] == "p1"
    assert len(seen) == 2


def test_a_create_whose_answer_is_lost_is_found_and_not_made_twice(
    api: Any, kube: KubeClient, pod: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = KubeClient._send
    lost: list[str] = []

    def lose_the_first_answer(self: KubeClient, method: str, where: str, *rest: Any, **named: Any) -> Any:
        answer = send(self, method, where, *rest, **named)
        if method == "POST" and not lost:
            lost.append(where)
            raise Unreachable("POST: connection reset")
        return answer

    monkeypatch.setattr(KubeClient, "_send", lose_the_first_answer)
    made = kube.create("Pod", pod)
    assert [found["metadata"]["uid"] for found in kube.list("Pod", "default")] == [made["metadata"]["uid"]]


def test_somebody_elses_object_is_not_taken_for_ours(api: Any, kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Pod", pod)
    fault, _ = once(lambda: "reset", "POST", "/pods")
    api.server.faults.append(fault)
    with pytest.raises(ApiError, match="somebody else's"):
        kube.create("Pod", pod)


def test_a_server_that_is_not_there_is_one_line(api: Any, kube: KubeClient) -> None:
    api.stop()
    with pytest.raises(Unreachable, match=r"GET http://127\.0\.0\.1:\d+/api/v1/nodes: .*refused") as caught:
        kube.list("Node")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[1]", "expected a JSON object"),
        (b"{", "not usable JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not usable JSON"),
    ],
    ids=["array", "torn", "deep"],
)
def test_hostile_json_is_refused(api: Any, kube: KubeClient, body: bytes, text: str) -> None:
    api.server.faults.append(lambda request: web.Response(body=body, content_type="application/json"))
    with pytest.raises(HostileInput, match=text):
        kube.list("Node")


def test_invalid_utf8_is_replaced(api: Any, kube: KubeClient) -> None:
    body = b'{"items":[{"metadata":{"name":"\xff\xfe"}}],"metadata":{"resourceVersion":"1"}}'
    api.server.faults.append(lambda request: web.Response(body=body, content_type="application/json"))
    assert kube.list("Node")[0]["metadata"]["name"] == "\ufffd\ufffd"


def test_too_much_is_refused(api: Any, kube: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BYTES", 100)
    with pytest.raises(HostileInput, match="more than 100"):
        kube.list("Namespace")


def test_names_are_quoted(kube: KubeClient) -> None:
    with pytest.raises(ApiError) as caught:
        kube.get("Pod", "../../nodes?x=1", "default")
    assert caught.value.code in {404, 501}
    assert "%2F" in caught.value.target


def test_patches_apply_and_delete(kube: KubeClient, pod: dict[str, Any]) -> None:
    kube.create("Pod", pod)
    assert (
        kube.patch("Pod", "p1", {"metadata": {"labels": {"app": "y"}}}, "default")["metadata"]["labels"]["app"] == "y"
    )
    step = [{"op": "replace", "path": "/metadata/labels/app", "value": "z"}]
    assert kube.patch("Pod", "p1", step, "default", type="json")["metadata"]["labels"]["app"] == "z"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"},
        "data": {"a": "1"},
    }
    assert kube.apply(body)["data"] == {"a": "1"}
    assert kube.apply({**body, "data": {"a": "2"}})["data"] == {"a": "2"}
    kube.delete("Pod", "p1", "default", grace_seconds=0)
    kube.delete("Pod", "p1", "default")
    with pytest.raises(ApiError, match="404"):
        kube.delete("Pod", "p1", "default", missing_ok=False)


@pytest.mark.parametrize("given", ["/nowhere/kubeconfig", {"clusters": []}], ids=["no-file", "no-context"])
def test_a_kubeconfig_that_cannot_be_used_is_one_line(given: Any) -> None:
    with pytest.raises(Unreachable, match="kubeconfig cannot be used") as caught:
        KubeClient.connect(given)
    assert "\n" not in str(caught.value)
