"""What every cluster offers to the checks, whoever made it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pytest_hami.checks import Capability
from pytest_hami.processes import ClusterUnavailable as ClusterUnavailable  # noqa: PLC0414

if TYPE_CHECKING:
    from pytest_hami.cluster.fleet import Fleet
    from pytest_hami.kube.client import KubeClient
    from pytest_hami.kube.journal import Journal


# The parts that are HAMi's own.
HAMI_PARTS = frozenset({"hami-scheduler", "node", "monitor"})


class PartState(StrEnum):
    """Whether a part is the real thing."""

    SIMULATED = "simulated"
    REAL = "real"
    ABSENT = "absent"


@dataclass(frozen=True)
class Part:
    """One component of a cluster with the version that it reports or plays."""

    name: str
    state: PartState
    version: str = ""
    digest: str | None = None


@dataclass(frozen=True)
class Timing:
    """Limits in seconds that belong to this cluster, before ``--hami-timeout-scale``.

    ``place``: from create to bound or refused; ``start``: from bound to Ready; ``settle``: until metrics follow a poke;
    ``delete``: until an object is gone; ``restart``: until a restarted part serves again.
    """

    place: float
    start: float
    settle: float
    delete: float
    restart: float

    def scaled(self, factor: float) -> Timing:
        """Return the limits multiplied by ``factor``."""
        return Timing(*(factor * value for value in (self.place, self.start, self.settle, self.delete, self.restart)))


@dataclass(frozen=True)
class StagedCard:
    """A card as NVML tells of it: MiB in use, percent of its time, percent of its memory controller's time."""

    used: int
    utilisation: int
    controller: int


class CommandRefused(Exception):
    """The cluster is there and refuses what it was told, such as an unknown configuration key. The text is one line."""


class Cluster(ABC):
    """A cluster under test. ``start`` may return before it is ready; the other calls wait for it."""

    provider: str
    lane: str
    parts: tuple[Part, ...]
    capabilities: frozenset[Capability]
    release: str
    timing: Timing
    # How many equal sets of nodes tests should take in turn, where a node needs time to recover from one.
    fleet_copies = 1

    @abstractmethod
    def start(self) -> None:
        """Begin to make or adopt the cluster."""

    @abstractmethod
    def stop(self) -> None:
        """Take down what ``start`` made; safe to call twice."""

    @property
    @abstractmethod
    def kubeconfig(self) -> dict[str, Any]:
        """The kubeconfig as a mapping."""

    @property
    @abstractmethod
    def client(self) -> KubeClient:
        """A client of the API server."""

    @property
    @abstractmethod
    def journal(self) -> Journal:
        """The shared watch journal."""

    @abstractmethod
    def provision(self, fleets: Iterable[Fleet]) -> None:
        """Create the nodes of all fleets in one go."""

    @abstractmethod
    def node_name(self, fleet: Fleet, node: str) -> str:
        """Return the name that a fleet's node has in this cluster."""

    @abstractmethod
    def renew(self, fleet: Fleet) -> None:
        """Replace the nodes of a fleet whose state can no longer be trusted."""

    @abstractmethod
    def scheduler_metrics(self) -> str:
        """Return the text of the HAMi scheduler's ``/metrics``."""

    @abstractmethod
    def filter(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call the HAMi scheduler's ``/filter`` with these ExtenderArgs and return its ExtenderFilterResult.

        None when the connection ends without an answer. A cluster that cannot be asked lacks the capability ``extender``.
        """

    @abstractmethod
    def require_alive(self) -> None:
        """Raise ClusterUnavailable, with its last lines, when a part has ended by itself."""

    @abstractmethod
    def restart(self, part: str) -> None:
        """Restart a part and wait until it serves again. Raises CommandRefused where there is none, ClusterUnavailable."""

    @abstractmethod
    def configure_scheduler(self, device_config: Mapping[str, Any], flags: Mapping[str, str]) -> None:
        """Restart the HAMi scheduler with these device-config values and command-line flags (none = defaults)."""

    @abstractmethod
    def configure_node(self, node: str, config: Mapping[str, Any]) -> None:
        """Restart the device plugin of a node with these node-config values (none = defaults)."""

    @abstractmethod
    def poke(self) -> str:
        """Force a register run of the HAMi scheduler, as its 15 s tick would, and return its metrics after that run."""

    def monitor_metrics(self, node: str) -> str:
        """Return the metrics of the HAMi monitor of a node. Raises CommandRefused where there is none."""
        raise CommandRefused("this cluster has no HAMi monitor")

    def staged_card(self, index: int) -> StagedCard | None:
        """Return what the monitor is shown of each card with this index; None where what it sees is not staged."""
        return None

    @abstractmethod
    def remove_pokes(self) -> None:
        """Remove the nodes that pokes brought; they stay until then, because their end wakes every waiting pod."""

    def fleet_label(self, fleet: Fleet) -> str:
        """Return the value of the label ``pytest-hami.io/fleet`` on the present nodes of a fleet."""
        return fleet.name

    def answers(self) -> bool:
        """Return whether the API server answers right now."""
        try:
            self.client.get("Namespace", "default")
        except Exception as error:
            # Any answer of the server is an answer.
            return getattr(error, "code", None) is not None
        return True

    def fresh_metrics(self) -> str:
        """Return the HAMi scheduler's metrics after a register run that began after this call."""
        return self.poke()

    def tells(self) -> dict[str, str]:
        """Return what a running HAMi scheduler tells of its version: ``build_info``, and ``metrics``, the recorded release
        that has its series; empty texts where it does not tell.
        """
        from pytest_hami.contract import metrics
        from pytest_hami.kube.errors import HostileInput

        try:
            samples = metrics.parse(self.scheduler_metrics())
        except (metrics.MetricsError, HostileInput):
            # What is wrong with them is for the checks to say.
            samples = ()
        built = (dict(s.labels).get("version", "") for s in samples if s.name == metrics.BUILD_INFO)
        return {"build_info": next(built, ""), "metrics": str(metrics.release_of(samples) or "")}

    @property
    def hami_version(self) -> str:
        """The version that the HAMi scheduler should state: that of a real one, the played release of a simulated one."""
        (part,) = (part for part in self.parts if part.name == "hami-scheduler")
        return part.version if part.state is PartState.REAL else self.release

    @property
    def proves(self) -> str:
        """``hami`` when any HAMi part is real, else ``suite``."""
        real = {part.name for part in self.parts if part.state is PartState.REAL}
        return "hami" if real & HAMI_PARTS else "suite"
