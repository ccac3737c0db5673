"""The real HAMi scheduler as a process beside a local API server.

Flags and files: HAMi 2.10.0, cmd/scheduler/main.go and charts/hami/templates/scheduler.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hami.cluster.processes import Process, free_port

if TYPE_CHECKING:
    from pytest_hami.simulator.certificates import ServerIdentity

START_LIMIT = 30.0
SCHEDULER_NAME = "hami-scheduler"
# The chart's values (charts/hami/values.yaml); a test may replace any of them.
DEVICE_CONFIG: Mapping[str, Any] = {
    "resourceCountName": "nvidia.com/gpu", "resourceMemoryName": "nvidia.com/gpumem",
    "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage", "resourceCoreName": "nvidia.com/gpucores",
    "resourcePriorityName": "nvidia.com/priority", "overwriteEnv": False, "defaultMemory": 0, "defaultCores": 0,
    "defaultGPUNum": 1, "memoryFactor": 1, "deviceSplitCount": 10, "deviceMemoryScaling": 1, "deviceCoreScaling": 1,
    "gpuCorePolicy": "default", "libCudaLogLevel": 1, "runtimeClassName": "",
}  # fmt: skip
FLAGS: Mapping[str, str] = {
    "node-scheduler-policy": "binpack", "gpu-scheduler-policy": "spread", "force-overwrite-default-scheduler": "true",
    "kube-qps": "500", "kube-burst": "1000",
}  # fmt: skip


class RealHamiScheduler:
    """One scheduler process; it keeps its addresses over restarts."""

    def __init__(self, binary: Path, directory: Path, scale: float) -> None:
        from pytest_hami.simulator.certificates import loopback_identity

        self._binary = binary
        self._directory = directory
        self._limit = START_LIMIT * scale
        self._identity: ServerIdentity = loopback_identity()
        self._ports = (free_port(), free_port())
        self._process: Process | None = None
        for name, content in (("tls.crt", self._identity.certificate), ("tls.key", self._identity.key)):
            (directory / name).touch(mode=0o600)
            (directory / name).write_bytes(content)

    @property
    def extender(self) -> dict[str, str]:
        """How kube-scheduler and the API server reach it: URLs and the authority as base64 of a PEM text."""
        url = f"https://127.0.0.1:{self._ports[0]}"
        bundle = base64.b64encode(self._identity.authority).decode()
        return {"url": url, "webhook_url": f"{url}/webhook", "ca_bundle": bundle}

    @property
    def metrics_url(self) -> str:
        """The URL of its metrics."""
        return f"http://127.0.0.1:{self._ports[1]}/metrics"

    def start(self, kubeconfig: Mapping[str, Any], device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        """Start it and wait until it serves webhook and metrics. Raises ClusterUnavailable."""
        import yaml

        (self._directory / "kubeconfig").write_text(json.dumps(kubeconfig), encoding="utf-8")
        config = {"nvidia": {**DEVICE_CONFIG, **device_config}}
        (self._directory / "device-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        named = {
            "http_bind": f"127.0.0.1:{self._ports[0]}", "metrics-bind-address": f"127.0.0.1:{self._ports[1]}",
            "cert_file": "tls.crt", "key_file": "tls.key", "scheduler-name": SCHEDULER_NAME,
            "device-config-file": "device-config.yaml", **FLAGS, **flags,
        }  # fmt: skip
        argv = [str(self._binary), *(f"--{name}={value}" for name, value in named.items()), "-v=4"]
        env = {
            "KUBECONFIG": str(self._directory / "kubeconfig"), "POD_NAME": SCHEDULER_NAME, "POD_NAMESPACE": "hami-system",
            "TZ": "UTC",
        }  # fmt: skip
        self._process = Process("hami-scheduler", argv, self._directory / "hami-scheduler.log", env)
        self._process.await_ready(self._serves, self._limit)

    def require_alive(self) -> None:
        """Raise ClusterUnavailable with its last lines when it has ended."""
        if self._process is not None:
            self._process.require_alive()

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _serves(self) -> bool:
        import urllib3

        pool = urllib3.PoolManager(retries=False, timeout=1.0, ssl_context=self._identity.client_context())
        try:
            return all(
                pool.request("GET", url).status == 200 for url in (self.metrics_url, f"{self.extender['url']}/readyz")
            )
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        finally:
            pool.clear()
