"""Which pod an Allocate is for: the plugin is not told, and takes the one that the node lock names.

Source: HAMi 2.10.0, pkg/util/util.go (GetPendingPod) and pkg/util/nodelock/nodelock.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_hami.kubelet.plugin import AllocateError
from pytest_hami.simulator.deviceplugin.objects import ObjectError, Objects, Pod, PodKey, notes_of
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.hami import lock


async def pending_pod(objects: Objects, node: str, rules: NodeRules) -> Pod:
    """Return the pod. Raises AllocateError, upon which nothing is written anywhere."""
    if not node:
        raise AllocateError("resource name may not be empty")
    try:
        text = (await objects.node_annotations(node)).get(lock.LOCK)
        owner = None if text is None else lock_owner(text)
        if owner is not None:
            return await objects.pod(owner)
        found = first_pending(await objects.pods(node), node, rules)
    except ObjectError as error:
        raise AllocateError(str(error)) from None
    if found is None:
        raise AllocateError(f"no binding pod found on node {node}")
    return found


def lock_owner(text: str) -> PodKey | None:
    """Return namespace and name in a lock; None where it has not both. Raises AllocateError."""
    told = lock.parse(text)
    if isinstance(told, str):
        raise AllocateError(told)
    _, namespace, name = told
    return (namespace, name) if namespace and name else None


def first_pending(pods: Sequence[Pod], node: str, rules: NodeRules) -> Pod | None:
    """Return the first pod of a list that seems to wait for an Allocate."""
    for pod in pods:
        notes = notes_of(pod)
        if (
            pod["status"].get("phase") == "Pending"
            and "hami.io/bind-time" in notes
            and rules.accepts_phase(notes.get("hami.io/bind-phase"))
            and notes.get("hami.io/vgpu-node") == node
        ):
            return pod
    return None
