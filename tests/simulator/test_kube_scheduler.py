"""The model of kube-scheduler: what must not stop it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pytest_hami.simulator.kube_scheduler import KubeScheduler

POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"schedulerName": "s", "containers": []},
    "status": {},
}  # fmt: skip


class DeletesWhatIsPatched:
    """An API in which the pod goes while its condition is written."""

    def __init__(self, scheduler: KubeScheduler) -> None:
        self._scheduler = scheduler
        self.created: list[str] = []

    async def merge_patch(self, path: str, body: dict[str, Any]) -> None:
        self._scheduler._pod_event("DELETED", POD)

    async def create(self, path: str, body: dict[str, Any]) -> None:
        self.created.append(body["reason"])


def test_a_pod_that_goes_while_it_is_refused_ends_nothing() -> None:
    async def refuse() -> list[str]:
        scheduler = KubeScheduler(
            "http://unused", scheduler_name="s", extender_url=None, ca_bundle=None, managed_resources=()
        )
        api = DeletesWhatIsPatched(scheduler)
        scheduler._api = api
        scheduler._pods = SimpleNamespace(items={"u": POD})
        await scheduler._refuse(POD, "SchedulerError", "the lock cannot be read", retry=True)
        return api.created

    assert asyncio.run(refuse()) == ["FailedScheduling"]
