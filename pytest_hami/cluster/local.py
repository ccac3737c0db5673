"""The local provider: parts as processes of this machine, each simulated or real."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_hami.checks import Capability
from pytest_hami.cluster.access import ApiAccess
from pytest_hami.cluster.base import Cluster, ClusterUnavailable, StagedCard, Timing
from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.poke import poke, remove_pokes
from pytest_hami.cluster.real import RealParts
from pytest_hami.cluster.simulator import SimulatorProcess

if TYPE_CHECKING:
    from pytest_hami.cluster.fleet import Fleet
    from pytest_hami.kube.client import KubeClient
    from pytest_hami.kube.journal import Journal

START_LIMIT = 20.0
# Each node of a poke makes the next register run a little longer.
MOST_POKES = 30
# A lost wake-up or a bind race costs a real scheduler a second or two now and then.
REAL_TIMING = Timing(place=15, start=10, settle=5, delete=10, restart=30)
# A device plugin may ask its API server ten times at once, then five times a second, and needs eight for an Allocate.
# Nodes that rest for some tests begin with a full burst (HAMi 2.10.0, pkg/util/client: client-go's defaults).
PLUGIN_COPIES = 4
SIMULATED_TIMING = Timing(place=4, start=4, settle=2, delete=4, restart=10)
SIMULATED_CAPABILITIES = frozenset(Capability) - {
    Capability.CUDA,
    Capability.MONITOR,
    Capability.MONITOR_METRICS,
    Capability.MIG_PLACEMENT,
    Capability.MESH,
}


def _capabilities(composition: Composition) -> frozenset[Capability]:
    found = SIMULATED_CAPABILITIES
    if composition.device_plugin:
        # Each of its nodes is a process, and a slow one.
        found -= {Capability.CHEAP_NODES}
    if composition.monitor:
        found |= {Capability.MONITOR, Capability.MONITOR_METRICS}
    return found


class LocalCluster(Cluster):
    """Simulated parts in one child process, and the programs of its composition beside them.

    Nothing of it outlives us: the child ends when its standard input closes, the programs by a reaper.
    """

    provider = "local"

    def __init__(
        self,
        release: str,
        composition: Composition | None = None,
        *,
        mutants: Iterable[str] = (),
        timeout_scale: float = 1.0,
        port: int = 0,
        retries: bool = True,
    ) -> None:
        """``release`` is what simulated parts play, ``composition`` what is real: nothing without one.

        Without ``retries`` a simulated kube-scheduler tries a refused pod again only in ``try_again``.
        """
        self._composition = composition or Composition()
        self.release = release
        self.lane = self._composition.lane
        self.parts = self._composition.parts(release)
        self.capabilities = _capabilities(self._composition)
        self.timing = (REAL_TIMING if self._composition.programs else SIMULATED_TIMING).scaled(timeout_scale)
        self.fleet_copies = PLUGIN_COPIES if self._composition.device_plugin else 1
        self._mutants = tuple(mutants)
        self._scale = timeout_scale
        self._port = port
        self._retries = retries
        self._poke_labels: Mapping[str, str] = {}
        self._pokes = itertools.count(1)
        self._poked = 0
        self._generations: dict[str, int] = {}
        self._simulator: SimulatorProcess | None = None
        self._real: RealParts | None = None
        self._access: ApiAccess | None = None
        self._simulated_metrics = ""
        self._extender: Mapping[str, Any] = {}
        self._death = ""
        self._client: KubeClient | None = None
        self._journal: Journal | None = None

    def start(self) -> None:
        """Start what needs nobody else. Raises ClusterUnavailable when it cannot be started."""
        if self._simulator is not None:
            return
        atexit.register(self.stop)
        if self._composition.programs:
            self._real = RealParts(self._composition, self._scale, self._lose)
            self._real.launch_first()
        self._simulator = SimulatorProcess(self._real.environment if self._real else {}, self._lose)
        # The slowest import of a run, made while the others start.
        import kubernetes.config  # noqa: F401

    def stop(self) -> None:
        """End everything that was started, those that others need last."""
        atexit.unregister(self.stop)
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.stop()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        real, self._real = self._real, None
        simulator, self._simulator, self._access = self._simulator, None, None
        with contextlib.ExitStack() as stack:
            if real is not None:
                stack.callback(real.stop)
            if simulator is not None:
                stack.callback(simulator.stop)

    @property
    def api_url(self) -> str:
        """The URL of the API server."""
        return self._ready().url

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig with one context, ``hami``, for the loopback API server."""
        return self._ready().kubeconfig

    @property
    def client(self) -> KubeClient:
        """A client of the API server."""
        if self._client is None:
            from pytest_hami.kube.client import KubeClient

            self._client = KubeClient.connect(self.kubeconfig)
        return self._client

    @property
    def journal(self) -> Journal:
        """The shared watch journal, started on first use."""
        if self._journal is None:
            from pytest_hami.kube.journal import Journal

            self._journal = Journal(self.client)
            self._journal.start()
        return self._journal

    def provision(self, fleets: Iterable[Fleet]) -> None:
        """Create the nodes of all fleets with one command, and wait until HAMi has registered every card."""
        nodes = [
            node.to_create(self.node_name(fleet, node.name), self.fleet_label(fleet))
            for fleet in fleets
            for node in fleet.nodes
        ]
        self.command("nodes", nodes=nodes)
        self.poke()
        self.remove_pokes()

    def node_name(self, fleet: Fleet, node: str) -> str:
        """Return ``<fleet>-<node>``, with a generation once a fleet was renewed."""
        generation = self._generations.get(fleet.name, 0)
        return f"{fleet.name}-{node}" + (f"-r{generation}" if generation else "")

    def fleet_label(self, fleet: Fleet) -> str:
        """Return the fleet's name, with a generation once it was renewed, so that leftovers fit no new node."""
        generation = self._generations.get(fleet.name, 0)
        return fleet.name + (f"-r{generation}" if generation else "")

    def renew(self, fleet: Fleet) -> None:
        """Remove the nodes of a fleet and create them under new names."""
        self.command("remove_nodes", nodes=[self.node_name(fleet, node.name) for node in fleet.nodes])
        self._generations[fleet.name] = self._generations.get(fleet.name, 0) + 1
        self.provision([fleet])

    def scheduler_metrics(self) -> str:
        """Return the metrics of the HAMi scheduler."""
        from pytest_hami.kube.metrics import scrape

        self._ready()
        self.require_alive()
        hami = self._real.hami_scheduler if self._real else None
        return scrape(hami.metrics_url if hami else self._simulated_metrics)

    def filter(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call the HAMi scheduler's ``/filter`` and return its answer, None when the connection ends without one."""
        from pytest_hami.cluster.extender import call

        self._ready()
        self.require_alive()
        return call(f"{self._extender['url']}/filter", self._extender["ca_bundle"], arguments, self.timing.place)

    def monitor_metrics(self, node: str) -> str:
        """Return the metrics of the HAMi monitor of a node, which is started when it is asked for first."""
        from pytest_hami.kube.metrics import scrape

        url = self.command("monitor", node=node)
        self.require_alive()
        return scrape(str(url))

    def staged_card(self, index: int) -> StagedCard | None:
        """Return what our stand-in for NVML tells of a card; None where another library is named."""
        from pytest_hami.kubelet import nvml

        return None if self._composition.nvml else StagedCard(*nvml.staged_use(index))

    def require_alive(self) -> None:
        """Raise ClusterUnavailable, with its last lines, when a part has ended by itself."""
        if self._death:
            raise ClusterUnavailable(self._death)
        if self._real is not None:
            self._real.require_alive()

    def restart(self, part: str) -> None:
        """Restart ``hami-scheduler``, ``kube-scheduler``, ``kube-apiserver``, ``etcd`` or ``device-plugin``.

        Real or simulated; ``device-plugin`` is that of every node, and ``node`` another name for it.
        Raises CommandRefused for a part that this cluster has not.
        """
        self._ready()
        with self.journal.outage():
            if self._real is None or not self._real.restart(part):
                self.command("restart", part=part)
        self._poke(self.timing.restart)

    def configure_scheduler(self, device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        """Restart the HAMi scheduler with another device-config and other flags, and kube-scheduler where it must follow."""
        self._ready()
        hami = self._real.hami_scheduler if self._real else None
        selector = flags.get("node-label-selector") or ""
        self._poke_labels = dict(pair.split("=", 1) for pair in selector.split(",") if "=" in pair)
        if hami is not None:
            hami.configure(device_config, flags)
            extender = hami.extender.to_dict()
            if not self._composition.is_real("kube-scheduler"):
                self.command("reconfigure", part="kube-scheduler", extender=extender)
        else:
            extender = self.command(
                "reconfigure", part="hami-scheduler", device_config=dict(device_config), scheduler_flags=dict(flags)
            )
        self._extender = extender
        if self._real is not None:
            self._real.follow(extender)
        self.poke()

    def configure_node(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart a node's device plugin with another node-config."""
        self.command("reconfigure", part="node", node=node, config=dict(config))
        self.poke()

    def poke(self) -> str:
        """Force a register run and return the metrics of it or of a later one."""
        return self._poke(self.timing.settle)

    def _lose(self, obituary: str) -> None:
        self._death = self._death or obituary
        if self._journal is not None:
            self._journal.lose(self._death)

    def remove_pokes(self) -> None:
        """Remove the nodes that pokes brought."""
        if self._poked:
            self._poked = 0
            remove_pokes(self.client)

    def _poke(self, limit: float) -> str:
        if self._poked >= MOST_POKES:
            self.remove_pokes()
        self._poked += 1
        name = f"hami-poke-{os.getpid()}-{next(self._pokes)}"
        return poke(self.client, name, self.scheduler_metrics, limit, self._poke_labels)

    @property
    def extender(self) -> Mapping[str, Any]:
        """How the HAMi scheduler is reached: ``url`` of its verbs and ``ca_bundle``, base64 of a PEM text."""
        self._ready()
        return self._extender

    def try_again(self, pods: Iterable[str]) -> bool:
        """Make a simulated kube-scheduler try the refused pods with these UIDs once, and wait for that.

        Return False where it is real and does as it likes.
        """
        if self._composition.is_real("kube-scheduler"):
            return False
        self.command("try_again", pods=list(pods))
        return True

    def fresh_metrics(self) -> str:
        """Return the metrics after a register run, which a simulated scheduler can simply be told to make."""
        if self._composition.is_real("hami-scheduler"):
            return self.poke()
        self.command("register")
        return self.scheduler_metrics()

    def command(self, op: str, **arguments: Any) -> Any:
        """Send a command to the simulator and return its result. Raises CommandRefused, ClusterUnavailable."""
        self._ready()
        assert self._simulator is not None
        return self._simulator.command(op, self.timing.restart, arguments)

    def _ready(self) -> ApiAccess:
        if self._access is None:
            if self._simulator is None:
                raise ClusterUnavailable("embedded cluster: not started, or stopped already")
            self._access = self._bring_up(self._simulator)
        return self._access

    def _bring_up(self, simulator: SimulatorProcess) -> ApiAccess:
        """Bring up the rest, which needs the API server, as far as possible at once."""
        config: dict[str, Any] = {
            "release": self.release,
            "parts": list(self._composition.played),
            "mutants": list(self._mutants),
            "port": self._port,
            "retries": self._retries,
        }
        limit = START_LIMIT * self._scale
        real = self._real
        access = real.await_api() if real else None
        simulator.configure(config | (real.simulator_config() if real else {}))
        if access is None:
            access = ApiAccess(str(simulator.ready(limit)["api_url"]))
        if real is not None:
            real.launch_schedulers(access, lambda: simulator.ready(limit)["extender"])
            real.await_schedulers()
        ready = simulator.ready(limit)
        self._simulated_metrics = str(ready["metrics_url"])
        self._extender = ready["extender"]
        if self._composition.is_real("apiserver"):
            self._await_webhook(access, ready["extender"])
        return access

    def _await_webhook(self, access: ApiAccess, extender: Mapping[str, Any]) -> None:
        from pytest_hami.cluster.webhook import await_webhook
        from pytest_hami.kube.client import KubeClient

        self._client = KubeClient.connect(access.kubeconfig)
        await_webhook(self._client, extender, self.timing.settle)
