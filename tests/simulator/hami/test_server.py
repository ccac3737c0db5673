"""The HTTP contract of the HAMi scheduler (HAMi 2.10.0, pkg/scheduler/routes/route.go)."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from pytest_hami.contract.metrics import card_usage
from pytest_hami.contract.metrics import parse as parse_metrics
from pytest_hami.contract.register import Device, encode
from pytest_hami.simulator.apiserver import ApiServer
from pytest_hami.simulator.client import Api, ApiError
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import SchedulerConfig
from pytest_hami.simulator.hami.server import HamiServer

CARD = Device(id="", count=10, devmem=40960, devcore=100, type="NVIDIA A100-SXM4-40GB", mode="hami-core", health=True)
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Stack:
    """An API server, a HAMi scheduler and clients of both."""

    apiserver: ApiServer
    hami: HamiServer
    api: Api
    session: aiohttp.ClientSession

    async def node(self, name: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name},
                "annotations": {"hami.io/node-nvidia-register": encode([replace(CARD, id=f"GPU-{name}")])},
            },
            "status": {"allocatable": {"nvidia.com/gpu": "10"}, "capacity": {"nvidia.com/gpu": "10"}},
        }
        await self.api.create("/api/v1/nodes", body)
        await until(lambda: f"GPU-{name}" in self.hami.model.metrics())

    async def pod(self, name: str, **limits: int) -> dict[str, Any]:
        resources = {"limits": {f"nvidia.com/{key}": str(value) for key, value in limits.items()}} if limits else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulerName": "hami-scheduler",
                "containers": [{"name": "c", "image": "busybox", "resources": resources}],
            },
        }
        made = await self.api.create(PODS, body)
        await until(lambda: self.hami.model.known_pod("default", name) is not None)
        return made

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        url = f"{self.hami.extender_url}/{verb}"
        async with self.session.post(url, data=data, ssl=self.hami.client_context) as response:
            return response.status, json.loads(await response.read())

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        metadata = pod["metadata"]
        args = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}
        status, answer = await self.post("bind", args)
        assert status == 200
        assert list(answer) == ["Error"]
        return str(answer["Error"])

    async def events(self, pod: str) -> list[tuple[str, str]]:
        found = await self.api.list("/api/v1/namespaces/default/events")
        return [
            (event["reason"], event["message"]) for event in found["items"] if event["involvedObject"]["name"] == pod
        ]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


def play(scenario: Callable[[Stack], Awaitable[None]], *, rules: Rules | None = None, **flags: Any) -> None:
    async def run() -> None:
        apiserver = ApiServer()
        await apiserver.start()
        hami = HamiServer(apiserver.url, SchedulerConfig.from_flags({}, flags), rules)
        try:
            await hami.start()
            async with aiohttp.ClientSession() as session:
                await scenario(Stack(apiserver, hami, Api(apiserver.url, session), session))
        finally:
            await hami.stop()
            await apiserver.stop()

    asyncio.run(run())


def answer(**values: Any) -> dict[str, Any]:
    empty = {"Nodes": None, "NodeNames": None, "FailedNodes": None, "FailedAndUnresolvableNodes": None, "Error": ""}
    return empty | values


def test_filter_and_bind_leave_annotations_events_and_a_lock() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=4096, gpucores=25)
        assert await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]}) == (200, answer(NodeNames=["n1"]))
        stored = await stack.api.get(f"{PODS}/p1")
        notes = stored["metadata"]["annotations"]
        assert notes["hami.io/vgpu-devices-allocated"] == "GPU-n1,NVIDIA,4096,25:;"
        assert stored["metadata"]["labels"]["hami.io/vgpu-node"] == "n1"
        text = "find fit node(n1), 0 nodes not fit, 1 nodes fit(n1:0.00)"
        assert await stack.events("p1") == [("FilteringSucceed", text)]

        assert await stack.bind(pod, "n1") == ""
        stored = await stack.api.get(f"{PODS}/p1")
        assert stored["spec"]["nodeName"] == "n1"
        assert stored["metadata"]["annotations"]["hami.io/bind-phase"] == "allocating"
        lock = (await stack.api.get("/api/v1/nodes/n1"))["metadata"]["annotations"]["hami.io/mutex.lock"]
        assert lock.endswith(",default,p1")
        await stack.hami.stop()
        assert ("BindingSucceed", "Successfully binding node [n1] to default/p1") in await stack.events("p1")

    play(scenario)


def test_a_refusal_names_the_reason_before_the_answer() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=40961)
        expected = answer(FailedNodes={"n1": "1/1 CardInsufficientMemory"})
        assert await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]}) == (200, expected)
        refusal = [
            ("FilteringFailed", "1 nodes CardInsufficientMemory(n1)"),
            ("FilteringFailed", "no available node, 1 nodes do not meet"),
        ]
        assert sorted(await stack.events("p1")) == refusal
        await stack.post("filter", {"pod": pod, "nodenames": ["n1"]})
        assert sorted(await stack.events("p1")) == refusal, "an equal event raises the count"
        found = await stack.api.list("/api/v1/namespaces/default/events")
        assert {event["count"] for event in found["items"]} == {2}

    play(scenario)


def test_answers_to_bodies_that_are_no_arguments() -> None:
    async def scenario(stack: Stack) -> None:
        assert await stack.post("filter", {"NodeNames": ["n1"]}) == (200, answer(Error="extender args missing pod"))
        huge = json.dumps({"Pod": {}, "NodeNames": ["n" * (1 << 20)]}).encode()
        assert await stack.post("filter", huge) == (200, answer(Error="unexpected EOF"))
        status, found = await stack.post("filter", b"{")
        assert (status, found["NodeNames"]) == (200, None)
        assert found["Error"].startswith("invalid JSON")
        status, found = await stack.post("webhook", b"{}")
        assert (status, found["response"]["allowed"], found["response"]["status"]["code"]) == (200, False, 400)

    play(scenario)


def test_methods_paths_and_probes() -> None:
    async def scenario(stack: Stack) -> None:
        async def status(method: str, path: str) -> int:
            url, context = stack.hami.extender_url + path, stack.hami.client_context
            async with stack.session.request(method, url, ssl=context) as response:
                return response.status

        assert [await status("GET", path) for path in ("/healthz", "/readyz")] == [200, 200]
        assert await status("GET", "/filter") == 405
        assert await status("POST", "/prioritize") == 404
        async with stack.session.get(stack.hami.metrics_url) as response:
            assert response.status == 200
            assert response.content_type == "text/plain"
            assert "hami_build_info" in await response.text()

    play(scenario)


def test_neither_nodes_nor_names_drops_the_connection_and_the_reservation() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=4096)
        await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]})
        assert usage(stack, "n1") == 4096
        with pytest.raises(aiohttp.ClientError):
            await stack.post("filter", {"Pod": pod})
        assert 'pod="p1"' not in stack.hami.model.metrics()
        cpu = await stack.pod("p2")
        assert await stack.post("filter", {"Pod": cpu}) == (200, answer())

    play(scenario)


def usage(stack: Stack, node: str) -> int:
    stack.hami.model.register()
    return card_usage(parse_metrics(stack.hami.model.metrics()))[node, f"GPU-{node}"].memory


def test_full_nodes_are_a_simulation_without_traces() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        node = await stack.api.get("/api/v1/nodes/n1")
        bare = {"metadata": {"name": "n2"}}
        pod = await stack.pod("p1", gpu=1, gpumem=4096)
        status, found = await stack.post("filter", {"Pod": pod, "Nodes": {"items": [node, bare]}})
        assert status == 200
        assert [item["metadata"]["name"] for item in found["Nodes"]["items"]] == ["n1"]
        assert found["FailedNodes"] == {"n2": "node unregistered"}
        assert await stack.events("p1") == []
        assert usage(stack, "n1") == 0

    play(scenario)


def test_a_pod_that_cannot_be_patched_gives_its_room_back() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=4096)
        ghost = pod | {"metadata": pod["metadata"] | {"name": "p9", "uid": "u9"}}
        status, found = await stack.post("filter", {"Pod": ghost, "NodeNames": ["n1"]})
        assert (status, found) == (200, answer(Error='pods "p9" not found'))
        assert usage(stack, "n1") == 0
        assert await stack.events("p9") == [("FilteringFailed", 'pods "p9" not found')]

    play(scenario)


def test_bind_refusals() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        first, second = await stack.pod("p1", gpu=1, gpumem=1), await stack.pod("p2", gpu=1, gpumem=1)
        for pod in (first, second):
            await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]})
        assert await stack.bind(first, "n1") == ""
        held = "node n1 has been locked within 5m0s: node lock contention"
        assert await stack.bind(second, "n1") == held
        assert ("BindingFailed", held) in await stack.events("p2")
        assert usage(stack, "n1") == 2, "the reservation stays"

        assert await stack.bind(second, "n9") == 'node "n9" not found'
        assert ("BindingFailed", "failed to get node n9") in await stack.events("p2")
        ghost = {"metadata": {"name": "p9", "uid": "u9"}}
        assert await stack.bind(ghost, "n1") == 'pod "p9" not found'

        await stack.api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 0})
        await until(lambda: stack.hami.model.known_pod("default", "p1") is None)
        assert await stack.bind(second, "n1") == "", "a lock whose owner is gone is free"

    play(scenario)


def test_a_malformed_lock_blocks_and_a_failed_bind_releases_its_own() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=1)
        await stack.api.merge_patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"hami.io/mutex.lock": "a,b"}}})
        assert await stack.bind(pod, "n1") == "malformed lock annotation: expected 3 parts, got 2 from a,b"
        await stack.api.merge_patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"hami.io/mutex.lock": None}}})
        assert await stack.bind(pod, "n1") == ""
        again = await stack.bind(pod, "n1")
        assert "already" in again
        node = await stack.api.get("/api/v1/nodes/n1")
        assert "hami.io/mutex.lock" not in node["metadata"]["annotations"]

    play(scenario)


def test_the_webhook_answers_with_a_patch_or_a_denial() -> None:
    async def scenario(stack: Stack) -> None:
        def review(containers: list[dict[str, Any]]) -> dict[str, Any]:
            pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, "schedulerName": "default-scheduler"}}
            return {
                "apiVersion": "admission.k8s.io/v1beta1",
                "kind": "AdmissionReview",
                "request": {"uid": "r1", "namespace": "default", "object": pod},
            }

        asking = {"name": "c", "resources": {"limits": {"nvidia.com/gpumem": "4096"}}}
        status, found = await stack.post("webhook", review([asking]))
        assert status == 200
        assert (found["kind"], found["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1beta1")
        response = found["response"]
        assert (response["uid"], response["allowed"], response["patchType"]) == ("r1", True, "JSONPatch")
        paths = {operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))}
        assert "/spec/schedulerName" in paths

        status, found = await stack.post("webhook", review([]))
        assert found["response"]["status"] | {"metadata": {}} == {
            "metadata": {},
            "code": 403,
            "reason": "Forbidden",
            "message": "pod has no containers",
        }

    play(scenario)


def test_a_restart_reads_everything_back_on_the_same_ports() -> None:
    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=4096)
        await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]})
        await stack.bind(pod, "n1")
        urls = (stack.hami.extender_url, stack.hami.metrics_url)
        old = stack.hami.model
        await stack.hami.restart()
        assert stack.hami.model is not old
        assert (stack.hami.extender_url, stack.hami.metrics_url) == urls
        assert card_usage(parse_metrics(stack.hami.model.metrics()))["n1", "GPU-n1"].memory == 4096

    play(scenario)


def test_rules_reach_the_model_and_survive_a_restart() -> None:
    class Generous(Rules):
        def memory_fits(self, total: int, used: int, asked: int) -> bool:
            return True

    async def scenario(stack: Stack) -> None:
        await stack.node("n1")
        pod = await stack.pod("p1", gpu=1, gpumem=99999)
        await stack.hami.restart()
        assert await stack.post("filter", {"Pod": pod, "NodeNames": ["n1"]}) == (200, answer(NodeNames=["n1"]))

    play(scenario, rules=Generous())


def test_an_api_server_that_is_not_there_is_an_error() -> None:
    async def run() -> None:
        hami = HamiServer("http://127.0.0.1:9", SchedulerConfig())
        with pytest.raises(ApiError, match=r"127\.0\.0\.1:9"):
            await hami.start()

    asyncio.run(run())
