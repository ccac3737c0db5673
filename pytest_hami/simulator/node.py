"""Our kubelet for all nodes of the local cluster; it acts only through the API and the device plugins that it is given."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp

from pytest_hami.contract.register import Device
from pytest_hami.kubelet.devices import DeviceBook, TooFewShares
from pytest_hami.kubelet.plugin import AllocateError, Answer, Plugins, Share
from pytest_hami.simulator import shell
from pytest_hami.simulator.client import Access, Api, ApiError, Informer
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.kubelet import KubeletServer, NoContainer
from pytest_hami.simulator.shell import Output

if TYPE_CHECKING:
    from pytest_hami.kubelet.monitor import HamiMonitors

RESOURCE = "nvidia.com/gpu"
HOLD = "pytest-hami.io/hold-termination"
BASE_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class NodeAgent:
    """The nodes that it created, their cards, and the pods bound to them."""

    def __init__(
        self,
        api_url: str | Access,
        plugins: Callable[[Api], Plugins],
        rules: NodeRules,
        identity: tuple[str, str] | None = None,
        monitors: HamiMonitors | None = None,
    ) -> None:
        """``plugins`` makes the device plugins of all nodes, ``rules`` are kubelet's and the containers'.

        ``identity`` are the paths of the certificate and key of kubelet's server.
        """
        self._monitors = monitors
        self._url = api_url
        self._make_plugins = plugins
        self._rules = rules
        self._cards: dict[str, tuple[Device, ...]] = {}
        self._books: dict[str, DeviceBook] = {}
        self._answers: dict[tuple[str, str], Answer] = {}
        self._handled: set[str] = set()
        self._ended: set[str] = set()
        self._phases: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kubelet = KubeletServer(self.run, identity)

    async def start(self) -> None:
        """Serve as kubelet and watch pods. Raises ApiError."""
        self._session = aiohttp.ClientSession()
        self._api = Api(self._url, self._session)
        self._plugins = self._make_plugins(self._api)
        await self._plugins.start(self)
        await self._kubelet.start()
        self._pods = Informer(self._api, "/api/v1/pods", self._pod_event)
        await self._pods.start()

    async def stop(self) -> None:
        """Stop; pods and nodes stay as they are in the API."""
        await self._pods.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._plugins.stop()
        if self._monitors is not None:
            await self._monitors.stop()
        await self._kubelet.stop()
        await self._session.close()

    async def nodes(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Create nodes and run their plugins until all cards are registered. Raises ApiError, RegisterError, ValueError."""
        arriving = {}
        for node in nodes:
            name = str(node["name"])
            cards = tuple(Device(**device) for device in node.get("devices") or [])
            notes, shares = self._plugins.arrival(name, cards) if cards else ({}, ())
            arriving[name] = (node, cards, notes, DeviceBook(RESOURCE, shares))
        for name, (node, cards, notes, book) in arriving.items():
            self._cards[name] = cards
            self._books[name] = book
            await self._api.create("/api/v1/nodes", self._object(node, notes))
        await self._plugins.run([name for name, (_, cards, *_) in arriving.items() if cards])

    async def remove_nodes(self, nodes: Iterable[str]) -> None:
        """Delete nodes. Raises ApiError, KeyError for a node that is not ours."""
        for name in nodes:
            if self._cards.pop(name):
                await self._plugins.remove([name])
                if self._monitors is not None:
                    await self._monitors.remove([name])
            del self._books[name]
            await self._api.delete(_node_path(name))

    async def reconfigure(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart the plugin of one node with another configuration. Raises KeyError, ValueError, ApiError."""
        if node not in self._cards:
            raise KeyError(node)
        await self._plugins.configure(node, config)

    async def restart(self) -> None:
        """Restart the plugin of every node: it registers again and serves what is left."""
        await self._plugins.restart([node for node, cards in self._cards.items() if cards])
        if not self._rules.restart_keeps_containers():
            for uid, pod in list(self._pods.items.items()):
                if any(key[0] == uid for key in self._answers):
                    await self._set_status(pod, self._running_status(pod, restarts=1))

    async def monitor(self, node: str) -> str:
        """Return the URL of the metrics of a node's monitor. Raises KeyError for a node that has none."""
        if self._monitors is None or not self._cards.get(node):
            raise KeyError(node)
        return await self._monitors.metrics_url(node, self._cards[node])

    async def advertise(self, node: str, shares: Sequence[Share]) -> None:
        """Take a plugin's device list: capacity counts all shares, allocatable the healthy ones. Raises ApiError."""
        book = self._books[node]
        book.update(shares)
        await self._api.merge_patch(f"{_node_path(node)}/status", {"status": _resources(book)})

    async def annotation(self, node: str, key: str) -> str | None:
        """Return an annotation of a node. Raises ApiError."""
        return _annotation(await self._api.get(_node_path(node)), key)

    async def annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        """Patch annotations of a node. Raises ApiError."""
        await self._api.merge_patch(_node_path(node), {"metadata": {"annotations": dict(annotations)}})

    async def changed(self, node: str, key: str, old: str | None, limit: float) -> str:
        """Return an annotation once it is there and not ``old``. Raises TimeoutError after ``limit`` seconds."""
        async with asyncio.timeout(limit):
            found = await self._api.get(_node_path(node))
            while (text := _annotation(found, key)) is None or text == old:
                async for _, seen in self._api.watch("/api/v1/nodes", found["metadata"]["resourceVersion"]):
                    if seen["metadata"].get("name") == node:
                        found = seen
                        break
            return text

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
        phase = self._phases.get(found["metadata"]["uid"], found["status"].get("phase"))
        if container not in names or phase != "Running":
            raise NoContainer(f"container not found ({container!r}): pod {pod} is {phase}")
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
        return shell.View(env, answer.mounts if answer else (), cards if answer else {})

    def _object(self, node: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
        name = str(node["name"])
        plain = {"cpu": "64", "memory": "256Gi", "pods": "500", "ephemeral-storage": "100Gi"}
        resources = {key: plain | shares for key, shares in _resources(self._books[name]).items()}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated",
                     "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {**(node.get("annotations") or {}), **notes},
                         "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(node.get("labels") or {})}},
            "spec": {"taints": list(node.get("taints") or [])} if node.get("taints") else {},
            "status": {
                **resources, "conditions": [condition],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet.port}},
                # Newer API servers then hand websockets on as they are, instead of translating them to SPDY (KEP 4006).
                "declaredFeatures": ["ExtendWebSocketsToKubelet"],
                "nodeInfo": {"kubeletVersion": "v1.36.3+simulated", "operatingSystem": "linux", "architecture": "amd64",
                             "containerRuntimeVersion": "none", "kernelVersion": "none", "osImage": "simulated",
                             "machineID": name, "systemUUID": name, "bootID": name, "kubeProxyVersion": ""},
            },
        }  # fmt: skip

    def _pod_event(self, kind: str, pod: dict[str, Any]) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if kind == "DELETED":
            self._handled.discard(uid)
            self._ended.discard(uid)
            self._phases.pop(uid, None)
            self._release(uid)
            for key in [key for key in self._answers if key[0] == uid]:
                del self._answers[key]
            return
        if node not in self._cards:
            return
        if pod["status"].get("phase") in {"Succeeded", "Failed"}:
            self._release(uid)
        if pod["metadata"].get("deletionTimestamp"):
            # Without any grace the API server removes it by itself.
            asked = pod["metadata"].get("deletionGracePeriodSeconds") != 0 and uid not in self._ended
            if asked and (pod["metadata"].get("annotations") or {}).get(HOLD) != "true":
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
                        "message": f"Pod was rejected: Allocate failed due to {failure}, which is unexpected",
                    })  # fmt: skip
                else:
                    await self._set_status(pod, self._running_status(pod, restarts=0))
            except ApiError as error:
                # The pod may be gone by now; anything else is the API server's own end.
                if error.code not in {404, 409, 0}:
                    raise

    async def _serve(self, pod: dict[str, Any]) -> str:
        """Allocate for every container that asks for cards; return why it failed, empty when it did not.

        One call for each container, init containers first, whose shares the others may have (Kubernetes,
        pkg/kubelet/cm/devicemanager/manager.go).
        """
        metadata, spec = pod["metadata"], pod["spec"]
        node, uid = spec["nodeName"], metadata["uid"]
        inits = spec.get("initContainers") or []
        reusable: tuple[str, ...] = ()
        for container in [*inits, *spec["containers"]]:
            asked = _asked(container)
            if not self._rules.serves(asked > 0):
                continue
            try:
                ids = await self._choose(node, asked, reusable)
                self._books[node].hold(uid, container["name"], ids)
                answer = self._answers[(uid, container["name"])] = await self._plugins.allocate(node, pod, ids)
                if self._monitors is not None:
                    self._monitors.container_started(node, answer)
            except TooFewShares as error:
                return str(error)
            except AllocateError as error:
                return f"rpc error: code = {error.code} desc = {error}"
            if container in inits and container.get("restartPolicy") != "Always":
                reusable = tuple(dict.fromkeys((*reusable, *ids)))
            else:
                reusable = tuple(id for id in reusable if id not in ids)
        return ""

    async def _choose(self, node: str, count: int, reusable: Sequence[str]) -> tuple[str, ...]:
        available = self._books[node].available(reusable)
        # Shares that can be reused are taken before the plugin is asked what it prefers.
        required = available[: min(count, sum(id in available for id in reusable))]
        preferred = await self._plugins.prefer(node, available, required, count) if len(available) > count else ()
        return self._books[node].choose(count, available, preferred)

    def _release(self, uid: str) -> None:
        for book in self._books.values():
            book.release(uid)

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
        # A kubelet knows what runs before the API server does, and our own copy of the pod is later still.
        if "phase" in status:
            self._phases[pod["metadata"]["uid"]] = str(status["phase"])
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


def _asked(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return int(limits.get(RESOURCE, 0))


def _container_status(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"], "image": container.get("image", ""), "imageID": "", "ready": True, "started": True,
        "restartCount": 0, "containerID": f"simulated://{container['name']}", "state": {"running": {"startedAt": _now()}},
    }  # fmt: skip


def _resources(book: DeviceBook) -> dict[str, dict[str, str]]:
    counts = {"capacity": book.capacity, "allocatable": book.allocatable}
    return {key: {RESOURCE: str(count)} if book.capacity else {} for key, count in counts.items()}


def _annotation(found: Mapping[str, Any], key: str) -> str | None:
    return (found["metadata"].get("annotations") or {}).get(key)


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
