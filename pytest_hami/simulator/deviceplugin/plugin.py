"""One device plugin, from its start on: what kubelet can ask it, and what it writes.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go, util.go and factory.go,
cmd/device-plugin/nvidia/main.go.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.register import Device
from pytest_hami.kubelet.plugin import AllocateError, Answer, Share
from pytest_hami.simulator.deviceplugin import entries, registration, settings
from pytest_hami.simulator.deviceplugin.answer import devices_answer, shared_answer
from pytest_hami.simulator.deviceplugin.entries import TO_ALLOCATE, Entries, EntriesError
from pytest_hami.simulator.deviceplugin.machine import NOT_FOUND, NOT_SUPPORTED, Machine, error_text
from pytest_hami.simulator.deviceplugin.mig import ALLOCATIONS, Instance, Key, MigError, MigManager, realised, reserved
from pytest_hami.simulator.deviceplugin.objects import ObjectError, Objects, Pod, key_of, notes_of
from pytest_hami.simulator.deviceplugin.pending import pending_pod
from pytest_hami.simulator.deviceplugin.preferred import Choice, card_of, preferred
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings, StartError
from pytest_hami.simulator.hami import lock

BIND_PHASE = "hami.io/bind-phase"
NIL = "panic: runtime error: invalid memory address or nil pointer dereference"
PANIC = "panic: 0"
_MANAGERS = "error getting plugins: unable to create plugins: failed to construct resource managers"
_MAP = (
    f"{_MANAGERS}: error building device map: error building device map from config.resources: "
    "error building GPU device map"
)
_VISITED = "error visiting device: error building Device"
# What each function of NVML ends the start with when it fails while the cards are looked at, in that order.
_AT_START = {
    "nvmlDeviceGetCount_v2": "error getting device count",
    "nvmlDeviceGetHandleByIndex_v2": "error getting device handle for index '0'",
    "nvmlDeviceGetName": "error checking whether device is skipped: error getting device name",
    "nvmlDeviceGetMigMode": "error visiting device: error checking if MIG is enabled on GPU: error getting MIG mode",
    "nvmlDeviceGetUUID": f"{_VISITED}: error getting UUID device",
    "nvmlDeviceGetMinorNumber": f"{_VISITED}: error getting device paths: error getting GPU device minor number",
    "nvmlDeviceGetPciInfo_v3": f"{_VISITED}: error getting device NUMA node: error getting PCI Bus Info of device",
    "nvmlDeviceGetCudaComputeCapability": f"{_VISITED}: error getting device compute capability",
}
# Functions whose failure is a panic while the cards are registered.
_AT_SCAN = ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetIndex", "nvmlDeviceGetMemoryInfo")


class PluginDied(AllocateError):
    """The process panics: kubelet's call ends without an answer, and everything stays as it was."""

    def __init__(self, words: str) -> None:
        super().__init__("error reading from server: EOF", "Unavailable")
        self.words = words


@dataclass(frozen=True)
class Exit:
    """How the process ended: its code and its last words."""

    code: int
    words: str


class DevicePlugin:
    """A plugin that was started with ``settings`` on ``machine``.

    ``exit`` tells that it ended, ``registered`` whether kubelet heard of it. ``identify`` is what the driver calls a new
    MIG instance.
    """

    def __init__(
        self,
        found: Settings,
        machine: Machine,
        objects: Objects,
        rules: NodeRules,
        identify: Callable[[Key], Instance] | None = None,
    ) -> None:
        self.settings, self.machine = found, machine
        self.exit: Exit | None = None
        self.registered = False
        self._objects, self._rules = objects, rules
        self._cards = registration.managed(machine, found)
        self.healthy = {card.uuid: True for card in self._cards}
        self.mig = MigManager(machine, identify or _identities())
        try:
            self._start()
        except StartError as error:
            self.exit = Exit(1, f"error starting plugins: {error}")

    def _start(self) -> None:
        found, machine = self.settings, self.machine
        settings.check(found)
        if not machine.nvml:
            raise StartError(f"{_MANAGERS}: invalid device discovery strategy")
        failing = machine.failures
        if "nvmlInit_v2" in failing:
            raise StartError(f"{_MANAGERS}: nvml init failed: {error_text(failing['nvmlInit_v2'])}")
        for function, words in _AT_START.items():
            code = failing.get(function)
            tolerated = function == "nvmlDeviceGetMigMode" and code == NOT_SUPPORTED
            if code and not tolerated and (machine.cards or function == "nvmlDeviceGetCount_v2"):
                raise StartError(f"{_MAP}: {words}: {error_text(code)}")
        if machine.cards:
            settings.check_profiles(found)
        library = f"libcuda.so.{machine.driver}"
        if found.cdi and library not in machine.files:
            raise StartError(
                "error getting plugins: unable to create cdi spec file: failed to get CDI spec: failed to create "
                "discoverer for common entities: failed to create discoverer for driver files: failed to create "
                "discoverer for driver libraries: failed to get libraries for driver version: failed to get driver "
                "library locator: failed to get libcuda.so parent directory: failed to locate "
                f'"libcuda.so.": {library}: not found'
            )
        if not self._cards:
            return
        self.registered = found.kubelet
        missing = None in (found.memory_scaling, found.split_count)
        if missing or (found.core_scaling is None and found.mode != "mig"):
            self.exit = Exit(2, NIL)
        self._see_cards()

    def _see_cards(self) -> None:
        """Look at every card as a scan does, and die where NVML fails."""
        failing = self.machine.failures
        for function in _AT_SCAN:
            code = failing.get(function)
            if code and not (function == "nvmlDeviceGetMemoryInfo" and code == NOT_SUPPORTED):
                self.exit = Exit(2, PANIC)

    def see(self, machine: Machine) -> None:
        """Let the machine be another one from now on; the cards stay those of the start.

        A card that is gone ends the process at its next scan.
        """
        self.machine = machine
        self.mig.machine = machine

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.exit is None

    @property
    def advertises(self) -> bool:
        """Whether there are cards for which a server is started at all."""
        return bool(self._cards)

    def shares(self) -> tuple[Share, ...]:
        """Return the device list that kubelet gets."""
        return registration.shares(self._cards, self.healthy, self.settings, self._rules)

    def devices(self) -> tuple[Device, ...]:
        """Return the cards as they are registered by a scan now; one that is gone makes the process panic."""
        seen = []
        for card in self._cards:
            now = self.machine.card(card.uuid)
            if now is None:
                self.exit = Exit(2, PANIC)
                raise PluginDied(f"nvml new device by index error uuid= {card.uuid} err= {error_text(NOT_FOUND)}")
            seen.append(now)
        return registration.devices(seen, self.healthy, self.machine, self.settings, self._rules)

    def scores(self, devices: Sequence[Device]) -> str | None:
        """Return the text of the score annotation, None where none is written."""
        return registration.scores(devices, self.machine) if self.settings.pair_scores else None

    def hear(self, index: int, xid: int) -> bool:
        """Return whether an XID makes a card unhealthy, for as long as the plugin lives."""
        ignored = self.settings.xids
        whole = ignored.get(0)
        skips = whole is not False and ignored.get(xid, whole is True)
        hit = next((card for card in self._cards if card.index == index), None)
        if whole is True or skips or hit is None:
            return False
        self.healthy[hit.uuid] = False
        return True

    async def prefer(self, choices: Sequence[Choice]) -> list[tuple[str, ...]]:
        """Return what is preferred for each container that could be helped."""
        try:
            pod = await pending_pod(self._objects, self.settings.node, self._rules)
            return preferred(choices, entries.read(notes_of(pod)))
        except (AllocateError, EntriesError):
            return []

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Answer, ...]:
        """Serve the next entries of the pod that waits, one for each container of a call, then tell phase and lock.

        Raises AllocateError.
        """
        pod = await pending_pod(self._objects, self.settings.node, self._rules)
        try:
            left = entries.read(notes_of(pod))
            answers = []
            for ids in requests:
                # An answer for MIG instances is written down at once, so the pod changes on the way.
                answer, pod = await self._serve(pod, left, ids)
                answers.append(answer)
            pod = await self._objects.annotate_pod(key_of(pod), {TO_ALLOCATE: entries.write(left)})
        except PluginDied as death:
            self.exit = Exit(2, death.words)
            raise
        except (EntriesError, ObjectError, AllocateError) as error:
            await self._end(pod, "failed")
            raise AllocateError(str(error)) from None
        # HAMi reads the pod once more here; what its own patch gave back is the same pod.
        if self._rules.succeeds(notes_of(pod).get(TO_ALLOCATE, "")):
            await self._end(pod, "success")
        return tuple(answers)

    async def _serve(self, pod: Pod, left: Entries, ids: Sequence[str]) -> tuple[Answer, Pod]:
        if not ids:
            raise PluginDied("panic: runtime error: index out of range [0] with length 0")
        if "MIG" in ids[0]:
            raise AllocateError(f"invalid allocation request for '{self.settings.resource}': unknown device: {ids[0]}")
        container, shares = self._next(pod, left)
        if len(shares) != len(ids):
            raise AllocateError("device number not matched")
        if self.settings.mode == "mig":
            return await self._serve_mig(pod, container, shares)
        if self.settings.prefers:
            shares = tuple(replace(share, uuid=card_of(id)) for share, id in zip(shares, ids, strict=True))
        if self.settings.log_level is None:
            raise PluginDied(NIL)
        return shared_answer(pod, container, shares, self.settings, self.machine, self._rules), pod

    def _next(self, pod: Pod, left: Entries) -> tuple[Mapping[str, Any], tuple[DeviceShare, ...]]:
        """Take the next entry away and return its container and shares; which container it is says the position."""
        found = self._rules.next_entry(left)
        if found is None:
            raise AllocateError("no pending device allocation found")
        index, shares = found
        left[index] = ()
        inits, regular = pod["spec"].get("initContainers") or [], pod["spec"]["containers"]
        containers = [*inits, *regular]
        if index >= len(containers):
            raise AllocateError(f"container index {index} out of range (init={len(inits)}, regular={len(regular)})")
        return containers[index], shares

    async def _serve_mig(
        self, pod: Pod, container: Mapping[str, Any], shares: Sequence[DeviceShare]
    ) -> tuple[Answer, Pod]:
        spec = pod["spec"]
        names = [one["name"] for one in [*(spec.get("initContainers") or []), *spec["containers"]]]
        try:
            wanted = reserved(pod, names, container["name"], shares)
            try:
                self.mig.reconcile(await self._objects.pods(self.settings.node))
            except (MigError, ObjectError) as error:
                raise MigError(f"reconcile MIG allocations before allocation: {error}") from None
            uuids = self.mig.ensure(wanted, shares)
        except MigError as error:
            raise AllocateError(f"resolve allocated NVIDIA devices: {error}") from None
        try:
            text = realised(pod, self.mig)
            await self._objects.annotate_pod(key_of(pod), {ALLOCATIONS: text}, pod["metadata"].get("resourceVersion"))
        except (MigError, ObjectError) as error:
            raise AllocateError(f"record MIG runtime placement: {error}") from None
        changed = {**pod, "metadata": {**pod["metadata"], "annotations": {**notes_of(pod), ALLOCATIONS: text}}}
        return devices_answer(uuids, self.settings, self.machine), changed

    async def _end(self, pod: Pod, phase: str) -> None:
        """Tell the phase and open the lock; what fails of it is only logged."""
        with contextlib.suppress(ObjectError):
            await self._objects.annotate_pod(key_of(pod), {BIND_PHASE: phase})
        try:
            held = (await self._objects.node_annotations(self.settings.node)).get(lock.LOCK)
            if held is not None and self._rules.releases_lock(held, *key_of(pod)):
                await self._objects.annotate_node(self.settings.node, {lock.LOCK: None})
        except ObjectError:
            pass


def _identities() -> Callable[[Key], Instance]:
    numbers = itertools.count(1)
    return lambda _: Instance(f"MIG-{uuid.uuid4()}", next(numbers), 0)
