"""The bind verb of the HAMi scheduler: node lock, phase, Binding (HAMi, pkg/scheduler/scheduler.go, Bind)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_hami.contract.events import bind_succeeded
from pytest_hami.simulator.client import Api, ApiError
from pytest_hami.simulator.hami import lock

if TYPE_CHECKING:
    from pytest_hami.simulator.hami.recorder import Recorder
    from pytest_hami.simulator.hami.scheduler import HamiScheduler

POD_GROUP = "scheduling.x-k8s.io/pod-group"
GROUP_PAUSE = 0.1
CONFLICT_TRIES = 5
CONFLICT_PAUSE = 0.1


@dataclass(frozen=True)
class BindArgs:
    """What kube-scheduler sends to the bind verb."""

    name: str
    namespace: str
    uid: str
    node: str


class BindError(Exception):
    """A bind that fails; the text goes to the caller and into the BindingFailed event."""


class Binder:
    """Binds pods to nodes one request at a time, without state of its own."""

    def __init__(self, api: Api, model: HamiScheduler, recorder: Recorder) -> None:
        self._api = api
        self._model = model
        self._recorder = recorder
        self._rules = model.rules
        self._traits = model.config.traits
        self._lock_timeout = model.config.node_lock_timeout
        self._group_timeout = model.config.node_lock_retry_timeout

    async def bind(self, args: BindArgs) -> str:
        """Bind a pod and return the error text, empty on success.

        A failure after the pod and node were found keeps the reservation, as HAMi does.
        """
        try:
            pod = await self._pod(args)
        except ApiError as error:
            self._model.unknown(args.uid)
            return error.message
        try:
            await self._check_node(args.node)
        except ApiError as error:
            self._model.unknown(args.uid)
            await self._recorder.record(pod, "Warning", "BindingFailed", f"failed to get node {args.node}")
            return error.message
        locks = self._model.needs_lock(pod)
        try:
            if locks:
                await self._take_lock(pod, args)
            await self._bind(pod, args)
        except (BindError, ApiError) as error:
            if locks:
                await self._release(args)
            await self._recorder.record(pod, "Warning", "BindingFailed", str(error))
            return str(error)
        text = bind_succeeded(args.node, args.namespace, args.name)
        self._recorder.record_later(pod, "Normal", "BindingSucceed", text)
        return ""

    async def _pod(self, args: BindArgs) -> Mapping[str, Any]:
        if not self._rules.binds_from_cache():
            return await self._api.get(f"/api/v1/namespaces/{args.namespace}/pods/{args.name}")
        pod = self._model.known_pod(args.namespace, args.name)
        if pod is None:
            raise ApiError(404, "NotFound", f'pod "{args.name}" not found')
        return pod

    async def _check_node(self, name: str) -> None:
        if not self._rules.binds_from_cache():
            await self._api.get(f"/api/v1/nodes/{name}")
        elif not self._model.known_node(name):
            raise ApiError(404, "NotFound", f'node "{name}" not found')

    async def _bind(self, pod: Mapping[str, Any], args: BindArgs) -> None:
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        await self._api.merge_patch(path, {"metadata": {"annotations": self._model.bind_annotations(dict(pod))}})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args.name, "namespace": args.namespace, "uid": args.uid},
            "target": {"kind": "Node", "name": args.node},
        }
        await self._api.create(f"{path}/binding", binding)

    async def _take_lock(self, pod: Mapping[str, Any], args: BindArgs) -> None:
        if not (_in_pod_group(pod) and self._rules.waits_in_group() and self._group_timeout > 0):
            await self._try_lock(args)
            return
        deadline = asyncio.get_running_loop().time() + self._group_timeout
        while True:
            try:
                await self._try_lock(args)
            except BindError as error:
                if not str(error).endswith(lock.CONTENTION):
                    raise
                if asyncio.get_running_loop().time() >= deadline:
                    waited = lock.format_duration(self._group_timeout)
                    text = f"timed out after {waited} waiting for node {args.node} to be unlocked"
                    raise BindError(lock.contended(text, self._traits)) from error
                await asyncio.sleep(GROUP_PAUSE)
            else:
                return

    async def _try_lock(self, args: BindArgs) -> None:
        owner = (args.namespace, args.name)
        for attempt in range(CONFLICT_TRIES):
            node = await self._api.get(f"/api/v1/nodes/{args.node}")
            text = (node["metadata"].get("annotations") or {}).get(lock.LOCK)
            if attempt and text is not None and not lock.owned_by(text, owner):
                raise BindError(lock.contended(f"node {args.node} is locked", self._traits))
            decision = self._rules.lock_decision(text, owner, datetime.now(UTC), self._lock_timeout, args.node)
            if isinstance(decision, lock.Held):
                return
            if isinstance(decision, lock.Refused):
                raise BindError(decision.text)
            if isinstance(decision, lock.CheckOwner) and await self._exists(decision):
                raise BindError(lock.contention(args.node, self._lock_timeout, self._traits))
            try:
                await self._write_lock(node, lock.value(datetime.now(UTC), owner))
            except ApiError as error:
                if error.code != 409:
                    raise
                await asyncio.sleep(CONFLICT_PAUSE * 2**attempt)
            else:
                return
        raise BindError(
            f"failed to set node lock (node={args.node}, retry strategy={{Duration:100ms Factor:2 Jitter:0.5 Steps:5 "
            "Cap:0s}): timed out waiting for the condition"
        )

    async def _exists(self, owner: lock.CheckOwner) -> bool:
        try:
            await self._api.get(f"/api/v1/namespaces/{owner.namespace}/pods/{owner.name}")
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def _write_lock(self, node: Mapping[str, Any], value: str | None) -> None:
        metadata = node["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {lock.LOCK: value}}}
        await self._api.merge_patch(f"/api/v1/nodes/{metadata['name']}", patch)

    async def _release(self, args: BindArgs) -> None:
        try:
            node = await self._api.get(f"/api/v1/nodes/{args.node}")
            text = (node["metadata"].get("annotations") or {}).get(lock.LOCK)
            if text is not None and self._rules.releases_lock(text, (args.namespace, args.name)):
                await self._write_lock(node, None)
        except ApiError:
            # HAMi logs this and leaves the lock to its timeout.
            return


def _in_pod_group(pod: Mapping[str, Any]) -> bool:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    group = (pod.get("spec") or {}).get("schedulingGroup") or {}
    return bool(labels.get(POD_GROUP) or group.get("podGroupName"))
