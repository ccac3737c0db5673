"""Replays what kubelet and device plugin did with pods that a real scheduler had bound: phases, answers, lock.

The scheduler's decisions, the annotations and the lock, are taken from the record, which does not hold what it decided upon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.contract import allocation
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.node.allocate import content, same_answer
from pytest_hami.fidelity.node.findings import Findings
from pytest_hami.fidelity.node.memory import LOCK, Memory, run
from pytest_hami.fidelity.outcome import Replayed
from pytest_hami.kubelet.plugin import AllocateError
from pytest_hami.simulator.deviceplugin.entries import TO_ALLOCATE
from pytest_hami.simulator.deviceplugin.machine import Card, Machine
from pytest_hami.simulator.deviceplugin.plugin import BIND_PHASE, DevicePlugin
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings

KIND = "full-chain"
NODE = "full-node"
_ALLOCATED = "hami.io/vgpu-devices-allocated"
_FIELDS = frozenset({
    "case", "what", "ok", "s", "pod", "pods", "alloc", "allocs", "lock", "order", "phases", "allocated", "before",
    "lock_before", "lock_after", "uids", "answers", "mounts",
})  # fmt: skip
_DIRECTORY = re.compile(r"/containers/([0-9a-f-]{36})_(.+)$")


@dataclass
class _Pod:
    """A pod as the record tells it; ``after`` is its state at the end, ``calls`` those of Allocate for it."""

    name: str
    entries: str
    uid: str = ""
    container: str = "main"
    init: bool = False
    shares: int = 1
    after: Mapping[str, Any] = field(default_factory=dict)
    calls: Sequence[Mapping[str, Any]] = ()


def replay(data: Mapping[str, Any], release: Release, rules: type[NodeRules] = NodeRules) -> Replayed:
    """Return what the model makes of a record ``full-chain``."""
    chain = _Chain(data, rules())
    chain.play()
    return chain.found.result()


class _Chain:
    def __init__(self, data: Mapping[str, Any], rules: NodeRules) -> None:
        self.found = Findings(data["case"], KIND)
        self._data = data
        self._pods = {pod.name: pod for pod in _pods(data)}
        self._objects = Memory(NODE, data.get("lock_before"))
        cards = sorted(
            {share.uuid for pod in self._pods.values() for group in allocation.parse(pod.entries) for share in group}
        )
        machine = Machine(tuple(Card(uuid, index, "NVIDIA", 1) for index, uuid in enumerate(cards)))
        self._plugin = DevicePlugin(Settings(NODE), machine, self._objects, rules)
        self._errors: dict[str, str] = {}

    def play(self) -> None:
        """Admit the pods one after another, as kubelet does."""
        data = self._data
        known = {*_FIELDS, *self._bystanders()}
        for name in sorted(set(data) - known):
            self.found.disagree("kind", f"a rule for the field {name}", "none")
        for name, state in self._bystanders().items():
            self._store(
                _Pod(name, ""), {TO_ALLOCATE: state["vgpu-devices-to-allocate"], BIND_PHASE: state["bind-phase"]}
            )
            self._set_phase(name, state["phase"])
        order = [name for name in data.get("order") or sorted(self._pods) if name in self._pods]
        together = "before" in data or (len(order) > 1 and any(self._pods[name].init for name in order))
        if together:
            for name in sorted(order):
                self._bind(self._pods[name])
        for number, name in enumerate(order, 1):
            self.found.step, self.found.where = number, f"pod {name}"
            if not together:
                self._bind(self._pods[name])
            self._admit(self._pods[name])
        self.found.where = ""
        self._same_states()
        for name in ("lock", "lock_after"):
            if name in data:
                self.found.same("lock", self._objects.notes.get(LOCK), data[name])

    def _bystanders(self) -> dict[str, Mapping[str, Any]]:
        """Return pods of earlier records that this one tells the state of; nothing may happen to them."""
        return {
            name: value
            for name, value in self._data.items()
            if name not in _FIELDS and isinstance(value, dict) and {"phase", "bind-phase"} <= value.keys()
        }

    def _bind(self, pod: _Pod) -> None:
        told = (self._data.get("before") or {}).get(pod.name)
        notes = told or {
            TO_ALLOCATE: pod.entries, _ALLOCATED: pod.entries, BIND_PHASE: "allocating", "hami.io/bind-time": "0",
            "hami.io/vgpu-node": NODE,
        }  # fmt: skip
        self._store(pod, notes)
        # A pod whose cards are in init containers only takes no lock (pkg/device/nvidia/device.go, LockNode).
        if not pod.init and "lock_before" not in self._data:
            self._objects.notes[LOCK] = f"2026-11-29T00:00:00Z,default,{pod.name}"

    def _store(self, pod: _Pod, notes: Mapping[str, str]) -> None:
        container = {"name": pod.container, "resources": {"limits": {"nvidia.com/gpu": str(pod.shares)}}}
        spec = (
            {"initContainers": [container], "containers": [{"name": "app"}]}
            if pod.init
            else {"containers": [container]}
        )
        metadata = {"namespace": "default", "name": pod.name, "uid": pod.uid, "annotations": dict(notes)}
        self._objects.add(("default", pod.name), {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def _set_phase(self, name: str, phase: str) -> None:
        stored = self._objects.stored["default", name]
        self._objects.add(("default", name), {**stored, "status": {"phase": phase}})

    def _admit(self, pod: _Pod) -> None:
        """Call Allocate for a pod; which ids it is called with makes no difference."""
        calls = pod.calls or [{"ids": [f"share-{number}" for number in range(pod.shares)]}]
        for call in calls:
            try:
                (answer,) = run(self._plugin.allocate([call["ids"]]))
            except AllocateError as error:
                self._errors[pod.name] = str(error)
                self._set_phase(pod.name, "Failed")
                seen = {"code": error.code.upper(), "details": str(error)}
                self.found.same("answer", seen, call.get("error", {}))
                return
            if "error" in call:
                self.found.same("answer", content(answer, self._plugin.settings), call["error"])
            for told in (call.get("response") or {}).get("container_responses") or ():
                same_answer(self.found, "answer", answer, told, self._plugin.settings)
            told_env = (self._data.get("answers") or {}).get(pod.name)
            if told_env is not None:
                given = content(answer, self._plugin.settings)
                expected = {"envs": told_env, "mounts": given["mounts"]}
                same_answer(self.found, "answer", answer, expected, self._plugin.settings)
                paths = [one["host_path"] for one in given["mounts"]]
                self.found.same("mounts", paths, (self._data.get("mounts") or {}).get(pod.name))
        if not pod.init:
            self._set_phase(pod.name, "Running")

    def _same_states(self) -> None:
        for name, after in [*((pod.name, pod.after) for pod in self._pods.values()), *self._bystanders().items()]:
            stored = self._objects.stored["default", name]
            notes = stored["metadata"]["annotations"]
            error = self._errors.get(name)
            message = (
                f"Allocate failed due to rpc error: code = Unknown desc = {error}, which is unexpected"
                if error
                else None
            )
            seen = {"phase": stored["status"]["phase"], "message": message} | {
                key.removeprefix("hami.io/"): text for key, text in notes.items()
            }
            for key in sorted(after):
                if key in seen or key in ("phase", "message"):
                    self.found.same(f"{key} of {name}", seen.get(key), after[key])


def _pods(data: Mapping[str, Any]) -> Iterator[_Pod]:
    states: Mapping[str, Mapping[str, Any]] = data.get("pods") or ({"pod": data["pod"]} if "pod" in data else {})
    if not states and "allocated" in data:
        names = sorted(data["order"])
        told = zip(names, data["allocated"], data["phases"], strict=True)
        states = {name: {"phase": phase, "vgpu-devices-allocated": text} for name, text, phase in told}
    names_of = dict(_containers(data))
    for name, state in states.items():
        entries = state["vgpu-devices-allocated"]
        calls = ((data.get("allocs") or {}).get(name) or data.get("alloc") or {}).get("calls") or ()
        # A pod whose init container runs is Pending though it was served.
        init = state["phase"] == "Pending" or (state["phase"] == "Failed" and "init" in data["what"])
        uid = (data.get("uids") or {}).get(name) or next(iter(_uids(calls)), "")
        container = calls[0]["container"] if calls else names_of.get(uid, "main")
        shares = sum(len(group) for group in allocation.parse(entries))
        yield _Pod(name, entries, uid, container, init, shares, state, calls)


def _uids(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for call in calls:
        for answer in (call.get("response") or {}).get("container_responses") or ():
            for mount in answer["mounts"]:
                if match := _DIRECTORY.search(mount["host_path"]):
                    yield match[1]


def _containers(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for paths in (data.get("mounts") or {}).values():
        for path in paths:
            if match := _DIRECTORY.search(path):
                yield match[1], match[2]
