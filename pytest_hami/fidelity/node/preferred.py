"""Replays a GetPreferredAllocation call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.node.findings import Findings
from pytest_hami.fidelity.node.fleet import NODE, machine_of, settings_of
from pytest_hami.fidelity.node.memory import Memory, run
from pytest_hami.fidelity.outcome import Replayed
from pytest_hami.simulator.deviceplugin.entries import TO_ALLOCATE
from pytest_hami.simulator.deviceplugin.plugin import DevicePlugin
from pytest_hami.simulator.deviceplugin.preferred import Choice
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Unmodelled

KIND = "preferred"


def replay(data: Mapping[str, Any], release: Release, rules: type[NodeRules] = NodeRules) -> Replayed:
    """Return what the model makes of a record ``preferred``.

    A record holds how many shares were free and not which: they were all shares of some cards, in the order of their ids, and
    there must be such cards that lead to the recorded answer.
    """
    found = Findings(data["case"], KIND)
    try:
        plugin = DevicePlugin(settings_of(data, NODE), machine_of(data, release, started=True), _objects(data), rules())
    except Unmodelled as error:
        found.disagree("settings", f"a rule for {error}", "none")
        return found.result()
    options = {"get_preferred_allocation_available": True}
    if "registration_options" in data:
        found.same("registration", options if plugin.settings.prefers else {}, data["registration_options"])
    if "options_rpc" in data:
        found.same("options", options, data["options_rpc"])
    recorded = [list(ids) for ids in data.get("result") or []]
    answers = [
        [list(ids) for ids in run(plugin.prefer(choices))]
        for choices in itertools.product(*(list(_choices(plugin, asked)) for asked in data["requests"]))
    ]
    found.same("answer", recorded if recorded in answers else answers[0] if answers else None, recorded)
    found.placements += len(recorded)
    return found.result()


def _objects(data: Mapping[str, Any]) -> Memory:
    objects = Memory(NODE)
    if data.get("annotation") is not None:
        notes = {
            "hami.io/bind-time": "0", "hami.io/bind-phase": "allocating", "hami.io/vgpu-node": NODE,
            TO_ALLOCATE: data["annotation"],
        }  # fmt: skip
        metadata = {"namespace": "default", "name": "pod", "annotations": notes}
        objects.add(
            ("default", "pod"), {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}}
        )
    return objects


def _choices(plugin: DevicePlugin, asked: Mapping[str, Any]) -> Iterator[Choice]:
    for free in _free(plugin, asked["available"]):
        yield Choice(tuple(free), tuple(asked.get("must") or ()), int(asked["size"]))


def _free(plugin: DevicePlugin, available: int | Sequence[str]) -> Iterator[list[str]]:
    if not isinstance(available, int):
        yield list(available)
        return
    by_card: dict[str, list[str]] = {}
    for share in plugin.shares():
        by_card.setdefault(share.id.rpartition("-")[0], []).append(share.id)
    for count in range(len(by_card) + 1):
        for cards in itertools.combinations(sorted(by_card), count):
            ids = sorted(id for card in cards for id in by_card[card])
            if len(ids) == available:
                yield ids
