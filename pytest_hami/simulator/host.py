"""The embedded cluster as a whole: which parts run, in which order they start and stop, and what they can be told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from pytest_hami import __version__
from pytest_hami.contract.releases import Release
from pytest_hami.processes import ClusterUnavailable
from pytest_hami.simulator import mutants
from pytest_hami.simulator.apiserver import ApiServer
from pytest_hami.simulator.client import Access, Api, ApiError
from pytest_hami.simulator.hami import chart
from pytest_hami.simulator.hami.chart import Extender
from pytest_hami.simulator.hami.config import SchedulerConfig
from pytest_hami.simulator.hami.server import HamiServer

if TYPE_CHECKING:
    from pytest_hami.kubelet.lane import Lanes
    from pytest_hami.kubelet.monitor import HamiMonitors
    from pytest_hami.kubelet.plugin import Plugins
    from pytest_hami.simulator.controllers import Controllers
    from pytest_hami.simulator.deviceplugin.rules import NodeRules
    from pytest_hami.simulator.kube_scheduler import KubeScheduler
    from pytest_hami.simulator.node import NodeAgent

PARTS = ("apiserver", "controllers", "hami-scheduler", "kube-scheduler", "node")
EMBEDDED = ("apiserver", "hami-scheduler", "kube-scheduler", "node")


class HostError(Exception):
    """A configuration or command that cannot be carried out; the text is one line."""


class HostLost(HostError):
    """Something that this cluster is made of cannot be had, or has ended; the text is one line."""


@dataclass(frozen=True)
class HostConfig:
    """What the embedded cluster is made of.

    ``api`` is the API server outside of this process, only where none is among ``parts``, and ``kubelet`` the paths of the
    certificate and key with which its kubelet serves. ``extender`` is the HAMi scheduler outside of this process,
            f"unknown operation {op!r}; known are register, restart, reconfigure, try_again, nodes, monitor, remove_nodes, "
            "stop"
    """

    release: str = "2.10.0"
    parts: tuple[str, ...] = EMBEDDED
    api: Access | None = None
    kubelet: tuple[str, str] | None = None
    mutants: tuple[str, ...] = ()
    device_config: Mapping[str, Any] = field(default_factory=dict)
    scheduler_flags: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    extender: Extender | None = None
    device_plugin: Mapping[str, Any] | None = None
    retries: bool = True
    monitor: Mapping[str, Any] | None = None

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
        for key in ("parts", "mutants", "kubelet"):
            if values.get(key) is not None:
                values[key] = tuple(values[key])
        try:
            if values.get("api") is not None:
                values["api"] = Access(**values["api"])
            if values.get("extender") is not None:
                values["extender"] = Extender.from_dict(values["extender"])
        except (TypeError, ValueError) as error:
            raise HostError(f"configuration: {error}") from None
        config = cls(**values)
        config.check()
        return config

    def check(self) -> None:
        """Raises HostError for what cannot run."""
        for part in self.parts:
            if part not in PARTS:
                raise HostError(f"unknown part {part!r}; known are {', '.join(PARTS)}")
        if ("apiserver" in self.parts) == (self.api is not None):
            raise HostError("expected either the part apiserver or an api, not both and not neither")
        if {"apiserver", "controllers"} <= set(self.parts):
            raise HostError("the part apiserver does the work of controllers itself; expected one of them")
        if self.extender is not None and "hami-scheduler" in self.parts:
            raise HostError("expected either the part hami-scheduler or an extender, not both")
        try:
            Release.parse(self.release)
            mutants.find(self.mutants)
            self.scheduler(self.device_config, self.scheduler_flags)
        except (ValueError, LookupError) as error:
            raise HostError(str(error)) from None

    def scheduler(self, device_config: Mapping[str, Any], flags: Mapping[str, Any]) -> SchedulerConfig:
        """Return the HAMi scheduler's configuration. Raises ValueError naming an unknown key or flag."""
        return SchedulerConfig.from_flags(device_config, flags, self.release)


class Host:
    """The running parts. Commands are carried out one after the other by the caller."""

    def __init__(self, config: HostConfig, on_loss: Callable[[str], None] = lambda _: None) -> None:
        """``on_loss`` is told why something that this cluster is made of has ended by itself."""
        self._config = config
        self._on_loss = on_loss
        self._lanes = _lanes(config.device_plugin or config.monitor)
        self._access = config.api or Access("")
        self._extender = config.extender
        self._apiserver: ApiServer | None = None
        self._controllers: Controllers | None = None
        self._hami: HamiServer | None = None
        self._schedulers: list[KubeScheduler] = []
        self._node: NodeAgent | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> dict[str, Any]:
        """Start the parts in order and return the ready line. Raises HostError, after what had started is stopped."""
        try:
            await self._start()
        except (OSError, ApiError, ClusterUnavailable) as error:
            await self.stop()
            raise HostError(f"cannot start: {error}") from error
        except BaseException:
            await self.stop()
            raise
        versions = dict.fromkeys(self._config.parts, f"pytest-hami {__version__}")
        versions |= {part: self._config.release for part in ("hami-scheduler", "node") if part in versions}
        metrics = self._hami.metrics_url if self._hami else None
        return {
            "ready": True, "api_url": self._access.url, "metrics_url": metrics, "versions": versions,
            "extender": self._extender_dict(),
        }  # fmt: skip

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
        if self._controllers is not None:
            await self._controllers.stop()
            self._controllers = None
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
                case "try_again":
                    for scheduler in self._schedulers:
                        await scheduler.try_again(arguments["pods"])
                    return None
                case "nodes":
                    return await self._nodes().nodes(arguments["nodes"])
                case "monitor":
                    return await self._nodes().monitor(arguments["node"])
                case "remove_nodes":
                    await self._nodes().remove_nodes(arguments["nodes"])
                    if self._lanes is not None:
                        self._lanes.remove(arguments["nodes"])
                    return None
        except ApiError as error:
            raise HostError(f"{op}: {error.message}") from error
        except KeyError as error:
            raise HostError(f"{op}: argument {error} is missing, or names something that does not exist") from error
        except ClusterUnavailable as error:
            raise HostLost(str(error)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise HostError(f"{op}: {error}") from error
        raise HostError(
            f"unknown operation {op!r}; known are register, restart, reconfigure, try_again, nodes, monitor, remove_nodes, "
            "stop"
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
            self._access = Access(self._apiserver.url)
        self._session = aiohttp.ClientSession()
        api = Api(self._access, self._session)
        if "controllers" in config.parts:
            from pytest_hami.simulator.controllers import Controllers

            self._controllers = Controllers(self._access)
            await self._controllers.start()
        if "hami-scheduler" in config.parts:
            await self._start_hami()
        if self._extender is not None:
            await chart.install(api, self._extender)
        if "kube-scheduler" in config.parts:
            await self._start_schedulers()
        if "node" in config.parts:
            from pytest_hami.simulator.deviceplugin.rules import NodeRules
            from pytest_hami.simulator.node import NodeAgent

            rules = mutants.rules_for("node", config.mutants) or NodeRules()
            self._node = NodeAgent(
                self._access, lambda api: self._plugins(api, rules), rules, config.kubelet, self._monitors()
            )
            await self._node.start()

    def _plugins(self, api: Api, rules: NodeRules) -> Plugins:
        if self._config.device_plugin is None or self._lanes is None:
            from pytest_hami.simulator.plugins import ModelPlugins

            return ModelPlugins(api, rules)
        from pytest_hami.kubelet.hami import HamiPlugins
        from pytest_hami.kubelet.program import HamiProgram

        return HamiPlugins(HamiProgram.from_dict(self._config.device_plugin), self._lanes, self._on_loss)

    def _monitors(self) -> HamiMonitors | None:
        if self._config.monitor is None or self._lanes is None:
            return None
        from pytest_hami.kubelet.monitor import HamiMonitors
        from pytest_hami.kubelet.program import HamiProgram

        return HamiMonitors(HamiProgram.from_dict(self._config.monitor), self._lanes, self._on_loss)

    async def _start_hami(self) -> None:
        config = self._config
        scheduler = config.scheduler(config.device_config, config.scheduler_flags)
        rules = mutants.rules_for("hami-scheduler", config.mutants, scheduler.traits)
        self._hami = HamiServer(self._access, scheduler, rules)
        await self._hami.start()
        self._extender = _extender(self._hami)

    async def _start_schedulers(self) -> None:
        from pytest_hami.simulator.kube_scheduler import ON_DEMAND, Backoff, KubeScheduler

        backoff = Backoff() if self._config.retries else ON_DEMAND
        rules = mutants.rules_for("kube-scheduler", self._config.mutants)
        schedulers = [
            KubeScheduler(
                self._access,
                scheduler_name="default-scheduler",
                extender_url=None,
                ca_bundle=None,
                managed_resources=(),
                rules=rules,
                backoff=backoff,
            )
        ]
        extender = self._extender
        if extender is not None:
            schedulers.append(
                KubeScheduler(
                    self._access,
                    scheduler_name=extender.scheduler_name,
                    extender_url=extender.url,
                    ca_bundle=extender.ca_bundle,
                    managed_resources=extender.managed_resources,
                    rules=rules,
                    backoff=backoff,
                )
            )
        for scheduler in schedulers:
            await scheduler.start()
            self._schedulers.append(scheduler)

    async def _restart(self, part: str) -> None:
        if part == "hami-scheduler":
            await self._scheduler().restart()
        elif part in {"node", "device-plugin"}:
            await self._nodes().restart()
        elif part == "kube-scheduler" and self._schedulers:
            await self._restart_schedulers()
        elif part == "kube-apiserver" and self._apiserver is not None:
            # Its objects stay, as those of a real one do in etcd; every connection and watch ends.
            await self._apiserver.stop()
            await self._apiserver.start()
        else:
            raise HostError(
                f"restart: no simulated part {part!r} here; expected one of {', '.join(self._restartable())}"
            )

    def _restartable(self) -> list[str]:
        here = {
            "hami-scheduler": self._hami, "kube-apiserver": self._apiserver, "kube-scheduler": self._schedulers,
            "node": self._node,
        }  # fmt: skip
        return [name for name, part in here.items() if part]

    async def _restart_schedulers(self) -> None:
        schedulers, self._schedulers = self._schedulers, []
        for scheduler in schedulers:
            await scheduler.stop()
        await self._start_schedulers()

    async def _reconfigure(self, part: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        before = self._extender
        if part == "node":
            await self._nodes().reconfigure(arguments["node"], arguments.get("config") or {})
        elif part == "hami-scheduler":
            flags = arguments.get("scheduler_flags") or {}
            await self._scheduler().restart(self._config.scheduler(arguments.get("device_config") or {}, flags))
            self._extender = _extender(self._scheduler())
        elif part == "kube-scheduler":
            self._extender = Extender.from_dict(arguments["extender"])
        else:
            raise HostError(f"reconfigure: part {part!r}; expected hami-scheduler, kube-scheduler or node")
        # kube-scheduler's own configuration repeats the scheduler's name and the managed resources, as in the chart.
        if self._extender != before and self._schedulers:
            await self._restart_schedulers()
        return self._extender_dict()

    def _extender_dict(self) -> dict[str, Any] | None:
        return dataclasses.asdict(self._extender) if self._extender else None

    def _scheduler(self) -> HamiServer:
        if self._hami is None:
            raise HostError("this cluster has no simulated hami-scheduler")
        return self._hami

    def _nodes(self) -> NodeAgent:
        if self._node is None:
            raise HostError("this cluster has no simulated node part")
        return self._node


def _lanes(program: Mapping[str, Any] | None) -> Lanes | None:
    if program is None:
        return None
    from pytest_hami.kubelet.lane import Lanes

    return Lanes(Path(program["directory"]) / "lanes")


def _extender(hami: HamiServer) -> Extender:
    names = chart.managed_resources(hami.config.devices)
    return Extender(hami.extender_url, hami.ca_bundle, hami.config.scheduler_name, names)
