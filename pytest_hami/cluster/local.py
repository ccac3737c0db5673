"""The local provider: parts as processes of this machine; today every part is simulated, in one child process."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hami.checks import Capability
from pytest_hami.cluster.base import Cluster, ClusterUnavailable, CommandRefused, Timing
from pytest_hami.cluster.composition import Composition
from pytest_hami.cluster.hami_scheduler import RealHamiScheduler
from pytest_hami.text import one_line

if TYPE_CHECKING:
    from pytest_hami.cluster.fleet import Fleet
    from pytest_hami.kube.client import KubeClient
    from pytest_hami.kube.journal import Journal

START_LIMIT = 20.0
# A lost wake-up or a bind race costs a real scheduler a second or two now and then.
REAL_TIMING = Timing(place=15, start=10, settle=5, delete=10, restart=30)
SIMULATED_CAPABILITIES = frozenset(Capability) - {
    Capability.CUDA,
    Capability.MONITOR,
    Capability.MONITOR_METRICS,
    Capability.MIG_PLACEMENT,
    Capability.MESH,
}
POKE_DEVICE = (
    '[{{"id":"{uuid}","count":1,"devmem":1,"devcore":100,"type":"NVIDIA poke","mode":"hami-core","health":true}}]'
)


class LocalCluster(Cluster):
    """Simulated parts in a child process that ends when its standard input closes, so also when we are killed.

    The programs of its composition run beside them.
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
    ) -> None:
        """``release`` is what simulated parts play, ``composition`` what is real: nothing without one."""
        self._composition = composition or Composition()
        self.release = release
        self.lane = self._composition.lane
        self.parts = self._composition.parts(release)
        self.capabilities = SIMULATED_CAPABILITIES
        limits = REAL_TIMING if self._composition.programs else Timing(place=4, start=4, settle=2, delete=4, restart=10)
        self.timing = limits.scaled(timeout_scale)
        self._hami: RealHamiScheduler | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._mutants = tuple(mutants)
        self._scale = timeout_scale
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ids = itertools.count(1)
        self._pokes = itertools.count(1)
        self._generations: dict[str, int] = {}
        self._ready: dict[str, Any] | None = None
        self._client: KubeClient | None = None
        self._journal: Journal | None = None

    def start(self) -> None:
        """Start the child process. Raises ClusterUnavailable when it cannot be started."""
        if self._process is not None:
            return
        config: dict[str, Any] = {
            "release": self.release,
            "parts": list(self._composition.played),
            "api_url": None,
            "mutants": list(self._mutants),
            "device_config": {},
            "scheduler_flags": {},
            "port": self._port,
        }
        scheduler = self._composition.hami_scheduler
        if scheduler is not None:
            self._directory = tempfile.TemporaryDirectory(prefix="pytest-hami-")
            self._hami = RealHamiScheduler(scheduler.path, Path(self._directory.name), self._scale)
            config["extender"] = self._hami.extender
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pytest_hami.simulator"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ClusterUnavailable(f"embedded cluster: cannot start {sys.executable}: {error.strerror}") from None
        atexit.register(self.stop)
        self._write(config)
        threading.Thread(target=self._read, args=(self._process,), daemon=True, name="hami-simulator").start()
        # The slowest import of a run, made while the child starts.
        import kubernetes.config  # noqa: F401

    def stop(self) -> None:
        """End the child process and the journal."""
        atexit.unregister(self.stop)
        if self._journal is not None:
            self._journal.stop()
            self._journal = None
        if self._client is not None:
            self._client.close()
            self._client = None
        hami, self._hami = self._hami, None
        if hami is not None:
            hami.stop()
        process, self._process, self._ready = self._process, None, None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()

    @property
    def api_url(self) -> str:
        """The URL of the API server."""
        return str(self._wait_ready()["api_url"])

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig with one context, ``hami``, for the loopback API server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hami", "cluster": {"server": self.api_url}}],
            "users": [{"name": "hami", "user": {}}],
            "contexts": [{"name": "hami", "context": {"cluster": "hami", "user": "hami", "namespace": "default"}}],
            "current-context": "hami",
        }

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
        nodes = [self._node(fleet, node.name) for fleet in fleets for node in fleet.nodes]
        self.command("nodes", nodes=nodes)
        self.poke()

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

        if self._hami is not None:
            self._hami.require_alive()
            return scrape(self._hami.metrics_url)
        return scrape(str(self._wait_ready()["metrics_url"]))

    def restart(self, part: str) -> None:
        """Restart ``hami-scheduler`` or ``node``."""
        if part == "hami-scheduler" and self._hami is not None:
            self._restart_hami({}, {})
        else:
            self.command("restart", part=part)
        self.poke()

    def configure_scheduler(self, device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        """Restart the HAMi scheduler with another device-config and other flags."""
        if self._hami is not None:
            self._restart_hami(device_config, flags)
        else:
            self.command(
                "reconfigure", part="hami-scheduler", device_config=dict(device_config), scheduler_flags=dict(flags)
            )
        self.poke()

    def configure_node(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart a node's device plugin with another node-config."""
        self.command("reconfigure", part="node", node=node, config=dict(config))
        self.poke()

    def poke(self) -> str:
        """Add an unrelated tainted node, wait for its series, remove it: a Node event forces HAMi's register run.

        Returns the metrics in which the series were seen, so those of that register run or a later one.

        Source: HAMi 2.10.0, pkg/scheduler/scheduler.go (register runs on the tick and on Node ADD and DELETE).
        """
        from pytest_hami.kube.wait import poll

        name = f"hami-poke-{os.getpid()}-{next(self._pokes)}"
        capacity = {"cpu": "1", "memory": "1Gi", "pods": "1", "nvidia.com/gpu": "1"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name},
                "annotations": {"hami.io/node-nvidia-register": POKE_DEVICE.format(uuid=f"GPU-{name}")},
            },
            "spec": {"taints": [{"key": "pytest-hami.io/poke", "effect": "NoSchedule"}]},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        self.client.create("Node", body)
        try:
            return poll(
                lambda: text if f"GPU-{name}" in (text := self.scheduler_metrics()) else "",
                timeout=self.timing.settle,
                missing=lambda: f"a register run: the series of node {name} in the HAMi scheduler's /metrics",
            )
        finally:
            self.client.delete("Node", name)

    def fresh_metrics(self) -> str:
        """Return the metrics after a register run, which a simulated scheduler can simply be told to make."""
        if self._hami is not None:
            return self.poke()
        self.command("register")
        return self.scheduler_metrics()

    def command(self, op: str, **arguments: Any) -> Any:
        """Send a command to the simulator and return its result. Raises CommandRefused, ClusterUnavailable."""
        self._wait_ready()
        number = next(self._ids)
        self._write({"id": number, "op": op, **arguments})
        answer = self._answer(f"command {op}", self.timing.restart)
        if answer.get("id") != number:
            raise ClusterUnavailable(f"embedded cluster: {op}: expected answer {number}, got {one_line(answer)}")
        if not answer.get("ok"):
            raise CommandRefused(f"embedded cluster: {one_line(answer.get('error', answer))}")
        return answer.get("result")

    def _restart_hami(self, device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        assert self._hami is not None
        # A crash must not be repaired in silence.
        self._hami.require_alive()
        self._hami.stop()
        self._hami.start(self.kubeconfig, device_config, flags)

    def _node(self, fleet: Fleet, name: str) -> dict[str, Any]:
        node = next(node for node in fleet.nodes if node.name == name)
        full = self.node_name(fleet, name)
        taints = []
        for text in node.taints:
            pair, _, effect = text.rpartition(":")
            key, _, value = pair.partition("=")
            taints.append({"key": key, "effect": effect, **({"value": value} if value else {})})
        return {
            "name": full,
            "labels": {
                "kubernetes.io/hostname": full,
                "pytest-hami.io/fleet": self.fleet_label(fleet),
                **({"gpu": "on"} if node.cards else {}),
                **node.labels,
            },
            "annotations": node.annotations,
            "taints": taints,
            "devices": [
                {
                    "id": card.uuid, "index": card.index, "count": card.split, "devmem": card.memory,
                    "devcore": card.cores, "type": card.type, "numa": card.numa, "mode": card.mode, "health": True,
                }
                for card in node.cards
            ],
        }  # fmt: skip

    def _wait_ready(self) -> dict[str, Any]:
        if self._ready is None:
            if self._process is None:
                raise ClusterUnavailable("embedded cluster: not started, or stopped already")
            answer = self._answer("the ready line", START_LIMIT * self._scale)
            if not answer.get("ready"):
                raise ClusterUnavailable(f"embedded cluster: {answer.get('error', answer)}")
            self._ready = answer
            if self._hami is not None:
                self._hami.start(self.kubeconfig, {}, {})
        return self._ready

    def _answer(self, what: str, limit: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            raise ClusterUnavailable(f"embedded cluster: no answer to {what} within {limit:.0f} s") from None
        if answer is None:
            # The reader thread is gone, so every later call must find the end as well.
            self._answers.put(None)
            process = self._process
            code = process.wait(timeout=5) if process else None
            raise ClusterUnavailable(f"embedded cluster: its process ended (exit code {code}) while {what} was awaited")
        return answer

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                try:
                    self._answers.put(json.loads(line))
                except ValueError:
                    print(line.decode(errors="replace"), end="", file=sys.stderr)
        except (OSError, ValueError):
            pass
        self._answers.put(None)

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClusterUnavailable(f"embedded cluster: its process is gone: {error.strerror}") from None
