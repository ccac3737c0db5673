"""Waiting for a webhook configuration to take effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_hami.cluster.base import ClusterUnavailable

if TYPE_CHECKING:
    from pytest_hami.kube.client import KubeClient


def await_webhook(client: KubeClient, extender: Mapping[str, Any], limit: float) -> None:
    """Wait until the API server sends pods to HAMi's webhook, found out by dry runs. Raises ClusterUnavailable.

    A configuration takes effect a moment after it was created, and until then pods pass silently as they are.
    ``extender`` has the scheduler's name and its resources, ``limit`` is in seconds.
    """
    from pytest_hami.kube.errors import ApiError
    from pytest_hami.kube.wait import WaitTimeout, poll

    limits = {extender["managed_resources"][0]: "1"}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hami-webhook-probe"},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]},
    }  # fmt: skip

    def mutated() -> bool:
        stored = client.create("Pod", pod, "default", dry_run=True)
        return bool(stored["spec"].get("schedulerName") == extender["scheduler_name"])

    try:
        poll(mutated, timeout=limit, missing=lambda: "a pod that HAMi's webhook changed")
    except WaitTimeout:
        raise ClusterUnavailable(f"apiserver: sends no pod to HAMi's webhook within {limit:g} s") from None
    except ApiError as error:
        raise ClusterUnavailable(f"apiserver: cannot try HAMi's webhook: {error}") from None
