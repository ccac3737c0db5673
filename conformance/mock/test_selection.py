"""Which cards a pod may use: by type, by UUID, by node."""

import pytest

from pytest_hami.checks import Capability, Layer, check

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
ALLOCATIONS = '[.pods[] | {name, node, selection, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]'
REASONS = '[.pods[] | select(.refused != "") | {name, selection, refused}]'


@check(
    "mock-12",
    title="allowed card types",
    claim="use-gputype sends a pod to a card whose type contains one of the words, whatever the case, and nowhere else.",
    not_proven="that the card is what its name says",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_MODEL},
    fleet="mixed",
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize(
    ("words", "target"),
    [
        pytest.param("T4", 1, id="t4"),
        pytest.param("A100", 0, id="a100"),
        pytest.param("t4", 1, id="lower-case"),
        pytest.param("H100, T4", 1, id="list"),
        pytest.param("00-SXM", 0, id="part-of-a-word"),
        pytest.param("", 0, id="empty-is-no-constraint-a100"),
        pytest.param(" ", 1, id="blank-is-no-constraint-t4"),
    ],
)
def test_type_allow(hami, hami_nodes, words, target):
    # Node policy binpack prefers the loaded node, so only the filter can lead away from it.
    wanted, other = hami_nodes[target], hami_nodes[1 - target]
    constrained = bool(words.strip())
    loaded = other if constrained else wanted
    hami.pod(on=loaded.cards[0], memory=4096, cores=20).running()
    pod = hami.pod(memory=1024, cores=10, annotations={"nvidia.com/use-gputype": words})
    pod.running(memory=1024, cores=10, cards=[wanted.cards[0].uuid])
    if constrained:
        both = {"nvidia.com/use-gputype": words, "nvidia.com/nouse-gputype": words}
        hami.pod(memory=1024, annotations=both).pending("1/1 CardTypeMismatch", nodes=2)


@check(
    "mock-13",
    title="a type that no card has",
    claim="use-gputype with words that match no card refuses the pod with the type reason on every card.",
    not_proven="that the card is what its name says",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=REASONS,
)
@pytest.mark.parametrize("words", ["T4", "H100,L40S", ","], ids=["one-word", "two-words", "only-a-comma"])
def test_type_mismatch(hami, hami_node, words):
    pod = hami.pod(on=hami_node, memory=1024, annotations={"nvidia.com/use-gputype": words})
    if words.strip(","):
        pod.pending("2/2 CardTypeMismatch")
    else:
        with hami.known("type-list-of-a-comma") as what:
            if what == "refused":
                pod.pending("2/2 CardTypeMismatch")
            else:
                pod.running(memory=1024)
    hami.pod(on=hami_node, memory=1024, annotations={"nvidia.com/use-gputype": f"{words},A100"}).running(memory=1024)


@check(
    "mock-14",
    title="denied card types",
    claim="nouse-gputype keeps a pod away from cards of a type, and refuses it where no other is left.",
    not_proven="that the card is what its name says",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_MODEL},
    fleet="mixed",
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize(("word", "denied"), [("A100", 0), ("T4", 1), ("tesla", 1), ("H100, T4", 1)])
def test_type_deny(hami, hami_nodes, word, denied):
    avoided, left = hami_nodes[denied], hami_nodes[1 - denied]
    hami.pod(on=avoided.cards[0], memory=4096, cores=20).running()
    notes = {"nvidia.com/nouse-gputype": word}
    hami.pod(memory=1024, cores=10, annotations=notes).running(cards=[left.cards[0].uuid])
    hami.usage(avoided.cards[0]).equals(memory=4096, cores=20, shares=1)
    hami.pod(on=avoided, memory=1024, annotations=notes).pending("1/1 CardTypeMismatch")


@check(
    "mock-15",
    title="allowed card UUIDs",
    claim="use-gpuuuid gives exactly the listed cards, in both directions, and never another one when they are full.",
    not_proven="that the container sees only this card",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize("case", ["first", "second", "both", "blanks", "unknown", "full", "other-node"])
def test_uuid_allow(hami, hami_nodes, case):
    node, elsewhere = hami_nodes
    first, second = node.cards
    key = "nvidia.com/use-gpuuuid"
    if case in {"first", "second"}:
        card = first if case == "first" else second
        for _ in range(2):
            hami.pod(on=node, memory=1024, annotations={key: card.uuid}).running(memory=1024, cards=[card.uuid])
    elif case == "both":
        both = f"{first.uuid},{second.uuid}"
        hami.pod(on=node, count=2, memory=1024, annotations={key: both}).running(cards=[first.uuid, second.uuid])
        reason = "1/2 AllocatedCardsInsufficientRequest, 1/2 CardUuidMismatch"
        hami.pod(on=node, count=2, memory=1024, annotations={key: first.uuid}).pending(reason)
    elif case == "blanks":
        pod = hami.pod(on=node, memory=1024, annotations={key: f" {first.uuid} , GPU-0 "})
        with hami.known("blanks-in-uuid-lists") as what:
            if what == "trimmed":
                pod.running(cards=[first.uuid])
            else:
                pod.pending("2/2 CardUuidMismatch")
    elif case == "unknown":
        for near in (first.uuid.lower(), first.uuid[:-1]):
            hami.pod(on=node, memory=1024, annotations={key: near}).pending("2/2 CardUuidMismatch")
        hami.pod(on=node, memory=1024, annotations={key: first.uuid}).running(cards=[first.uuid])
    elif case == "full":
        hami.pod(on=first, memory=40_960, cores=0).running()
        pod = hami.pod(on=node, memory=1, annotations={key: first.uuid})
        pod.pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
        hami.pod(on=node, memory=1, annotations={key: second.uuid}).running(cards=[second.uuid])
    else:
        foreign = {key: elsewhere.cards[0].uuid}
        hami.pod(on=node, memory=1024, annotations=foreign).pending("2/2 CardUuidMismatch")
        hami.pod(memory=1024, annotations=foreign).running(cards=[elsewhere.cards[0].uuid])


@check(
    "mock-16",
    title="denied card UUIDs",
    claim="nouse-gpuuuid keeps a pod away from the listed cards, in both directions.",
    not_proven="that the container cannot see the other card",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize("case", ["first", "second", "both", "blanks"])
def test_uuid_deny(hami, hami_node, case):
    first, second = hami_node.cards
    key = "nvidia.com/nouse-gpuuuid"
    if case == "blanks":
        # On idle cards the second one is taken where nothing forbids it.
        pod = hami.pod(on=hami_node, memory=1024, annotations={key: f"GPU-0 , {second.uuid} "})
        with hami.known("blanks-in-uuid-lists") as what:
            pod.running(cards=[first.uuid if what == "trimmed" else second.uuid])
        return
    if case == "both":
        pod = hami.pod(on=hami_node, memory=1024, annotations={key: f"{first.uuid},{second.uuid}"})
        pod.pending("2/2 CardUuidMismatch")
        both = {key: first.uuid, "nvidia.com/use-gpuuuid": first.uuid}
        pod = hami.pod(on=hami_node, memory=1024, annotations=both)
        with hami.known("uuid-both-used-and-refused") as what:
            if what == "refused":
                pod.pending("2/2 CardUuidMismatch")
            else:
                pod.running(cards=[first.uuid])
        hami.pod(on=hami_node, memory=1024, annotations={key: f"{first.uuid[:-1]},GPU-0,GPU-"}).running(memory=1024)
        return
    denied, left = (first, second) if case == "first" else (second, first)
    for _ in range(3):
        hami.pod(on=hami_node, memory=1024, annotations={key: denied.uuid}).running(cards=[left.uuid])
    pod = hami.pod(on=hami_node, count=2, memory=1024, annotations={key: denied.uuid})
    pod.pending("1/2 AllocatedCardsInsufficientRequest, 1/2 CardUuidMismatch")


@check(
    "mock-25",
    title="node selection is kept",
    claim="A pod that is pinned to a node gets cards of that node, and nothing changes elsewhere.",
    not_proven="that the node's kubelet honours the cards",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_NODE},
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize("way", ["node-selector", "affinity", "affinity-not-in"])
@pytest.mark.parametrize("target", [0, 1], ids=["w1", "w2"])
def test_node_selection(hami, hami_nodes, way, target):
    node, other = hami_nodes[target], hami_nodes[1 - target]
    hami.pod(on=other.cards[0], memory=8192, cores=20).running()
    if way == "node-selector":
        pod = hami.pod(on=node, memory=1024, cores=10)
    else:
        operator, named = ("In", node.name) if way == "affinity" else ("NotIn", other.name)
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": [named]}]}
        rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        pod = hami.pod(memory=1024, cores=10, spec={"affinity": rule}, candidates=[node])
    pod.running(memory=1024, cores=10)
    assert pod.node == node.name
    assert set(pod.cards) < {card.uuid for card in node.cards}
