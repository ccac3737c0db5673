"""The embedded cluster as a whole: which parts run, in which order they start and stop, and what they can be told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from pytest_hami import __version__
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.releases import Release
from pytest_hami.simulator import mutants
from pytest_hami.simulator.apiserver import ApiServer
from pytest_hami.simulator.client import Api, ApiError
from pytest_hami.simulator.hami.config import SchedulerConfig
from pytest_hami.simulator.hami.server import HamiServer

if TYPE_CHECKING:
    from pytest_hami.simulator.kube_scheduler import KubeScheduler
    from pytest_hami.simulator.node import NodeAgent

PARTS = ("apiserver", "hami-scheduler", "kube-scheduler", "node")
NAMESPACE = "hami-system"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
OPT_OUT = {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}


class HostError(Exception):
    """A configuration or command that cannot be carried out; the text is one line."""


@dataclass(frozen=True)
class HostConfig:
    """What the embedded cluster is made of; ``api_url`` only where no API server is among ``parts``."""

    release: str = "2.10.0"
    parts: tuple[str, ...] = PARTS
    api_url: str | None = None
    mutants: tuple[str, ...] = ()
    device_config: Mapping[str, Any] = field(default_factory=dict)
    scheduler_flags: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    # Where a HAMi scheduler outside of this process serves: url, webhook_url, ca_bundle (base64 of a PEM text).
    extender: Mapping[str, str] | None = None

    @classmethod
    def parse(cls, line: str | bytes) -> HostConfig:
        """Return the configuration in one JSON line. Raises HostError."""
        try:
            values = json.loads(line)
        except ValueError as error:
            raise HostError(f"configuration: expected one line of JSON: {error}") from None
        if not isinstance(values, dict):
            raise HostError(f"configuration: expected a JSON object, seen {type(values).__name__}")
        known = {entry.name for entry in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise HostError(f"configuration: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
        for key in ("parts", "mutants"):
            if key in values:
                values[key] = tuple(values[key])
        config = cls(**values)
        config.check()
        return config

    def check(self) -> None:
        """Raises HostError for what cannot run."""
        for part in self.parts:
            if part not in PARTS:
                raise HostError(f"unknown part {part!r}; known are {', '.join(PARTS)}")
        if ("apiserver" in self.parts) == (self.api_url is not None):
            raise HostError("expected either the part apiserver or an api_url, not both and not neither")
        if self.extender is not None and "hami-scheduler" in self.parts:
            raise HostError("expected either the part hami-scheduler or an extender, not both")
        if self.extender is not None and set(self.extender) != {"url", "webhook_url", "ca_bundle"}:
            raise HostError("extender: expected url, webhook_url and ca_bundle")
        try:
            Release.parse(self.release)
            mutants.find(self.mutants)
            self.scheduler(self.device_config, self.scheduler_flags)
        except (ValueError, LookupError) as error:
            raise HostError(str(error)) from None

    def scheduler(self, device_config: Mapping[str, Any], flags: Mapping[str, Any]) -> SchedulerConfig:
        """Return the HAMi scheduler's configuration. Raises ValueError naming an unknown key or flag."""
        return dataclasses.replace(SchedulerConfig.from_flags(device_config, flags), release=self.release)


class Host:
    """The running parts. Commands are carried out one after the other by the caller."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._api_url = config.api_url or ""
        self._apiserver: ApiServer | None = None
        self._hami: HamiServer | None = None
        self._schedulers: list[KubeScheduler] = []
        self._node: NodeAgent | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> dict[str, Any]:
        """Start the parts in order and return the ready line. Raises HostError, after what had started is stopped."""
        try:
            await self._start()
        except (OSError, ApiError) as error:
            await self.stop()
            raise HostError(f"cannot start: {error}") from error
        except BaseException:
            await self.stop()
            raise
        versions = dict.fromkeys(self._config.parts, f"pytest-hami {__version__}")
        versions |= {part: self._config.release for part in ("hami-scheduler", "node") if part in versions}
        metrics = self._hami.metrics_url if self._hami else None
        return {"ready": True, "api_url": self._api_url, "metrics_url": metrics, "versions": versions}

    async def stop(self) -> None:
        """Stop the parts, those that others need last."""
        schedulers, self._schedulers = self._schedulers, []
        for scheduler in schedulers:
            await scheduler.stop()
        if self._node is not None:
            await self._node.stop()
            self._node = None
        if self._hami is not None:
            await self._hami.stop()
            self._hami = None
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._apiserver is not None:
            await self._apiserver.stop()
            self._apiserver = None

    async def command(self, op: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out a command and return its result. Raises HostError, also for an operation that does not exist."""
        try:
            match op:
                case "register":
                    return await self._scheduler().register()
                case "restart":
                    return await self._restart(str(arguments.get("part")))
                case "reconfigure":
                    return await self._reconfigure(str(arguments.get("part")), arguments)
                case "nodes":
                    return await self._nodes().nodes(arguments["nodes"])
                case "remove_nodes":
                    return await self._nodes().remove_nodes(arguments["nodes"])
        except ApiError as error:
            raise HostError(f"{op}: {error.message}") from error
        except KeyError as error:
            raise HostError(f"{op}: argument {error} is missing, or names something that does not exist") from error
        except (ValueError, LookupError, TypeError) as error:
            raise HostError(f"{op}: {error}") from error
        raise HostError(
            f"unknown operation {op!r}; known are register, restart, reconfigure, nodes, remove_nodes, stop"
        )

    async def _start(self) -> None:
        config = self._config
        if "apiserver" in config.parts:
            self._apiserver = ApiServer(port=config.port)
            try:
                await self._apiserver.start()
            except OSError as error:
                self._apiserver = None
                raise HostError(f"cannot serve on 127.0.0.1:{config.port}: {error.strerror}") from error
            self._api_url = self._apiserver.url
        self._session = aiohttp.ClientSession()
        api = Api(self._api_url, self._session)
        if "hami-scheduler" in config.parts:
            await self._start_hami(api)
        if config.extender is not None:
            await _ensure(api, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace"}, NAMESPACE)
            webhook = webhook_configuration(config.extender["webhook_url"], config.extender["ca_bundle"])
            await _ensure(api, WEBHOOKS, webhook, "hami-webhook")
        if "kube-scheduler" in config.parts:
            await self._start_schedulers()
        if "node" in config.parts:
            from pytest_hami.simulator.allocate import NodeRules
            from pytest_hami.simulator.node import NodeAgent
            from pytest_hami.simulator.plugins import ModelPlugins

            rules = mutants.rules_for("node", config.mutants) or NodeRules()
            self._node = NodeAgent(self._api_url, lambda api: ModelPlugins(api, rules), rules)
            await self._node.start()

    async def _start_hami(self, api: Api) -> None:
        config = self._config
        await _ensure(api, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace"}, NAMESPACE)
        scheduler = config.scheduler(config.device_config, config.scheduler_flags)
        self._hami = HamiServer(self._api_url, scheduler, mutants.rules_for("hami-scheduler", config.mutants))
        await self._hami.start()
        webhook = webhook_configuration(self._hami.webhook_url, self._hami.ca_bundle)
        await _ensure(api, WEBHOOKS, webhook, "hami-webhook")

    async def _start_schedulers(self) -> None:
        from pytest_hami.simulator.kube_scheduler import KubeScheduler

        rules = mutants.rules_for("kube-scheduler", self._config.mutants)
        hami = self._hami
        schedulers = [
            KubeScheduler(
                self._api_url,
                scheduler_name="default-scheduler",
                extender_url=None,
                ca_bundle=None,
                managed_resources=(),
                rules=rules,
            )
        ]
        outside = self._config.extender
        if hami is not None or outside is not None:
            served = hami.config if hami else self._config.scheduler({}, {})
            schedulers.append(
                KubeScheduler(
                    self._api_url,
                    scheduler_name=served.scheduler_name,
                    extender_url=outside["url"] if outside else hami.extender_url if hami else None,
                    ca_bundle=outside["ca_bundle"] if outside else hami.ca_bundle if hami else None,
                    managed_resources=managed_resources(served.devices),
                    rules=rules,
                )
            )
        for scheduler in schedulers:
            await scheduler.start()
            self._schedulers.append(scheduler)

    async def _restart(self, part: str) -> None:
        if part == "hami-scheduler":
            await self._scheduler().restart()
        elif part == "node":
            await self._nodes().restart()
        else:
            raise HostError(f"restart: part {part!r}; expected hami-scheduler or node")

    async def _reconfigure(self, part: str, arguments: Mapping[str, Any]) -> None:
        if part == "node":
            await self._nodes().reconfigure(arguments["node"], arguments.get("config") or {})
            return
        if part != "hami-scheduler":
            raise HostError(f"reconfigure: part {part!r}; expected hami-scheduler or node")
        config = self._config.scheduler(arguments.get("device_config") or {}, arguments.get("scheduler_flags") or {})
        hami = self._scheduler()
        before = hami.config
        await hami.restart(config)
        # kube-scheduler's own configuration repeats the scheduler's name and the managed resources, as in the chart.
        if _seen_by_kube_scheduler(before) != _seen_by_kube_scheduler(config) and self._schedulers:
            schedulers, self._schedulers = self._schedulers, []
            for scheduler in schedulers:
                await scheduler.stop()
            await self._start_schedulers()

    def _scheduler(self) -> HamiServer:
        if self._hami is None:
            raise HostError("this cluster has no simulated hami-scheduler")
        return self._hami

    def _nodes(self) -> NodeAgent:
        if self._node is None:
            raise HostError("this cluster has no simulated node part")
        return self._node


def managed_resources(devices: DeviceConfig) -> tuple[str, ...]:
    """Return the resources that kube-scheduler leaves to HAMi (chart 2.10.0, templates/scheduler/configmap.yaml)."""
    return (
        devices.count_name,
        devices.memory_name,
        devices.cores_name,
        devices.percentage_name,
        devices.priority_name,
    )


def webhook_configuration(url: str, ca_bundle: str) -> dict[str, Any]:
    """Return the object that HAMi's chart 2.10.0 installs (templates/scheduler/webhook.yaml), for a loopback URL.

    ``ca_bundle`` is base64 of a PEM text.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "webhooks": [
            {
                "name": "vgpu.hami.io",
                "admissionReviewVersions": ["v1beta1"],
                "clientConfig": {"url": url, "caBundle": ca_bundle},
                "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": [OPT_OUT]},
                "objectSelector": {"matchExpressions": [OPT_OUT]},
                "reinvocationPolicy": "Never",
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "*",
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }


def _seen_by_kube_scheduler(config: SchedulerConfig) -> tuple[str, ...]:
    return (config.scheduler_name, *managed_resources(config.devices))


async def _ensure(api: Api, path: str, body: dict[str, Any], name: str) -> None:
    try:
        await api.create(path, body | {"metadata": {"name": name}})
    except ApiError as error:
        if error.code != 409:
            raise
        # An API server that outlived an earlier cluster still has the old address and authority.
        await api.merge_patch(f"{path}/{name}", body)
