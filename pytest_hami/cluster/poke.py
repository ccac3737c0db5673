"""The poke: a node that comes, and with it a register run of the HAMi scheduler.

It stays until ``remove_pokes``: its end would wake every waiting pod once more, and HAMi tells of no more than 25 events
of a pod (client-go, spam filter).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_hami.kube.client import KubeClient

# HAMi asks a node for a handshake, one API call after the other for each vendor, unless it is asked already; this question
# never gets old (HAMi 2.10.0, pkg/device/devices.go, CheckHealth).
ASKED = "Requesting_2999-01-01 00:00:00"
HANDSHAKES = {f"hami.io/node-handshake{vendor}": ASKED for vendor in ("", "-dcu", "-xpu", "-va", "-biren")}
LABEL = "pytest-hami.io/poke"
DEVICE = '[{{"id":"{uuid}","count":1,"devmem":1,"devcore":100,"type":"NVIDIA poke","mode":"hami-core","health":true}}]'


def poke(
    client: KubeClient, name: str, metrics: Callable[[], str], limit: float, labels: Mapping[str, str] | None = None
) -> str:
    """Add a tainted node and wait for its series; return the metrics in which they were seen.

    They are those of a register run that began after this call, or of a later one. ``labels`` are what HAMi wants of a
    node that it looks at. Raises WaitTimeout.
    Source: HAMi 2.10.0, pkg/scheduler/scheduler.go (register runs on the tick and on Node ADD and DELETE).
    """
    from pytest_hami.kube.nodes import bystander
    from pytest_hami.kube.wait import poll

    uuid = f"GPU-{name}-card"
    notes = {"hami.io/node-nvidia-register": DEVICE.format(uuid=uuid), **HANDSHAKES}
    client.create("Node", bystander(name, notes, shares=1, labels={LABEL: "", **(labels or {})}))
    return poll(
        lambda: text if uuid in (text := metrics()) else "",
        timeout=limit,
        missing=lambda: f"a register run: the series of node {name} in the HAMi scheduler's /metrics",
    )


def remove_pokes(client: KubeClient) -> None:
    """Remove the nodes of all pokes. Raises ApiError."""
    client.delete_all("Node", None, selector=LABEL)
