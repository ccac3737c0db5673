"""Waits until HAMi has taken notice, without a sleep and without changing what it decides.

HAMi's informers and its events each keep their order. So what was sent last and shows an effect tells that everything
before it has arrived too. Source: client-go, tools/cache/shared_informer.go and tools/record/event.go.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_hami.kube.errors import ApiError
from pytest_hami.kube.wait import WaitTimeout, poll, wait_until

if TYPE_CHECKING:
    from pytest_hami.cluster.local import LocalCluster

NAMESPACE = "hami-record"
"""Where everything is that belongs to the recording itself; HAMi's webhook is not asked about it."""
_SCHEDULER = "nobody"
# So large that nobody else asks for it, and still printed without an exponent.
_LEAST = 100_000


class Sync:
    """Marks that are sent after what was done, and looked for where HAMi shows what it knows."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._numbers = itertools.count(1)
        self._limit = cluster.timing.settle
        namespace = {
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"hami.io/webhook": "ignore"}},
        }  # fmt: skip
        with contextlib.suppress(ApiError):
            cluster.client.create("Namespace", namespace)

    def pods(self) -> None:
        """Wait until HAMi knows every pod as it is."""
        name = f"mark-{next(self._numbers)}"
        # HAMi counts a pod with these annotations, whoever wrote them; on a node that does not exist it harms nobody.
        notes = {"hami.io/vgpu-node": NAMESPACE, "hami.io/vgpu-devices-allocated": "GPU-mark,NVIDIA,1,0:;"}
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes},
            "spec": {"schedulerName": _SCHEDULER, "containers": [{"name": "mark", "image": "none"}]},
        }  # fmt: skip
        with self._created("Pod", pod):
            self._await_metrics(lambda text: f'"{name}"' in text, f"pod {name}")

    def quotas(self, resource: str) -> None:
        """Wait until HAMi knows every quota as it is; ``resource`` is its name of cores."""
        number = next(self._numbers)
        limit = str(_LEAST + number)
        quota = {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"mark-{number}"},
            "spec": {"hard": {f"limits.{resource}": limit}},
        }  # fmt: skip

        def shown(text: str) -> bool:
            return any(NAMESPACE in line and limit in line for line in text.splitlines())

        with self._created("ResourceQuota", quota):
            self._await_metrics(shown, f"a quota of {limit} {resource}")

    def nodes(self) -> str:
        """Make HAMi read the nodes, and return the metrics when the node that caused it is gone from them again."""
        self._cluster.poke()
        self._cluster.remove_pokes()
        return self._await_metrics(lambda text: "GPU-hami-poke" not in text, "a register run without the poke node")

    def events(self, count_resource: str) -> None:
        """Wait until every event that HAMi has made is in the journal; ``count_resource`` is its name of cards."""
        uid = f"mark-{next(self._numbers)}"
        limits = {"limits": {count_resource: "1"}}
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": uid, "namespace": NAMESPACE, "uid": uid},
            "spec": {"containers": [{"name": "mark", "image": "none", "resources": limits}]}, "status": {},
        }  # fmt: skip
        self._cluster.filter({"Pod": pod, "NodeNames": [NAMESPACE]})
        journal = self._cluster.journal
        wait_until(
            journal,
            lambda: bool(journal.events_of(uid)),
            timeout=self._limit,
            missing=lambda: "the event of a pod that the HAMi scheduler was asked about",
        )

    @contextlib.contextmanager
    def _created(self, kind: str, body: Mapping[str, Any]) -> Iterator[None]:
        client, name = self._cluster.client, body["metadata"]["name"]
        client.create(kind, body, NAMESPACE)
        try:
            yield
        finally:
            client.delete(kind, name, NAMESPACE, grace_seconds=0)

    def _await_metrics(self, shown: Callable[[str], bool], what: str) -> str:
        def seen() -> str:
            text = self._cluster.scheduler_metrics()
            return text if shown(text) else ""

        try:
            return poll(seen, timeout=self._limit, missing=lambda: what)
        except WaitTimeout:
            self._cluster.require_alive()
            raise
