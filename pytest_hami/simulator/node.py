"""A model of kubelet and HAMi's device plugin for all simulated nodes; it acts only through the API."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp

from pytest_hami.contract import register
from pytest_hami.contract.register import Device
from pytest_hami.simulator import shell
from pytest_hami.simulator.allocate import AllocateError, Answer, NodeConfig, NodeRules, allocate, asks_for_cards
from pytest_hami.simulator.client import Api, ApiError, Informer
from pytest_hami.simulator.kubelet import KubeletServer, NoContainer
from pytest_hami.simulator.shell import Output

REGISTER = "hami.io/node-nvidia-register"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_PHASE = "hami.io/bind-phase"
LOCK = "hami.io/mutex.lock"
HOLD = "pytest-hami.io/hold-termination"
BASE_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class NodeAgent:
    """The nodes that it created, their cards, and the pods bound to them."""

    def __init__(self, api_url: str, *, rules: NodeRules | None = None, release: str = "2.10.0") -> None:
        self._url = api_url
        self._rules = rules or NodeRules()
        self._release = release
        self._cards: dict[str, tuple[Device, ...]] = {}
        self._configs: dict[str, NodeConfig] = {}
        self._answers: dict[tuple[str, str], Answer] = {}
        self._handled: set[str] = set()
        self._ended: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kubelet = KubeletServer(self.run)

    async def start(self) -> None:
        """Serve as kubelet and watch pods. Raises ApiError."""
        self._session = aiohttp.ClientSession()
        self._api = Api(self._url, self._session)
        await self._kubelet.start()
        self._pods = Informer(self._api, "/api/v1/pods", self._pod_event)
        await self._pods.start()

    async def stop(self) -> None:
        """Stop; pods and nodes stay as they are in the API."""
        await self._pods.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._kubelet.stop()
        await self._session.close()

    async def nodes(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Create nodes, each in one POST with annotation and allocatable. Raises ApiError, RegisterError."""
        for node in nodes:
            name = str(node["name"])
            self._cards[name] = tuple(Device(**device) for device in node.get("devices") or [])
            self._configs[name] = NodeConfig()
            await self._api.create("/api/v1/nodes", self._object(node))

    async def remove_nodes(self, nodes: Iterable[str]) -> None:
        """Delete nodes. Raises ApiError, KeyError for a node that is not ours."""
        for name in nodes:
            del self._cards[name]
            del self._configs[name]
            await self._api.delete(f"/api/v1/nodes/{name}")

    async def reconfigure(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart the plugin of one node with another configuration. Raises KeyError, ValueError, ApiError."""
        if node not in self._cards:
            raise KeyError(node)
        self._configs[node] = NodeConfig.from_dict(config)
        await self._register(node)

    async def restart(self) -> None:
        """Restart the plugin of every node: it registers again and serves what is left."""
        for node, cards in self._cards.items():
            if cards:
                await self._register(node)
        if not self._rules.restart_keeps_containers():
            for uid, pod in list(self._pods.items.items()):
                if any(key[0] == uid for key in self._answers):
                    await self._set_status(pod, self._running_status(pod, restarts=1))

    def run(self, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Output:
        """Answer a command in a container. Raises NoContainer."""
        found = next(
            (
                p
                for p in self._pods.items.values()
                if (p["metadata"]["namespace"], p["metadata"]["name"]) == (namespace, pod)
            ),
            None,
        )
        if found is None or found["spec"].get("nodeName") not in self._cards:
            raise NoContainer(f"no pod {namespace}/{pod} on a simulated node")
        names = [c["name"] for c in found["spec"]["containers"]]
        if container not in names or found["status"].get("phase") != "Running":
            raise NoContainer(f"container not found ({container!r}): pod {pod} is {found['status'].get('phase')}")
        output = shell.run(argv, self._view(found, container), self._rules)
        if output.ends is not None:
            self._spawn(self._end(found, output.ends))
        return output

    def _view(self, pod: Mapping[str, Any], container: str) -> shell.View:
        node = pod["spec"]["nodeName"]
        answer = self._answers.get((pod["metadata"]["uid"], container))
        spec = next(c for c in pod["spec"]["containers"] if c["name"] == container)
        own = {entry["name"]: entry.get("value", "") for entry in spec.get("env") or []}
        # kubelet appends the pod's own variables behind the plugin's, so they win.
        env = BASE_ENV | {"HOSTNAME": pod["metadata"]["name"]} | dict(answer.env if answer else {}) | own
        cards = {device.id: device for device in self._cards[node]}
        return shell.View(env, answer.mounts if answer else (), answer.shares if answer else (), cards)

    def _registered(self, node: str) -> tuple[Device, ...]:
        return tuple(self._rules.register(device, self._configs[node]) for device in self._cards[node])

    def _object(self, node: Mapping[str, Any]) -> dict[str, Any]:
        name = str(node["name"])
        devices = self._registered(name)
        notes = dict(node.get("annotations") or {})
        resources = {"cpu": "64", "memory": "256Gi", "pods": "500", "ephemeral-storage": "100Gi"}
        if devices:
            notes[REGISTER] = register.encode(devices)
            resources["nvidia.com/gpu"] = str(self._rules.allocatable(devices))
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated",
                     "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": notes,
                         "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(node.get("labels") or {})}},
            "spec": {"taints": list(node.get("taints") or [])} if node.get("taints") else {},
            "status": {
                "capacity": resources, "allocatable": resources, "conditions": [condition],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet.port}},
                "nodeInfo": {"kubeletVersion": "v1.36.3+simulated", "operatingSystem": "linux", "architecture": "amd64",
                             "containerRuntimeVersion": "none", "kernelVersion": "none", "osImage": "simulated",
                             "machineID": name, "systemUUID": name, "bootID": name, "kubeProxyVersion": ""},
            },
        }  # fmt: skip

    async def _register(self, node: str) -> None:
        devices = self._registered(node)
        shares = str(self._rules.allocatable(devices))
        path = f"/api/v1/nodes/{node}"
        await self._api.merge_patch(path, {"metadata": {"annotations": {REGISTER: register.encode(devices)}}})
        resources = {"nvidia.com/gpu": shares}
        await self._api.merge_patch(f"{path}/status", {"status": {"capacity": resources, "allocatable": resources}})

    def _pod_event(self, kind: str, pod: dict[str, Any]) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if kind == "DELETED":
            self._handled.discard(uid)
            self._ended.discard(uid)
            for key in [key for key in self._answers if key[0] == uid]:
                del self._answers[key]
            return
        if node not in self._cards:
            return
        if pod["metadata"].get("deletionTimestamp"):
            if (pod["metadata"].get("annotations") or {}).get(HOLD) != "true" and uid not in self._ended:
                self._ended.add(uid)
                self._spawn(self._remove(pod))
        elif uid not in self._handled and pod["status"].get("phase") == "Pending":
            self._handled.add(uid)
            self._spawn(self._admit(pod))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove(self, pod: Mapping[str, Any]) -> None:
        with contextlib.suppress(ApiError):
            await self._api.delete(_path(pod), {"gracePeriodSeconds": 0})

    async def _admit(self, pod: dict[str, Any]) -> None:
        node = pod["spec"]["nodeName"]
        async with self._locks.setdefault(node, asyncio.Lock()):
            try:
                failure = await self._serve(pod)
                if failure:
                    await self._set_status(pod, {
                        "phase": "Failed", "reason": "UnexpectedAdmissionError",
                        "message": "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = "
                        f"{failure}, which is unexpected",
                    })  # fmt: skip
                else:
                    await self._set_status(pod, self._running_status(pod, restarts=0))
            except ApiError as error:
                # The pod may be gone by now; anything else is the API server's own end.
                if error.code not in {404, 409, 0}:
                    raise

    async def _serve(self, pod: dict[str, Any]) -> str:
        """Allocate for every container that asks for cards; return why it failed, empty when it did not."""
        metadata, spec = pod["metadata"], pod["spec"]
        config = self._configs[spec["nodeName"]]
        served = [c for c in [*(spec.get("initContainers") or []), *spec["containers"]]
                  if self._rules.serves(asks_for_cards(c) > 0)]  # fmt: skip
        if not served:
            return ""
        current = await self._api.get(_path(pod))
        text = (current["metadata"].get("annotations") or {}).get(TO_ALLOCATE)
        for container in served:
            try:
                answer, text = allocate(pod, text, asks_for_cards(container), config, self._rules)
            except AllocateError as error:
                await self._api.merge_patch(_path(pod), {"metadata": {"annotations": {BIND_PHASE: "failed"}}})
                await self._release_lock(pod)
                return str(error)
            self._answers[(metadata["uid"], container["name"])] = answer
            notes = {TO_ALLOCATE: text}
            phase = self._rules.phase_after(text)
            if phase:
                notes[BIND_PHASE] = phase
            await self._api.merge_patch(_path(pod), {"metadata": {"annotations": notes}})
            if phase:
                await self._release_lock(pod)
        return ""

    async def _release_lock(self, pod: Mapping[str, Any]) -> None:
        path = f"/api/v1/nodes/{pod['spec']['nodeName']}"
        node = await self._api.get(path)
        value = (node["metadata"].get("annotations") or {}).get(LOCK, "")
        if value and self._rules.releases_lock(value, pod["metadata"]["namespace"], pod["metadata"]["name"]):
            version = node["metadata"]["resourceVersion"]
            with contextlib.suppress(ApiError):
                await self._api.merge_patch(
                    path, {"metadata": {"resourceVersion": version, "annotations": {LOCK: None}}}
                )

    async def _end(self, pod: Mapping[str, Any], code: int) -> None:
        phase = "Succeeded" if code == 0 else "Failed"
        state = {
            "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": _now()}
        }
        statuses = [
            {**_container_status(c), "ready": False, "started": False, "state": state}
            for c in pod["spec"]["containers"]
        ]
        conditions = [{**c, "status": "False"} if c["type"] in {"Ready", "ContainersReady"} else c
                      for c in pod["status"].get("conditions") or []]  # fmt: skip
        with contextlib.suppress(ApiError):
            await self._set_status(pod, {"phase": phase, "containerStatuses": statuses, "conditions": conditions})

    async def _set_status(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        await self._api.merge_patch(f"{_path(pod)}/status", {"status": dict(status)})

    def _running_status(self, pod: Mapping[str, Any], *, restarts: int) -> dict[str, Any]:
        conditions = [{"type": type_, "status": "True", "lastTransitionTime": _now()}
                      for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]  # fmt: skip
        status: dict[str, Any] = {
            "phase": "Running", "conditions": conditions, "hostIP": "127.0.0.1", "podIP": "127.0.0.1", "startTime": _now(),
            "containerStatuses": [_container_status(c) | {"restartCount": restarts} for c in pod["spec"]["containers"]],
        }  # fmt: skip
        inits = pod["spec"].get("initContainers") or []
        if inits:
            done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": _now()}}
            status["initContainerStatuses"] = [_container_status(c) | {"started": False, "state": done} for c in inits]
        return status


def _container_status(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"], "image": container.get("image", ""), "imageID": "", "ready": True, "started": True,
        "restartCount": 0, "containerID": f"simulated://{container['name']}", "state": {"running": {"startedAt": _now()}},
    }  # fmt: skip


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
