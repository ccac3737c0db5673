"""kube-scheduler as processes: one for ordinary pods, one with HAMi as its extender.

An extender belongs to the process, not to a profile: with both profiles in one process HAMi would be asked about pods
that opted out of it (Kubernetes 1.36, pkg/scheduler/scheduler.go, buildExtenders).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_hami.cluster.parts import ProcessPart, Stack, answers


@dataclass(frozen=True)
class Extender:
    """HAMi as kube-scheduler knows it: the scheduler's name, where it is, and the resources that are left to it.

    ``ca_bundle`` is base64 of a PEM text.
    """

    scheduler_name: str
    url: str
    ca_bundle: str
    managed_resources: tuple[str, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Extender:
        """Return what ``to_dict`` gave."""
        return cls(**{**values, "managed_resources": tuple(values["managed_resources"])})

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, as the simulator takes and gives it."""
        return dataclasses.asdict(self)

    def configuration(self) -> dict[str, Any]:
        """Return the entry of a KubeSchedulerConfiguration (HAMi 2.10.0, chart, templates/scheduler/configmap.yaml)."""
        return {
            "urlPrefix": self.url, "filterVerb": "filter", "bindVerb": "bind", "nodeCacheCapable": True, "weight": 1,
            "httpTimeout": "30s", "enableHTTPS": True, "tlsConfig": {"caData": self.ca_bundle},
            "managedResources": [{"name": name, "ignoredByScheduler": True} for name in self.managed_resources],
        }  # fmt: skip


class KubeScheduler(ProcessPart):
    """One kube-scheduler process with one profile and at most one extender."""

    def __init__(
        self, name: str, program: Path, stack: Stack, kubeconfig: Path, media_type: str, extender: Extender | None
    ) -> None:
        """``media_type`` is what it speaks with the API server."""
        super().__init__(program, stack, ports=1)
        self.name = name
        self.extender = extender
        self._kubeconfig = kubeconfig
        self._media_type = media_type

    def arguments(self) -> Sequence[str]:
        """Write its configuration and return its command line."""
        config: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self._kubeconfig), "qps": 1000, "burst": 2000, "contentType": self._media_type,
                "acceptContentTypes": self._media_type,
            },
            "profiles": [{"schedulerName": self.extender.scheduler_name if self.extender else "default-scheduler"}],
            "extenders": [self.extender.configuration()] if self.extender else [],
        }  # fmt: skip
        path = self.stack.workspace.write(f"{self.name}.json", json.dumps(config))
        return (
            f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={self.ports[0].number}",
            f"--tls-cert-file={self.stack.certificate}", f"--tls-private-key-file={self.stack.key}",
            f"--cert-dir={self.stack.workspace.directory}",
        )  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        """Return its variables beyond ours."""
        return {"TZ": "UTC"}

    def serves(self) -> bool:
        """Return whether it is ready, which it is once its informers are."""
        return answers(f"https://{self.ports[0].address}/readyz", self.stack.identity.client_context())


class KubeSchedulers:
    """The part kube-scheduler: both processes as one."""

    def __init__(self, program: Path, stack: Stack, kubeconfig: Path, media_type: str, extender: Extender) -> None:
        self._ordinary = KubeScheduler("kube-scheduler", program, stack, kubeconfig, media_type, None)
        self._hami = KubeScheduler("kube-scheduler-hami", program, stack, kubeconfig, media_type, extender)

    def launch(self) -> None:
        """Start both processes; ``await_ready`` waits for them."""
        for one in self._both:
            one.launch()

    def await_ready(self) -> None:
        """Wait until both serve."""
        for one in self._both:
            one.await_ready()

    def start(self) -> None:
        """Start both and wait until they serve."""
        self.launch()
        self.await_ready()

    def stop(self) -> None:
        """End both."""
        for one in self._both:
            one.stop()

    def restart(self) -> None:
        """End both and start them again."""
        self.require_alive()
        for one in self._both:
            one.end()
        self.start()

    def follow(self, extender: Extender) -> None:
        """Restart the process of HAMi's pods where its extender has changed."""
        if extender != self._hami.extender:
            self._hami.extender = extender
            self._hami.restart()

    def require_alive(self) -> None:
        """Raise with its last lines when one has ended by itself."""
        for one in self._both:
            one.require_alive()

    @property
    def _both(self) -> tuple[KubeScheduler, KubeScheduler]:
        return self._ordinary, self._hami
