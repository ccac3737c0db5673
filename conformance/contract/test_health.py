"""What becomes of a card that its node calls unhealthy."""

import dataclasses

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import register
from pytest_hami.expect import observe

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS, Capability.DISPOSABLE}


@check(
    "contract-unhealthy-card",
    title="an unhealthy card takes no pod",
    claim="A card that its node registers as unhealthy takes no new pod, keeps what it carries, and is used again when it is well.",
    not_proven="that the device plugin notices an unhealthy card",
    layer=Layer.FILTER,
    needs=NEEDS,
    fleet="findings",
    jq='[.pods[] | {name, refused, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]',
)
def test_unhealthy_card(hami, hami_node, hami_gpus):
    hami.expected("unhealthy-card")
    card, other = hami_gpus
    hami.pod(on=card, memory=1024, cores=10).running(memory=1024, cores=10, cards=[card.uuid])
    cards = [dataclasses.replace(found, health=found.id != card.uuid) for found in hami.registered(hami_node.name)]
    hami.node_edits.annotate(hami_node.name, {observe.REGISTER: register.encode(cards)})
    hami.node_edits.read_again(hami_node.name)
    waiting = hami.pod(on=card, memory=2048).pending("1/2 CardNotHealth, 1/2 CardUuidMismatch")
    hami.pod(on=hami_node, memory=1024).running(memory=1024, cards=[other.uuid])
    hami.usage(card).equals(memory=1024, cores=10, shares=1)
    hami.node_edits.undo()
    waiting.running(memory=2048, cards=[card.uuid])
