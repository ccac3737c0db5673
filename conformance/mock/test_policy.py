"""Which of several fitting cards and nodes is chosen: always after loading one, so that no tie decides."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract.events import FilterSucceeded, parse_event
from pytest_hami.expect.observe import with_reason

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
CARD_POLICY = "hami.io/gpu-scheduler-policy"
NODE_POLICY = "hami.io/node-scheduler-policy"
CHOICES = '[.pods[] | {name, node, selection, allocated: .annotations["hami.io/vgpu-devices-allocated"], events}]'
LOADED = pytest.mark.parametrize("loaded", [0, 1], ids=["first-loaded", "second-loaded"])


def scores(pod):
    """Return the node scores that HAMi put into its event for this pod."""
    event = parse_event("FilteringSucceed", with_reason(pod.events, "FilteringSucceed")[0])
    assert isinstance(event, FilterSucceeded)
    return event.scores


@check(
    "mock-17",
    title="cards are packed",
    claim="With gpu policy binpack a pod takes the fuller card of a node, whichever it is.",
    not_proven="that packing is kept when pods leave",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=CHOICES,
)
@LOADED
def test_gpu_binpack(hami, hami_node, loaded):
    fuller, emptier = hami_node.cards[loaded], hami_node.cards[1 - loaded]
    hami.pod(on=fuller, memory=8192, cores=20).running()
    for _ in range(2):
        hami.pod(on=hami_node, memory=1024, cores=5, annotations={CARD_POLICY: "binpack"}).running(cards=[fuller.uuid])
    hami.usage(emptier).equals(memory=0, cores=0, shares=0)
    hami.pod(on=hami_node, memory=40_000, annotations={CARD_POLICY: "binpack"}).running(cards=[emptier.uuid])


@check(
    "mock-18",
    title="cards are spread",
    claim="With gpu policy spread, the default, and with an unknown word a pod takes the emptier card of a node.",
    not_proven="that load is balanced later",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=CHOICES,
)
@pytest.mark.parametrize("policy", ["spread", "tidy", None], ids=["spread", "unknown-word", "default"])
@LOADED
def test_gpu_spread(hami, hami_node, policy, loaded):
    fuller, emptier = hami_node.cards[loaded], hami_node.cards[1 - loaded]
    notes = {CARD_POLICY: policy} if policy else {}
    hami.pod(on=fuller, memory=8192, cores=20).running()
    hami.pod(on=hami_node, memory=20_480, cores=50, annotations=notes).running(cards=[emptier.uuid])
    hami.pod(on=hami_node, memory=1024, cores=5, annotations=notes).running(cards=[fuller.uuid])


@check(
    "mock-19",
    title="nodes are packed",
    claim="With node policy binpack, the default, a pod takes the fuller node with the higher score, or the other one when that is full.",
    not_proven="that packing is kept when pods leave",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_NODE},
    jq=CHOICES,
)
@pytest.mark.parametrize("policy", ["binpack", "tidy", None], ids=["binpack", "unknown-word", "default"])
@LOADED
def test_node_binpack(hami, hami_nodes, policy, loaded):
    fuller, emptier = hami_nodes[loaded], hami_nodes[1 - loaded]
    notes = {NODE_POLICY: policy} if policy else {}
    hami.pod(on=fuller, memory=8192, cores=20).running()
    pod = hami.pod(memory=1024, cores=5, annotations=notes).running(memory=1024, cores=5)
    assert pod.node == fuller.name
    seen = scores(pod)
    assert seen[fuller.name] > seen[emptier.name], f"expected the chosen node to have the higher score, seen {seen}"
    hami.pod(on=fuller, count=2, memory=20_000).running()
    hami.pod(on=fuller, memory=10_000).running()
    late = hami.pod(memory=30_000, annotations=notes).running(memory=30_000)
    assert late.node == emptier.name


@check(
    "mock-20",
    title="nodes are spread",
    claim="With node policy spread a pod takes the emptier node with the lower score, also beside another gpu policy.",
    not_proven="that load is balanced later",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_NODE},
    jq=CHOICES,
)
@pytest.mark.parametrize("cards", ["binpack", "spread"])
@LOADED
def test_node_spread(hami, hami_nodes, cards, loaded):
    fuller, emptier = hami_nodes[loaded], hami_nodes[1 - loaded]
    notes = {NODE_POLICY: "spread", CARD_POLICY: cards}
    hami.pod(on=fuller, count=2, memory=8192, cores=20).running()
    hami.pod(on=emptier.cards[loaded], memory=4096, cores=10).running()
    chosen = emptier.cards[loaded if cards == "binpack" else 1 - loaded]
    pod = hami.pod(memory=1024, cores=5, annotations=notes).running(memory=1024, cores=5, cards=[chosen.uuid])
    seen = scores(pod)
    assert seen[emptier.name] < seen[fuller.name], f"expected the chosen node to have the lower score, seen {seen}"
