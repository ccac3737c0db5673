"""Makes scenarios up: fleets, pods and what happens to them, as broad as the scheduler's inputs are.

Everything is drawn from one source, so that a seed gives the same scenario again, and a test that draws from a source of
its own can make one smaller. What is usual comes first in each list, because that is what smaller means.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
Object = dict[str, Any]
COUNT, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENT, CORES, PRIORITY = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"
MODELS = (
    "NVIDIA A10", "NVIDIA-Tesla T4", "NVIDIA L40S", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA", "nvidia a10",
)  # fmt: skip
SIZES = (24576, 16384, 8192, 40960, 81559, 46068, 24564)
POLICIES = (
    "binpack", "spread", "mutex", "numa", "topology-aware", "binpack,numa", "numa,spread", "mutex,binpack",
    "topology-aware,binpack", "", "nonsense", " spread", ",",
)  # fmt: skip
WEIGHTS = (
    "slot=1,core=1,memory=1", "slot=0,core=0,memory=1", "slot=5,core=0,memory=0", " memory = 3 , slot=0,core=1",
    "slot=1,core=1", "slot=0,core=0,memory=0", "slot=1,core=x,memory=1", "",
)  # fmt: skip
TYPES = ("A10", "t4", "NVIDIA", "H100, L40S", "A100", "", ",", "zz")
MODES = ("hami-core", "mps", "mig", "mig,hami-core", "")
NAMESPACES = ("default", "team")
HARD = (
    {"limits.nvidia.com/gpumem": 20000}, {"limits.nvidia.com/gpumem": "10k", "limits.nvidia.com/gpucores": 60},
    {"limits.nvidia.com/gpucores": 100}, {"limits.nvidia.com/gpumem": 0}, {"limits.nvidia.com/gpu": 1}, None,
)  # fmt: skip


class Draw:
    """The choices of one scenario."""

    def __init__(self, source: Random) -> None:
        self._source = source

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to ``limit - 1``."""
        return self._source.randrange(limit)

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.below(len(values))]

    def sometimes(self, percent: int) -> bool:
        """Return True in about that many cases; False is the smaller choice."""
        return self.below(100) >= 100 - percent

    def mostly_first(self, values: Sequence[T], percent: int) -> T:
        """Return another than the first value in about that many cases."""
        return self.one_of(values[1:]) if self.sometimes(percent) else values[0]


def scenario(source: Random, name: str) -> Object:
    """Return a scenario without observations; ``name`` is its id and begins the names of its nodes."""
    return _Scenario(Draw(source), name).made()


class _Scenario:
    def __init__(self, draw: Draw, name: str) -> None:
        self._draw = draw
        self._name = name
        self._nodes: dict[str, Object] = {}
        self._alive: list[Object] = []
        self._count = self._arrived = 0

    def made(self) -> Object:
        settings = self._settings()
        fleet = [self._node() for _ in range(1 + self._draw.mostly_first((0, 1, 2, 3, 5, 9), 60))]
        steps: list[Object] = []
        while len(steps) < 30 and self._draw.below(20) > 0:
            steps += self._steps()
        return {"id": self._name, "kind": "random", **settings, "fleet": fleet, "steps": steps}

    def _settings(self) -> Object:
        draw = self._draw
        settings: Object = {}
        if draw.sometimes(30):
            flags = [
                f"--node-scheduler-policy={draw.one_of(('binpack', 'spread'))}",
                f"--gpu-scheduler-policy={draw.one_of(('spread', 'binpack', 'topology-aware', 'mutex', 'binpack,numa'))}",
            ]
            if draw.sometimes(15):
                flags.append("--force-overwrite-default-scheduler=false")
            settings["scheduler_flags"] = flags
        if draw.sometimes(20):
            key, value = draw.one_of(
                (
                    ("memoryFactor", 1024), ("memoryFactor", 2), ("defaultMemory", 2000), ("defaultCores", 15),
                    ("defaultGPUNum", 2), ("defaultGPUNum", 0), ("gpuCorePolicy", "force"), ("gpuCorePolicy", "disable"),
                    ("overwriteEnv", True), ("runtimeClassName", "nvidia"), ("defaultCores", 150),
                )
            )  # fmt: skip
            settings["device_config"] = {key: value}
        return settings

    def _node(self) -> Object:
        draw, number = self._draw, self._arrived
        self._arrived += 1
        name = f"{self._name}-n{number}"
        devices = self._devices(number)
        node: Object = {"node": name, "labels": {"zone": draw.one_of(("a", "b"))}, "devices": devices}
        notes: dict[str, str] = {}
        ids = [device["id"] for device in devices]
        if len(ids) > 1 and draw.sometimes(25):
            notes["hami.io/node-nvidia-score"] = self._scores(ids)
        if ids and draw.sometimes(8):
            notes["hami.io/device-cordon"] = ",".join(sorted({draw.one_of(ids), draw.one_of(ids)}))
        if notes:
            node["annotations"] = notes
        if devices and draw.sometimes(5):
            node["allocatable"] = draw.one_of((1, 0, 500))
        self._nodes[name] = node
        return node

    def _devices(self, node: int) -> list[Object]:
        draw = self._draw
        count = draw.mostly_first((2, 1, 0, 3, 4, 5, 8, 13, 16), 65)
        model, size = draw.one_of(MODELS), draw.one_of(SIZES)
        split, cores = draw.mostly_first((10, 4, 2, 1), 40), draw.mostly_first((100, 150, 50, 114), 20)
        groups = draw.mostly_first((1, 2, 3), 40)
        mode = draw.mostly_first(("hami-core", "mps", "mig", ""), 10)
        mixed = draw.sometimes(30)
        devices = []
        for index in range(count):
            device = {
                "id": f"GPU-{node}{chr(97 + index)}", "index": index, "count": split, "devmem": size, "devcore": cores,
                "type": model, "numa": index * groups // count, "mode": mode, "health": not draw.sometimes(5),
            }  # fmt: skip
            if mixed:
                device |= {
                    "devmem": draw.one_of(SIZES), "count": draw.one_of((split, 3, 1)), "numa": draw.below(groups),
                    "type": draw.mostly_first((model, "NVIDIA A10", "NVIDIA"), 20),
                    "mode": draw.mostly_first((mode, "hami-core", "mig"), 10),
                }  # fmt: skip
            devices.append(device)
        if draw.sometimes(20):
            devices.reverse()
        return devices

    def _scores(self, ids: Sequence[str]) -> str:
        rows = []
        for one in ids:
            pairs = ",".join(f'"{other}":{self._draw.one_of((10, 20, 50, 100))}' for other in ids if other != one)
            rows.append(f'{{"uuid":"{one}","score":{{{pairs}}}}}')
        return f"[{','.join(rows)}]"

    def _steps(self) -> list[Object]:
        draw = self._draw
        what = draw.below(100)
        if what < 62 or not self._alive:
            return self._create()
        if what < 74:
            return [self._delete()]
        if what < 80:
            pod = draw.one_of(self._alive)
            return [{"op": draw.one_of(("complete", "fail")), **self._key(pod)}]
        if what < 84:
            return self._initialised()
        if what < 88:
            return [{"op": "quota", "namespace": "team", "hard": draw.one_of(HARD)}]
        if what < 94:
            return [self._update_node()]
        if what == 94:
            return [{"op": "restart_scheduler"}]
        if what == 95:
            return [{"op": "add_node", "fleet_node": self._node()}]
        if what == 96 and len(self._nodes) > 1:
            name = draw.one_of(list(self._nodes))
            del self._nodes[name]
            # What is left on a node that is gone is nobody's business.
            return [{"op": "delete_node", "node": name}]
        if what == 97:
            return [{"op": "node_annotations", "node": draw.one_of(list(self._nodes))}]
        if what == 98:
            pod = draw.one_of(self._alive)
            return [{"op": "patch_pod", **self._key(pod), "patch": {"metadata": {"labels": {"touch": "1"}}}}]
        return [{"op": "register_run"}]

    def _create(self) -> list[Object]:
        draw = self._draw
        pod = self._pod()
        step: Object = {"op": "create", "object": pod}
        self._alive.append(pod)
        if draw.sometimes(4):
            step["agent"] = False
        if draw.sometimes(30):
            self._alive.pop()
            return [step, {"op": "delete", **self._key(pod)}]
        return [step]

    def _delete(self) -> Object:
        draw = self._draw
        pod = self._alive.pop(draw.below(len(self._alive)))
        step = {"op": "delete", **self._key(pod)}
        return step | {"grace": 30} if draw.sometimes(10) else step

    def _initialised(self) -> list[Object]:
        """Return the end of a pod's init containers."""
        pods: list[Any] = [pod for pod in self._alive if pod["spec"].get("initContainers")]
        if not pods:
            return [{"op": "register_run"}]
        pod = self._draw.one_of(pods)
        ended: Object = self._draw.mostly_first(({"exitCode": 0, "reason": "Completed"}, {"exitCode": 1}), 30)
        states = [
            {
                "name": container["name"], "image": "i", "imageID": "", "ready": False, "restartCount": 0,
                "state": {"terminated": ended},
            }
            for container in pod["spec"]["initContainers"]
        ]  # fmt: skip
        phase = "Running" if ended["exitCode"] == 0 else "Pending"
        return [{"op": "status", **self._key(pod), "status": {"phase": phase, "initContainerStatuses": states}}]

    def _update_node(self) -> Object:
        draw = self._draw
        name = draw.one_of(list(self._nodes))
        node = self._nodes[name]
        step: Object = {"op": "update_node", "node": name}
        devices = [dict(device) for device in node["devices"]]
        what = draw.below(6)
        if what == 0 and devices:
            device = draw.one_of(devices)
            device["health"] = not device["health"]
            node["devices"] = devices
            # A kubelet takes the shares of an unhealthy card out of what can be allocated.
            count = sum(device["count"] for device in devices if device["health"])
            return step | {"devices": devices, "allocatable": count}
        if what == 1 and devices:
            device = draw.one_of(devices)
            device["devmem"] = draw.one_of(SIZES)
            node["devices"] = devices
            return step | {"devices": devices}
        if what == 2:
            return step | {"unschedulable": draw.one_of((True, False))}
        if what == 3 and devices:
            cordoned = draw.one_of((draw.one_of(devices)["id"], None))
            return step | {"annotations": {"hami.io/device-cordon": cordoned}}
        if what == 4:
            return step | {"allocatable": draw.one_of((0, 1, 20))}
        return step | {"labels": {"zone": draw.one_of(("a", "b"))}}

    def _pod(self) -> Object:
        draw = self._draw
        self._count += 1
        containers = [self._container(f"c{i}") for i in range(draw.mostly_first((1, 2, 3), 25))]
        metadata: Object = {"name": f"p{self._count}", "namespace": draw.mostly_first(NAMESPACES, 20)}
        notes = self._notes()
        if notes:
            metadata["annotations"] = notes
        spec: Object = {"containers": containers}
        inits = [self._container(f"i{i}") for i in range(draw.mostly_first((0, 1, 2), 15))]
        if inits:
            spec["initContainers"] = inits
            if draw.sometimes(15):
                inits[0]["restartPolicy"] = "Always"
        if draw.sometimes(5):
            spec["nodeSelector"] = {"zone": draw.one_of(("a", "b", "nowhere"))}
        if draw.sometimes(2):
            spec["schedulerName"] = draw.one_of(("hami-scheduler", "default-scheduler"))
        if draw.sometimes(2):
            spec["runtimeClassName"] = "own"
        return {"metadata": metadata, "spec": spec}

    def _container(self, name: str) -> Object:
        draw = self._draw
        container: Object = {"name": name, "image": "i"}
        limits = self._limits()
        if limits:
            container["resources"] = {"limits": limits}
        if draw.sometimes(2):
            container["securityContext"] = {"privileged": True}
        if draw.sometimes(3):
            container["env"] = [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"}]
        return container

    def _limits(self) -> dict[str, str]:
        draw = self._draw
        limits: dict[str, str] = {}
        if draw.sometimes(12):
            return limits
        if not draw.sometimes(15):
            limits[COUNT] = draw.mostly_first(("1", "2", "3", "4", "0", "8"), 30)
        if draw.sometimes(60):
            limits[MEMORY] = draw.one_of(
                ("1000", "4096", "8192", "12k", "16384", "24576", "24577", "300", "0", "1", "40960", "4Gi", "3000M")
            )
        if draw.sometimes(22):
            limits[PERCENT] = draw.one_of(("50", "25", "100", "33", "99", "10", "1", "0", "101", "150", "7", "66"))
        if draw.sometimes(50):
            limits[CORES] = draw.one_of(("10", "30", "50", "100", "60", "99", "0", "101", "150", "1", "33"))
        if draw.sometimes(5):
            limits[PRIORITY] = draw.one_of(("0", "1"))
        if draw.sometimes(5):
            limits["cpu"] = "100m"
        return limits

    def _notes(self) -> dict[str, str]:
        draw = self._draw
        notes: dict[str, str] = {}
        ids = [device["id"] for node in self._nodes.values() for device in node["devices"]] or ["GPU-none"]

        def some() -> str:
            found: list[str] = [draw.one_of(ids) for _ in range(draw.mostly_first((1, 2, 4), 40))]
            return draw.mostly_first((",".join(found), f" {' , '.join(found)} ", found[0].lower(), "", ","), 12)

        if draw.sometimes(12):
            notes["nvidia.com/use-gpuuuid"] = some()
        if draw.sometimes(8):
            notes["nvidia.com/nouse-gpuuuid"] = some()
        if draw.sometimes(8):
            notes["nvidia.com/use-gputype"] = draw.one_of(TYPES)
        if draw.sometimes(6):
            notes["nvidia.com/nouse-gputype"] = draw.one_of(TYPES)
        if draw.sometimes(20):
            notes["hami.io/gpu-scheduler-policy"] = draw.one_of(POLICIES)
        if draw.sometimes(12):
            notes["hami.io/node-scheduler-policy"] = draw.one_of(("spread", "binpack", "nonsense", ""))
        if draw.sometimes(12):
            notes["nvidia.com/numa-bind"] = draw.mostly_first(("true", "false", "1", "T", "yes", ""), 35)
        if draw.sometimes(5):
            notes["nvidia.com/vgpu-mode"] = draw.one_of(MODES)
        if draw.sometimes(5):
            notes["hami.io/device-scoring-weights"] = draw.one_of(WEIGHTS)
        return notes

    @staticmethod
    def _key(pod: Object) -> Object:
        return {"pod": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
