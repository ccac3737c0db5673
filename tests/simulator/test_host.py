"""The embedded cluster as its parent sees it: a process with lines in and out, and an API server."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_hami.contract.metrics import card_usage, pod_usage
from pytest_hami.contract.metrics import parse as parse_metrics

PODS = "/api/v1/namespaces/default/pods"
LIMIT = 20
DEVICE = {
    "id": "GPU-1", "index": 0, "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100-SXM4-40GB",
    "numa": 0, "mode": "hami-core", "health": True,
}  # fmt: skip
NODE = {"name": "n1", "labels": {"pool": "a"}, "annotations": {}, "taints": [], "devices": [DEVICE]}


class Cluster:
    """The child process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.ready: dict[str, Any] = {}

    def say(self, message: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        assert ready, f"no answer to {message} within {LIMIT} s"
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def command(self, op: str, **arguments: Any) -> dict[str, Any]:
        answer = self.say({"id": 7, "op": op, **arguments})
        assert answer["id"] == 7
        return answer

    def http(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.ready["api_url"] + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return json.loads(response.read())

    def wait(self, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Watch a collection until an object fulfils the condition."""
        found = self.http("GET", path)
        for item in found["items"]:
            if condition(item):
                return dict(item)
        version = found["metadata"]["resourceVersion"]
        url = f"{self.ready['api_url']}{path}?watch=true&resourceVersion={version}&timeoutSeconds={LIMIT}"
        last: object = found["items"]
        with urllib.request.urlopen(url, timeout=LIMIT + 5) as stream:
            for line in stream:
                last = json.loads(line)["object"]
                if isinstance(last, dict) and condition(last):
                    return last
        raise AssertionError(f"not seen at {path} within {LIMIT} s; the last object was {last}")

    def metrics(self) -> str:
        with urllib.request.urlopen(self.ready["metrics_url"], timeout=LIMIT) as response:
            return str(response.read().decode())

    def pod(self, name: str, **limits: int) -> dict[str, Any]:
        container = {
            "name": "c",
            "image": "busybox",
            "resources": {"limits": {f"nvidia.com/{key}": value for key, value in limits.items()}},
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        return dict(self.http("POST", PODS, body))

    def reasons(self, pod: str) -> set[str]:
        events = self.http("GET", "/api/v1/namespaces/default/events")["items"]
        return {event["reason"] for event in events if event["involvedObject"]["name"] == pod}


@contextmanager
def child() -> Iterator[Cluster]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_hami.simulator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Cluster(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with child() as made:
        made.ready = made.say({"release": "2.10.0"})
        assert made.ready["ready"], made.ready
        yield made


def succeeded(name: str) -> Callable[[dict[str, Any]], bool]:
    def condition(pod: dict[str, Any]) -> bool:
        notes = pod["metadata"].get("annotations", {})
        done = notes.get("hami.io/bind-phase") == "success" and pod["status"].get("phase") == "Running"
        return bool(pod["metadata"]["name"] == name and done)

    return condition


def test_a_pod_goes_all_the_way(cluster: Cluster) -> None:
    assert set(cluster.ready["versions"]) == {"apiserver", "hami-scheduler", "kube-scheduler", "node"}
    assert cluster.command("nodes", nodes=[NODE])["ok"]
    made = cluster.pod("p1", gpu=1, gpumem=4096, gpucores=25)
    assert made["spec"]["schedulerName"] == "hami-scheduler"
    pod = cluster.wait(PODS, succeeded("p1"))
    notes = pod["metadata"]["annotations"]
    assert pod["spec"]["nodeName"] == notes["hami.io/vgpu-node"] == "n1"
    assert notes["hami.io/vgpu-devices-allocated"] == "GPU-1,NVIDIA,4096,25:;"
    assert notes["hami.io/vgpu-devices-to-allocate"] == ";;"
    assert cluster.reasons("p1") >= {"FilteringSucceed", "BindingSucceed"}
    assert pod_usage(parse_metrics(cluster.metrics()))["default", "p1"] == {"GPU-1": (4096, 25)}
    node = cluster.http("GET", "/api/v1/nodes/n1")
    assert "hami.io/mutex.lock" not in node["metadata"]["annotations"]

    assert cluster.command("restart", part="hami-scheduler") == {"id": 7, "ok": True, "result": None}
    assert card_usage(parse_metrics(cluster.metrics()))["n1", "GPU-1"].memory == 4096
    assert cluster.command("restart", part="node")["ok"]

    cluster.pod("p2", gpu=1, gpumem=36865)
    refused = cluster.wait(PODS, lambda pod: pod["metadata"]["name"] == "p2" and "conditions" in pod["status"])
    (condition,) = (found for found in refused["status"]["conditions"] if found["type"] == "PodScheduled")
    assert "1/1 CardInsufficientMemory" in condition["message"]
    assert cluster.command("stop") == {"id": 7, "ok": True, "result": None}
    assert cluster.process.wait(timeout=LIMIT) == 0


def test_a_pod_without_cards_is_left_to_the_default_scheduler(cluster: Cluster) -> None:
    cluster.command("nodes", nodes=[NODE | {"devices": []}])
    made = cluster.pod("p1")
    assert made["spec"]["schedulerName"] == "default-scheduler"
    pod = cluster.wait(PODS, lambda pod: pod["status"].get("phase") == "Running")
    assert not pod["metadata"].get("annotations")


def test_reconfiguration_reaches_webhook_and_kube_scheduler(cluster: Cluster) -> None:
    cluster.command("nodes", nodes=[NODE])
    config = {"overwriteEnv": True, "resourceMemoryName": "nvidia.com/mib"}
    assert cluster.command("reconfigure", part="hami-scheduler", device_config=config, scheduler_flags={})["ok"]
    (container,) = cluster.pod("plain")["spec"]["containers"]
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]
    cluster.pod("p1", gpu=1, mib=1000)
    pod = cluster.wait(PODS, succeeded("p1"))
    assert pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] == "GPU-1,NVIDIA,1000,0:;"

    assert cluster.command("reconfigure", part="node", node="n1", config={"devicememoryscaling": 2.0})["ok"]
    assert '"devmem":81920' in json.dumps(cluster.http("GET", "/api/v1/nodes/n1")).replace('\\"', '"')
    assert cluster.command("remove_nodes", nodes=["n1"])["ok"]
    with pytest.raises(urllib.error.HTTPError) as missing:
        cluster.http("GET", "/api/v1/nodes/n1")
    missing.value.close()


def test_the_webhook_is_registered_as_the_chart_does(cluster: Cluster) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
    (webhook,) = cluster.http("GET", path)["webhooks"]
    assert (webhook["name"], webhook["failurePolicy"]) == ("vgpu.hami.io", "Ignore")
    assert webhook["objectSelector"] == {
        "matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]
    }
    assert cluster.http("GET", "/api/v1/namespaces/hami-system")["metadata"]["name"] == "hami-system"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"op": "dance"}, "unknown operation 'dance'; known are register, restart"),
        (
            {"op": "restart", "part": "gpu"},
            "no simulated part 'gpu' here; expected one of hami-scheduler, kube-apiserver, node",
        ),
        ({"op": "reconfigure", "part": "gpu"}, "expected hami-scheduler, kube-scheduler or node"),
        ({"op": "reconfigure", "part": "hami-scheduler", "device_config": {"colour": 1}}, "colour"),
        ({"op": "nodes"}, "argument 'nodes' is missing"),
        ([], "expected a JSON object"),
    ],
)
def test_commands_that_cannot_be_done_are_answered(message: object, text: str) -> None:
    with child() as made:
        parts = ["apiserver", "hami-scheduler", "node"]
        assert made.say({"parts": parts})["ready"]
        answer = made.say(message)
        assert answer["ok"] is False
        assert text in answer["error"]
        assert made.say({"id": 1, "op": "restart", "part": "hami-scheduler"})["ok"]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"mutants": ["memory-off-by-two"]}, "unknown mutant 'memory-off-by-two'; expected one such as memory-off"),
        ({"parts": ["apiserver", "gpu"]}, "unknown part 'gpu'"),
        ({"parts": ["node"]}, "expected either the part apiserver or an api,"),
        ({"release": "new"}, "expected a release such as 2.10.0"),
        ({"device_config": {"colour": 1}}, "colour"),
        ({"scheduler_flags": {"colour": 1}}, "unknown scheduler flag 'colour'"),
        ({"colour": 1}, "unknown key 'colour'"),
        ([], "expected a JSON object"),
    ],
)
def test_a_configuration_that_cannot_run_is_one_clear_line(config: object, text: str) -> None:
    with child() as made:
        answer = made.say(config)
        assert answer["ready"] is False
        assert text in answer["error"]
        assert "\n" not in answer["error"]
        assert made.process.wait(timeout=LIMIT) == 1


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken, child() as made:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = made.say({"port": port})
        assert answer["ready"] is False
        assert f"127.0.0.1:{port}" in answer["error"]
        assert "in use" in answer["error"]
        assert made.process.wait(timeout=LIMIT) == 1


def test_the_end_of_standard_input_ends_everything() -> None:
    with child() as made:
        assert made.say({"parts": ["apiserver", "hami-scheduler"]})["ready"]
        assert made.process.stdin is not None
        made.process.stdin.close()
        assert made.process.wait(timeout=LIMIT) == 0
