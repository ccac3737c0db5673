"""Plays scenarios on a local cluster and writes down what its HAMi scheduler does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hami.cluster.composition import Composition
from pytest_hami.contract import releases
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import objects
from pytest_hami.record.session import Session
from pytest_hami.record.sync import Sync

if TYPE_CHECKING:
    from pytest_hami.cluster.local import LocalCluster

INPUTS = ("id", "kind", "seed", "about")
SETTINGS = ("scheduler_flags", "device_config")
RESOURCE_NAMES = frozenset(
    {
        "resourceCountName", "resourceMemoryName", "resourceCoreName", "resourceMemoryPercentageName", "resourcePriorityName",
    }
)  # fmt: skip


@contextmanager
def recorder(programs: Mapping[str, Path]) -> Iterator[Recorder]:
    """Start a local cluster with these programs, among them ``hami-scheduler``, and give its recorder.

    Raises CompositionRefused, ClusterUnavailable.
    """
    from pytest_hami.cluster.local import LocalCluster
    from pytest_hami.cluster.programs import identified, scheduler_flags

    composition = Composition.of_paths(programs)
    composition.require_possible()
    composition = identified(composition, 1.0)
    scheduler = composition.hami_scheduler
    assert scheduler is not None
    stated = releases.is_stated(scheduler.version)
    faced = releases.faced(scheduler.version, () if stated else scheduler_flags(scheduler.path, 1.0))
    version = Release.parse(scheduler.version) if stated else faced.release
    cluster = LocalCluster(str(faced.release), composition, retries=False)
    try:
        cluster.start()
        yield Recorder(cluster, faced.release, version)
    finally:
        cluster.stop()


class Recorder:
    """One cluster for many scenarios, each on nodes of its own and with a scheduler that knows of no other."""

    def __init__(self, cluster: LocalCluster, release: Release, version: Release) -> None:
        """The cluster was started with ``retries=False``; ``release`` is what its HAMi scheduler is held against.

        ``version`` is what it calls itself.
        """
        self._cluster = cluster
        self._release = release
        self.version = version
        self._sync = Sync(cluster)
        self._configured: tuple[dict[str, Any], dict[str, str]] = ({}, {})

    def record(self, scenario: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scenario with everything that was observed.

        Whatever the scenario itself holds as observed is not looked at. Raises ClusterUnavailable, WaitTimeout, ApiError.
        """
        self._configure(dict(scenario.get("device_config") or {}), objects.flags(scenario))
        session = Session(self._cluster, self._sync, self._release, scenario)
        try:
            observed = session.play()
        finally:
            session.clear()
            if session.leaves_traces:
                # HAMi keeps the namespaces in which it has counted.
                self._cluster.restart("hami-scheduler")
        settings = {key: scenario[key] for key in SETTINGS if scenario.get(key)}
        head = {key: scenario[key] for key in INPUTS if key in scenario}
        if RESOURCE_NAMES & settings.get("device_config", {}).keys():
            settings["managed_resources"] = list(self._cluster.extender["managed_resources"])
        return {**head, "release": str(self.version), **settings, "fleet": scenario["fleet"], **observed}

    def _configure(self, device_config: dict[str, Any], flags: dict[str, str]) -> None:
        if (device_config, flags) != self._configured:
            self._cluster.configure_scheduler(device_config, flags)
            self._configured = (device_config, flags)
