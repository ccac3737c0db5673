"""The real parts of a local cluster together: what needs whom, and what can start at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_hami.cluster.access import ApiAccess
from pytest_hami.cluster.base import ClusterUnavailable
from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.control_plane import Etcd, KubeApiserver
from pytest_hami.cluster.hami_scheduler import DEVICE_CONFIG, RealHamiScheduler
from pytest_hami.cluster.kube_scheduler import Extender, KubeSchedulers
from pytest_hami.cluster.parts import RealPart, Stack
from pytest_hami.cluster.workspace import Workspace

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"


def _library(composition: Composition) -> Path | None:
    """Return the NVML library of the parts that load one. Raises ClusterUnavailable where there is none to be had."""
    if not (composition.device_plugin or composition.monitor):
        return None
    if composition.device_plugin and not (find_spec("grpc") and find_spec("google.protobuf")):
        raise ClusterUnavailable("device-plugin: our kubelet needs grpcio and protobuf: pip install pytest-hami[real]")
    if composition.nvml is not None:
        return composition.nvml.path.absolute()
    from pytest_hami.kubelet import nvml

    try:
        return nvml.library()
    except nvml.NvmlUnavailable as error:
        raise ClusterUnavailable(str(error)) from None


class RealParts:
    """Every program of a composition in one workspace; the simulator is beside them."""

    def __init__(self, composition: Composition, scale: float, on_end: Callable[[str], None]) -> None:
        """Raises ClusterUnavailable when there is no place for them."""
        from pytest_hami.simulator.certificates import loopback_identity

        self._composition = composition
        self._workspace = Workspace()
        self._stack = Stack(self._workspace, loopback_identity(), scale, on_end)
        self._stack.write_identity()
        self._kubeconfig = self._workspace.directory / "kubeconfig"
        self._etcd: Etcd | None = None
        self._apiserver: KubeApiserver | None = None
        self._kube_schedulers: KubeSchedulers | None = None
        self.hami_scheduler: RealHamiScheduler | None = None
        if composition.etcd is not None and composition.kube_apiserver is not None:
            self._etcd = Etcd(composition.etcd.path, self._stack)
            self._apiserver = KubeApiserver(composition.kube_apiserver.path, self._stack, self._etcd)
        self._library = _library(composition)
        if composition.hami_scheduler is not None:
            self.hami_scheduler = RealHamiScheduler(composition.hami_scheduler.path, self._stack, self._kubeconfig)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that every process of this cluster carries."""
        return self._workspace.environment

    def launch_first(self) -> None:
        """Start what needs nobody: kube-apiserver waits for its etcd by itself."""
        if self._etcd is not None and self._apiserver is not None:
            self._etcd.launch()
            self._apiserver.launch()

    def await_api(self) -> ApiAccess | None:
        """Wait for the real API server and return how it is reached, None where it is simulated."""
        if self._etcd is None or self._apiserver is None:
            return None
        self._etcd.await_ready()
        self._apiserver.await_ready()
        return self._apiserver.access

    def simulator_config(self) -> dict[str, Any]:
        """Return what the simulator has to know of the real parts."""
        config: dict[str, Any] = {}
        if self._apiserver is not None:
            access = self._apiserver.access
            config["api"] = {"url": access.url, "token": access.token, "authority": str(access.authority)}
            config["kubelet"] = [str(self._stack.certificate), str(self._stack.key)]
        if self.hami_scheduler is not None:
            config["extender"] = self.hami_scheduler.extender.to_dict()
        on_nodes = {"device_plugin": self._composition.device_plugin, "monitor": self._composition.monitor}
        for name, program in on_nodes.items():
            if program is not None:
                config[name] = {
                    "program": str(program.path.absolute()), "library": str(self._library),
                    "directory": str(self._workspace.directory), "kubeconfig": str(self._kubeconfig),
                    "device_config": dict(DEVICE_CONFIG), "scale": self._stack.scale,
                }  # fmt: skip
        return config

    def launch_schedulers(self, access: ApiAccess, extender: Callable[[], Mapping[str, Any]]) -> None:
        """Start the HAMi scheduler and kube-scheduler; ``extender`` tells of a simulated HAMi scheduler, once it serves."""
        self._workspace.write(self._kubeconfig.name, json.dumps(access.kubeconfig))
        if self.hami_scheduler is not None:
            self.hami_scheduler.launch()
        if self._composition.kube_scheduler is not None:
            known = self.hami_scheduler.extender if self.hami_scheduler else Extender.from_dict(extender())
            path = self._composition.kube_scheduler.path
            # The simulated API server speaks no protobuf.
            media_type = PROTOBUF if self._apiserver is not None else JSON
            self._kube_schedulers = KubeSchedulers(path, self._stack, self._kubeconfig, media_type, known)
            self._kube_schedulers.launch()

    def await_schedulers(self) -> None:
        """Wait until they serve."""
        if self.hami_scheduler is not None:
            self.hami_scheduler.await_ready()
        if self._kube_schedulers is not None:
            self._kube_schedulers.await_ready()

    def follow(self, extender: Mapping[str, Any]) -> None:
        """Let kube-scheduler know another name or other resources of HAMi."""
        if self._kube_schedulers is not None:
            self._kube_schedulers.follow(Extender.from_dict(extender))

    def restart(self, part: str) -> bool:
        """Restart a part and return True, or return False where it is not among these."""
        found = self._parts.get(part)
        if found is None:
            return False
        found.restart()
        if part == "etcd" and self._apiserver is not None:
            self._apiserver.await_ready()
        return True

    def require_alive(self) -> None:
        """Raise ClusterUnavailable, with its last lines, when one has ended by itself."""
        for part in self._parts.values():
            part.require_alive()

    def stop(self) -> None:
        """End all, those that others need last, and remove the workspace."""
        for part in reversed(self._parts.values()):
            part.stop()
        self._workspace.close()

    @property
    def _parts(self) -> dict[str, RealPart]:
        found: dict[str, RealPart | None] = {
            "etcd": self._etcd, "kube-apiserver": self._apiserver, "hami-scheduler": self.hami_scheduler,
            "kube-scheduler": self._kube_schedulers,
        }  # fmt: skip
        return {name: part for name, part in found.items() if part is not None}
