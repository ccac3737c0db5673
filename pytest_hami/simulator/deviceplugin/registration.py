"""What a device plugin advertises to kubelet and writes on its node.

Source: HAMi 2.10.0, pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go and rm/devices.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hami.contract.register import Device, go_json
from pytest_hami.kubelet.plugin import Share
from pytest_hami.simulator.deviceplugin import mig
from pytest_hami.simulator.deviceplugin.machine import Card, Machine
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings

REGISTER = "hami.io/node-nvidia-register"
SCORE = "hami.io/node-nvidia-score"


def managed(machine: Machine, settings: Settings) -> tuple[Card, ...]:
    """Return the cards that are not left out."""
    return tuple(
        card
        for card in machine.cards
        if card.uuid not in settings.filtered and card.index not in settings.filtered_indexes
    )


def shares(
    cards: Sequence[Card], healthy: Mapping[str, bool], settings: Settings, rules: NodeRules
) -> tuple[Share, ...]:
    """Return the shares of cards; the real list has the cards in a random order.

    A NUMA node is hinted at where the settings want it and the card has one.
    """
    return tuple(
        Share(f"{card.uuid}-{number}", healthy[card.uuid], _hint(card, settings))
        for card in cards
        for number in range(rules.advertised(card, settings))
    )


def _hint(card: Card, settings: Settings) -> tuple[int, ...]:
    known = card.numa is not None and card.numa >= 0
    return (card.numa,) if settings.numa_hints and known and card.numa is not None else ()


def devices(
    cards: Sequence[Card], healthy: Mapping[str, bool], machine: Machine, settings: Settings, rules: NodeRules
) -> tuple[Device, ...]:
    """Return the cards as they are registered; the real annotation has them in a random order at every scan.

    Cards whose memory nobody tells, and in mode mig cards that cannot be cut, are advertised and not registered.
    """
    found = []
    for card in cards:
        if not card.memory and not (settings.preconfigured_memory or 0) > 0:
            continue
        device = rules.register(card, healthy[card.uuid], settings)
        if settings.mode == "mig":
            profiles = mig.discover(card, device.type, settings.allowed, machine)
            if not profiles:
                continue
            device = replace(device, profiles=tuple(profile for profile, _ in profiles))
            device = rules.cut(device, max(instances for _, instances in profiles))
        found.append(device)
    return tuple(found)


def scores(registered: Sequence[Device], machine: Machine) -> str:
    """Return the text of the score annotation, in the order of the registered cards."""
    cards = [card for device in registered if (card := machine.card(device.id))]
    return go_json(
        [
            {
                "uuid": card.uuid,
                "score": {
                    other.uuid: machine.pair_score(card, other)
                    for other in sorted(cards, key=lambda one: one.uuid)
                    if other != card
                },
            }
            for card in cards
        ]
    )
