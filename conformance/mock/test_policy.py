"""Which of several fitting cards and nodes is chosen: always after loading one, so that no tie decides."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract.events import FilterSucceeded, parse_event
from pytest_hami.expect.failures import require_equal
from pytest_hami.expect.observe import with_reason

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
CARD_POLICY = "hami.io/gpu-scheduler-policy"
NODE_POLICY = "hami.io/node-scheduler-policy"
CHOICES = '[.pods[] | {name, node, selection, allocated: .annotations["hami.io/vgpu-devices-allocated"], events}]'
# Of two loads the first is the heavier one in the sum, and in one dimension alone: (tenants, MiB, percent of each).
DIMENSIONS = {
    "by-memory": ((1, 30_000, 1), (3, 64, 5)),
    "by-cores": ((1, 64, 90), (2, 8_000, 1)),
    "by-shares": ((6, 64, 1), (1, 9_000, 10)),
}
LOADS = pytest.mark.parametrize("loads", [None, *DIMENSIONS.values()], ids=["one-load", *DIMENSIONS])
LOADED = pytest.mark.parametrize("loaded", [0, 1], ids=["first-loaded", "second-loaded"])


def load(hami, loads):
    """Fill cards or nodes with tenants; on a node all of them share its first card."""
    for target, (tenants, memory, cores) in loads.items():
        card = target.cards[0] if hasattr(target, "cards") else target
        for _ in range(tenants):
            hami.pod(on=card, memory=memory, cores=cores).running(memory=memory, cores=cores)


def require_node(pod, node):
    """Assert the node that a pod was given."""
    require_equal({"node": node.name}, {"node": pod.node}, f"{pod!r} node, chosen by policy")


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
@LOADS
def test_gpu_binpack(hami, hami_node, loads, loaded):
    fuller, emptier = hami_node.cards[loaded], hami_node.cards[1 - loaded]
    if loads:
        load(hami, {fuller: loads[0], emptier: loads[1]})
        pod = hami.pod(on=hami_node, memory=64, cores=1, annotations={CARD_POLICY: "binpack"})
        pod.running(memory=64, cores=1, cards=[fuller.uuid])
        return
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
@pytest.mark.parametrize(
    "policy", ["spread", "tidy", None, "over-global"], ids=["spread", "unknown-word", "default", "over-global"]
)
@LOADED
def test_gpu_spread(hami, hami_node, policy, loaded):
    fuller, emptier = hami_node.cards[loaded], hami_node.cards[1 - loaded]
    if policy == "over-global":
        hami.configure_scheduler(flags={"gpu-scheduler-policy": "binpack"})
        hami.pod(on=fuller, memory=8192, cores=20).running()
        hami.pod(on=hami_node, memory=1024, cores=5).running(cards=[fuller.uuid])
        hami.pod(on=hami_node, memory=1024, cores=5, annotations={CARD_POLICY: "spread"}).running(cards=[emptier.uuid])
        return
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
@pytest.mark.parametrize(
    "policy",
    ["binpack", "tidy", None, "over-global", *DIMENSIONS.values()],
    ids=["binpack", "unknown-word", "default", "over-global", *DIMENSIONS],
)
@LOADED
def test_node_binpack(hami, hami_nodes, policy, loaded):
    fuller, emptier = hami_nodes[loaded], hami_nodes[1 - loaded]
    if policy == "over-global":
        hami.configure_scheduler(flags={"node-scheduler-policy": "spread"})
        hami.pod(on=fuller, memory=8192, cores=20).running()
        notes = {NODE_POLICY: "binpack"}
        require_node(hami.pod(memory=1024, cores=5, annotations=notes).running(memory=1024, cores=5), fuller)
        require_node(hami.pod(memory=1024, cores=5).running(memory=1024, cores=5), emptier)
        return
    if isinstance(policy, tuple):
        load(hami, {fuller: policy[0], emptier: policy[1]})
        require_node(hami.pod(memory=64, cores=1).running(memory=64, cores=1), fuller)
        return
    notes = {NODE_POLICY: policy} if policy else {}
    hami.pod(on=fuller, memory=8192, cores=20).running()
    pod = hami.pod(memory=1024, cores=5, annotations=notes).running(memory=1024, cores=5)
    require_node(pod, fuller)
    seen = scores(pod)
    assert seen[fuller.name] > seen[emptier.name], f"expected the chosen node to have the higher score, seen {seen}"
    hami.pod(on=fuller, count=2, memory=20_000).running()
    hami.pod(on=fuller, memory=10_000).running()
    require_node(hami.pod(memory=30_000, annotations=notes).running(memory=30_000), emptier)


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
    hami.pod(on=emptier, count=2, memory=33_000).running()
    require_node(hami.pod(memory=20_000, annotations=notes).running(memory=20_000), fuller)
