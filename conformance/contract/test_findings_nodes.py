"""Findings about nodes: cordon, a card registered twice, a lock nobody can read. Each claim is the right behaviour."""

import dataclasses

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.expect import observe
from pytest_hami.expect.accounting import Use
from pytest_hami.expect.failures import require_equal
from pytest_hami.kube.errors import BadStatus
from pytest_hami.kube.wait import poll

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS, Capability.DISPOSABLE}
DECISIONS = "{decisions}"
CORDON = "hami.io/device-cordon"
CORDONED = "1/2 CardCordoned, 1/2 CardUuidMismatch"
# The scheduler looks at its nodes every 15 s.
RUNS = 5


def attempt_after_runs(hami, card):
    """Let the scheduler look at its nodes as often as in 75 s, then try to place a pod on a card."""
    for _ in range(RUNS):
        hami.cluster.poke()
    seen, pod = hami.attempt(on=card, memory=1024)
    pod.delete()
    return seen


@check(
    "finding-s07",
    title="a cordon takes effect by itself",
    claim="A card that its node's annotation device-cordon names takes no new pod within 75 s, and takes pods again 75 s after.",
    not_proven="that a cordon moves pods that run",
    layer=Layer.NODE,
    needs=NEEDS,
    fleet="findings",
    jq=DECISIONS,
)
def test_live_cordon(hami, hami_gpus):
    card, other = hami_gpus
    with hami.known("finding-s07") as known:
        hami.node_edits.annotate(card.node, {CORDON: card.uuid})
        attempt_after_runs(hami, card).require(known["cordoned"], "a pod on the cordoned card")
    # Read again for another reason, the node's annotation is understood.
    hami.node_edits.read_again(card.node)
    hami.pod(on=card, memory=1024).pending(CORDONED).delete()
    hami.pod(on=other, memory=1024).running(memory=1024, cards=[other.uuid])
    with hami.known("finding-s07") as known:
        hami.node_edits.annotate(card.node, {CORDON: None})
        attempt_after_runs(hami, card).require(known["uncordoned"], "a pod after the cordon")
    hami.node_edits.read_again(card.node)
    hami.pod(on=card, memory=1024).running(memory=1024, cards=[card.uuid])


@check(
    "finding-s08",
    title="a card that is registered twice",
    claim="A node that registers one card twice is its own trouble: the scheduler's metrics go on for every other card.",
    not_proven="what becomes of pods on the node itself",
    layer=Layer.METRICS,
    needs=NEEDS,
    fleet="findings",
    jq="{decisions, page}",
)
def test_card_registered_twice(hami, hami_node, hami_gpu):
    (device,) = (device for device in hami.registered(hami_node.name) if device.id == hami_gpu.uuid)
    twin = dataclasses.replace(device, id=f"GPU-{hami.namespace}-twice", index=0)
    witness = dataclasses.replace(device, id=f"GPU-{hami.namespace}-witness", index=0)
    mine = {card.uuid for card in hami.cards}

    def page():
        try:
            samples = metrics.parse(hami.cluster.scheduler_metrics(), metrics.USAGE_SERIES)
        except BadStatus as error:
            return {"status": error.status, "cards": 0}
        seen = {uuid for _, uuid in metrics.card_usage(samples)}
        # The witness came later, so the register run that saw it has seen the other node too.
        return {"status": 200, "cards": len(seen & mine)} if witness.id in seen else None

    with hami.known("finding-s08") as known:
        hami.node_edits.add(f"{hami.namespace}-twice", [twin, twin])
        hami.node_edits.add(f"{hami.namespace}-witness", [witness])
        seen = poll(page, timeout=hami.timing.settle, missing=lambda: "metrics with the later node, or an error")
        hami.note("page", seen)
        require_equal(known, seen, "metrics of the HAMi scheduler while one node registers one card twice")
    # Pods are placed meanwhile.
    seen, pod = hami.attempt(on=hami_gpu, memory=1024, cores=10)
    seen.require("placed: 1024 MiB 10 %", "a pod on another node meanwhile")
    # It is over when the node is gone.
    hami.node_edits.undo()
    pod.use = {hami_gpu.uuid: Use(1024, 10, 1)}
    hami.usage(hami_gpu).equals(memory=1024, cores=10, shares=1)


@check(
    "finding-s12",
    title="a lock that nobody can read",
    claim="A node lock whose text nobody can read is taken over, as an old one is, and the node goes on.",
    not_proven="that locks are never written wrongly",
    layer=Layer.BIND,
    needs=NEEDS,
    fleet="findings",
    jq=DECISIONS,
)
@pytest.mark.parametrize("text", ["no-time", "no-pod"])
def test_malformed_lock(hami, hami_node, text):
    owner = hami.pod(on=hami_node, memory=1024).running(memory=1024)
    # Years old, and its owner is alive: age alone decides.
    old = {observe.LOCK: f"2020-01-01T00:00:00Z,{owner.namespace},{owner.name}"}
    hami.node_edits.annotate(hami_node.name, old)
    seen, heir = hami.attempt(on=hami_node, memory=1024)
    seen.require("placed: 1024 MiB 0 %", "a pod on a node with an old lock")
    heir.delete()
    lock = {"no-time": "abc", "no-pod": "2020-01-01T00:00:00Z,default"}[text]
    with hami.known("finding-s12") as known:
        hami.node_edits.annotate(hami_node.name, {observe.LOCK: lock})
        seen, pod = hami.attempt(on=hami_node, memory=1024)
        seen.require(known[text], f"a pod on a node with lock {lock}")
    pod.delete()
    hami.node_edits.undo()
    hami.pod(on=hami_node, memory=1024).running(memory=1024)
