"""MIG instances: what the scheduler reserved is made on the card, and unmade when no pod holds it any more.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/migmgr.go and util.go (GetContainerDeviceStrArray),
pkg/device/nvidia/mig_allocations.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.contract.register import MigProfile, Placement, go_json
from pytest_hami.simulator.deviceplugin.machine import NOT_SUPPORTED, Card, Machine, Profile, error_text
from pytest_hami.simulator.deviceplugin.objects import Pod, ended, key_of, notes_of
from pytest_hami.simulator.deviceplugin.settings import AllowedProfiles

ALLOCATIONS = "hami.io/vgpu-mig-allocations"
Key = tuple[int, str, Placement]
"""A card's index, a profile's name, and where on the card."""


class MigError(Exception):
    """An instance that cannot be had; the text is the plugin's own."""


@dataclass(frozen=True)
class Instance:
    """A MIG instance: its UUID and the ids of its GPU instance and compute instance, which the driver chooses."""

    uuid: str
    gpu_id: int
    compute_id: int


@dataclass(frozen=True)
class Reservation:
    """An instance that the scheduler reserved for a container, and what became of it."""

    container: int
    device: int
    uuid: str
    profile: str
    placement: Placement
    instance: Instance | None = None

    def key(self, machine: Machine) -> Key | None:
        """Return what it stands for, None where its card is not on the machine."""
        card = machine.card(self.uuid)
        return (card.index, self.profile, self.placement) if card else None


def read(text: str) -> tuple[Reservation, ...]:
    """Return the reservations in a pod's annotation. Raises MigError."""
    if not text:
        return ()
    try:
        found = tuple(_reservation(entry) for entry in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MigError(_syntax(text)) from None
    seen: set[tuple[int, int]] = set()
    for number, (one, told) in enumerate(found):
        if one.container < 0 or one.device < 0 or not one.uuid or not one.profile or not one.placement.size:
            raise MigError(f"MIG allocation {number} is incomplete")
        if told not in (0, 3):
            raise MigError(f"MIG allocation {number} has partial runtime identity")
        if (one.container, one.device) in seen:
            raise MigError(f"duplicate MIG allocation for container {one.container} device {one.device}")
        seen.add((one.container, one.device))
    return tuple(one for one, _ in found)


def _reservation(entry: Mapping[str, Any]) -> tuple[Reservation, int]:
    """Return a reservation, and how many of the three parts of its instance are told."""
    place = entry.get("placement") or {}
    told = [entry.get("migUUID") or None, entry.get("gpuInstanceID"), entry.get("computeInstanceID")]
    parts = sum(part is not None for part in told)
    instance = Instance(str(told[0]), int(told[1]), int(told[2])) if parts == 3 else None  # type: ignore[arg-type]
    return Reservation(
        int(entry.get("containerIndex", 0)), int(entry.get("deviceIndex", 0)), str(entry.get("gpuUUID", "")),
        str(entry.get("profile", "")), Placement(int(place.get("start", 0)), int(place.get("size", 0))), instance,
    ), parts  # fmt: skip


def _syntax(text: str) -> str:
    # Go's words for the usual cases: the text breaks off, or begins with something else than a value.
    first = text.lstrip()[:1]
    if first and first not in '[{"-0123456789tfn':
        return f"invalid character '{first}' looking for beginning of value"
    return "unexpected end of JSON input"


def write(reservations: Iterable[Reservation]) -> str:
    """Return the annotation's text."""
    entries = []
    for one in reservations:
        entry: dict[str, Any] = {
            "containerIndex": one.container, "deviceIndex": one.device, "gpuUUID": one.uuid, "profile": one.profile,
            "placement": {"start": one.placement.start, "size": one.placement.size},
        }  # fmt: skip
        if one.instance is not None:
            entry["migUUID"] = one.instance.uuid
            entry["gpuInstanceID"] = one.instance.gpu_id
            entry["computeInstanceID"] = one.instance.compute_id
        entries.append(entry)
    return go_json(entries)


def discover(
    card: Card, name: str, allowed: Sequence[AllowedProfiles], machine: Machine
) -> list[tuple[MigProfile, int]]:
    """Return the allowed profiles that a card has, with the most instances of each, by the list for its model."""
    offered = machine.profiles if card.mig is not None else {}
    most = max((profile.multiprocessors for profile in offered.values()), default=0)
    for entry in allowed:
        if any(model in name for model in entry.models):
            return [
                (_registered(profile, offered[_slices(profile)], most), offered[_slices(profile)].instances)
                for profile in entry.profiles
                if _slices(profile) in offered
            ]
    return []


def _registered(name: str, profile: Profile, most: int) -> MigProfile:
    core = -(-profile.multiprocessors * 100 // most) if most else 0
    return MigProfile(name, profile.memory, core, profile.slices, profile.placements)


def _slices(profile: str) -> str:
    head, dot, _ = profile.partition(".")
    return head if dot and head else profile


class MigManager:
    """The instances that a plugin made and knows, by what they were reserved as.

    ``identify`` gives the identity of a new instance, which is the driver's choice.
    """

    def __init__(self, machine: Machine, identify: Callable[[Key], Instance]) -> None:
        self.machine = machine
        self._identify = identify
        self._instances: dict[Key, Instance] = {}

    def find(self, key: Key | None) -> Instance | None:
        """Return the instance that stands for a key."""
        return self._instances.get(key) if key else None

    def adopt(self, pods: Iterable[Pod]) -> None:
        """Take over the instances that pods hold since before the plugin's start."""
        for pod in pods:
            for one in () if ended(pod) else read(notes_of(pod).get(ALLOCATIONS, "")):
                key = one.key(self.machine)
                if key and one.instance:
                    self._instances[key] = one.instance

    def reconcile(self, pods: Iterable[Pod]) -> None:
        """Destroy the instances that no living pod holds. Raises MigError for a pod whose reservations say nothing."""
        active = set()
        for pod in pods:
            if ended(pod):
                continue
            try:
                held = read(notes_of(pod).get(ALLOCATIONS, ""))
            except MigError as error:
                raise MigError(f"decode MIG allocations for pod {'/'.join(key_of(pod))}: {error}") from None
            for one in held:
                key = one.key(self.machine)
                if key is None:
                    raise MigError(f'resolve active MIG parent GPU "{one.uuid}"')
                active.add(key)
        self._instances = {key: instance for key, instance in self._instances.items() if key in active}

    def ensure(self, wanted: Sequence[Reservation], shares: Sequence[DeviceShare]) -> list[str]:
        """Return the UUIDs of the instances for the reservations of shares, all made or none. Raises MigError."""
        made: list[Key] = []
        uuids = []
        try:
            for one, share in zip(wanted, shares, strict=True):
                if one.uuid != share.uuid:
                    raise MigError(f"MIG reservation GPU {one.uuid} does not match allocated GPU {share.uuid}")
                key = one.key(self.machine)
                if key is None:
                    raise MigError(f"resolve parent GPU {one.uuid}")
                if key not in self._instances:
                    self._instances[key] = self._create(key)
                    made.append(key)
                uuids.append(self._instances[key].uuid)
        except MigError:
            for key in made:
                del self._instances[key]
            raise
        return uuids

    def _create(self, key: Key) -> Instance:
        index, profile, place = key
        slices = _slices(profile)
        if slices not in {f"{count}g" for count in (1, 2, 3, 4, 6, 7, 8)}:
            raise MigError(f'unsupported MIG profile "{profile}"')
        card = next(card for card in self.machine.cards if card.index == index)
        offered = self.machine.profiles.get(slices) if card.mig is not None else None
        if offered is None:
            raise MigError(f"get GI profile {profile}: {error_text(NOT_SUPPORTED)}")
        where = f"{{Start:{place.start} Size:{place.size}}}"
        if place not in offered.placements:
            raise MigError(f"scheduler selected invalid placement {where} for profile {profile}")
        if any(_overlap(place, other) for held, _, other in self._instances if held == index):
            raise MigError(f"create GI profile={profile} placement={where}: {error_text(23)}")
        return self._identify(key)


def _overlap(one: Placement, other: Placement) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def reserved(pod: Pod, containers: Collection[str], name: str, shares: Sequence[DeviceShare]) -> list[Reservation]:
    """Return the reservations of a container, in the order of its shares. Raises MigError."""
    index = list(containers).index(name)
    try:
        all_of_pod = read(notes_of(pod).get(ALLOCATIONS, ""))
    except MigError as error:
        raise MigError(f"decode scheduler MIG allocations: {error}") from None
    found = sorted((one for one in all_of_pod if one.container == index), key=lambda one: one.device)
    if len(found) != len(shares):
        raise MigError(f"container {name} has {len(found)} MIG reservations, requested {len(shares)} devices")
    return found


def realised(pod: Pod, manager: MigManager) -> str:
    """Return the annotation with the instances that are there. Raises MigError."""
    found = []
    for one in read(notes_of(pod).get(ALLOCATIONS, "")):
        if one.key(manager.machine) is None:
            raise MigError(f'resolve MIG parent GPU "{one.uuid}"')
        instance = manager.find(one.key(manager.machine))
        found.append(replace(one, instance=instance) if instance else one)
    if not any(manager.find(one.key(manager.machine)) for one in found):
        raise MigError("no realised MIG allocation found for pod")
    return write(found)
