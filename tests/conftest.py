"""Fixtures for tests of both sides of the Kubernetes API."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from pytest_hami import assets as kubernetes_assets
from pytest_hami.kube.client import KubeClient
from pytest_hami.simulator.apiserver import ApiServer

T = TypeVar("T")


def pytest_configure() -> None:
    """Let a busy machine be slow: time is no property of what is tested here."""
    quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("busy", quiet)
    settings.load_profile("busy")


class ServedApi:
    """The simulated API server in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = ApiServer()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self.server.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=20)

    @property
    def kubeconfig(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "t",
            "clusters": [{"name": "t", "cluster": {"server": self.server.url}}], "users": [{"name": "t", "user": {}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        }  # fmt: skip

    def stop(self) -> None:
        if self.loop.is_closed():
            return
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        self.loop.close()


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """Keep what somebody set for own runs, such as HAMI_SCHEDULER, out of the runs that these tests start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HAMI_") or name == "KUBEBUILDER_ASSETS"]:
            patch.delenv(name)
        yield


# Read before the fixture above hides them.
DEVICE_PLUGIN = os.environ.get("HAMI_DEVICE_PLUGIN")
ASSETS = os.environ.get("HAMI_ASSETS") or os.environ.get("KUBEBUILDER_ASSETS")
SCHEDULER = os.environ.get("HAMI_SCHEDULER")


@pytest.fixture(scope="session")
def assets() -> Path:
    """A directory with etcd, kube-apiserver, kube-scheduler and kubectl; skips by name, or fails where CI must have it."""
    folder = Path(ASSETS) if ASSETS else kubernetes_assets.directory()
    missing = set(kubernetes_assets.ASSETS) - set(kubernetes_assets.present(folder))
    if missing:
        text = f"{folder} has no {', '.join(sorted(asset.name for asset in missing))}; build: pytest-hami assets build"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return folder


@pytest.fixture(scope="session")
def real_scheduler() -> Path:
    """A HAMi scheduler binary; skips by name, as nobody can install one."""
    if not SCHEDULER:
        pytest.skip("no HAMi scheduler: make scheduler in a HAMi checkout, then HAMI_SCHEDULER=bin/scheduler")
    return Path(SCHEDULER).resolve()


@pytest.fixture(scope="session")
def device_plugin() -> Path:
    """HAMi's own device plugin; skips by name where the environment names none, for CI cannot build it."""
    if not DEVICE_PLUGIN:
        pytest.skip("HAMI_DEVICE_PLUGIN names no device plugin of HAMi")
    return Path(DEVICE_PLUGIN)


@pytest.fixture(scope="session")
def tool() -> Callable[..., str]:
    """Find a program by one of its names; without it the test is skipped by name, or fails where CI must have it."""

    def find(*names: str, remedy: str) -> str:
        found = next(filter(None, map(shutil.which, names)), "")
        if not found:
            text = f"no {names[0]}; {remedy}"
            if os.environ.get("CI"):
                pytest.fail(text)
            pytest.skip(text)
        return found

    return find


@pytest.fixture
def api() -> Iterator[ServedApi]:
    """An empty API server."""
    served = ServedApi()
    yield served
    served.stop()


@pytest.fixture
def kube(api: ServedApi) -> Iterator[KubeClient]:
    """A client of the empty API server."""
    client = KubeClient.connect(api.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def pod() -> dict[str, Any]:
    """A pod that nobody schedules."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "busybox"}]},
    }  # fmt: skip
