"""The real HAMi scheduler as a process beside a local API server.

Flags and files: HAMi 2.10.0, cmd/scheduler/main.go and charts/hami/templates/scheduler.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_hami.cluster.kube_scheduler import Extender
from pytest_hami.cluster.parts import ProcessPart, Stack, answers

SCHEDULER_NAME = "hami-scheduler"
# The chart's values (charts/hami/values.yaml); a test may replace any of them.
DEVICE_CONFIG: Mapping[str, Any] = {
    "resourceCountName": "nvidia.com/gpu", "resourceMemoryName": "nvidia.com/gpumem",
    "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage", "resourceCoreName": "nvidia.com/gpucores",
    "resourcePriorityName": "nvidia.com/priority", "overwriteEnv": False, "defaultMemory": 0, "defaultCores": 0,
    "defaultGPUNum": 1, "memoryFactor": 1, "deviceSplitCount": 10, "deviceMemoryScaling": 1, "deviceCoreScaling": 1,
    "gpuCorePolicy": "default", "libCudaLogLevel": 1, "runtimeClassName": "",
}  # fmt: skip
RESOURCE_KEYS = (
    "resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName", "resourcePriorityName",
)  # fmt: skip
FLAGS: Mapping[str, str] = {
    "node-scheduler-policy": "binpack", "gpu-scheduler-policy": "spread", "force-overwrite-default-scheduler": "true",
    "kube-qps": "500", "kube-burst": "1000", "scheduler-name": SCHEDULER_NAME,
}  # fmt: skip


class RealHamiScheduler(ProcessPart):
    """One scheduler process; what a test configures lasts until it configures something else."""

    name = "hami-scheduler"

    def __init__(self, program: Path, stack: Stack, kubeconfig: Path) -> None:
        super().__init__(program, stack, ports=2)
        self._kubeconfig = kubeconfig
        self._device_config: Mapping[str, Any] = {}
        self._flags: Mapping[str, str] = {}

    @property
    def extender(self) -> Extender:
        """How kube-scheduler and the API server reach it."""
        names = {**DEVICE_CONFIG, **self._device_config}
        return Extender(
            {**FLAGS, **self._flags}["scheduler-name"],
            f"https://{self.ports[0].address}",
            base64.b64encode(self.stack.identity.authority).decode(),
            tuple(str(names[key]) for key in RESOURCE_KEYS),
        )

    @property
    def metrics_url(self) -> str:
        """The URL of its metrics."""
        return f"http://{self.ports[1].address}/metrics"

    def configure(self, device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        """Restart it with these device-config values and flags beside the defaults. Raises ClusterUnavailable."""
        self.require_alive()
        self.end()
        self._device_config, self._flags = dict(device_config), dict(flags)
        self.start()

    def arguments(self) -> Sequence[str]:
        """Write its device-config and return its command line."""
        import yaml

        config = {"nvidia": {**DEVICE_CONFIG, **self._device_config}}
        path = self.stack.workspace.write("device-config.yaml", yaml.safe_dump(config))
        named = {
            "http_bind": self.ports[0].address, "metrics-bind-address": self.ports[1].address,
            "cert_file": str(self.stack.certificate), "key_file": str(self.stack.key), "device-config-file": str(path),
            **FLAGS, **self._flags,
        }  # fmt: skip
        return [*(f"--{name}={value}" for name, value in named.items()), "-v=4"]

    def environment(self) -> Mapping[str, str]:
        """Return its variables: how it reaches the cluster, who it is, and UTC for the times in its handshake."""
        return {
            "KUBECONFIG": str(self._kubeconfig), "POD_NAME": SCHEDULER_NAME, "POD_NAMESPACE": "hami-system", "TZ": "UTC",
        }  # fmt: skip

    def serves(self) -> bool:
        """Return whether it serves metrics and extender."""
        return answers(self.metrics_url) and answers(f"{self.extender.url}/readyz", self._context)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self.stack.identity.client_context()
