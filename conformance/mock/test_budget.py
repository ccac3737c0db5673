"""Budgets of a card: memory, cores, shares, exclusivity, and their way back."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.expect.failures import require, require_equal
from pytest_hami.expect.podspec import Container

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
REASONS = '[.pods[] | select(.refused != "") | {name, refused}]'
ALLOCATIONS = '[.pods[] | {name, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]'


@check(
    "mock-03",
    title="one card is shared",
    claim="Pods on one card add up to the last percent, each has a cache of its own, and a deleted one gives back its share.",
    not_proven="that the tenants are isolated from each other",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.ENV},
    jq="[.usage[]? | {when, cards}]",
)
@pytest.mark.parametrize("leaver", [0, 1, 2], ids=["first-leaves", "middle-leaves", "last-leaves"])
def test_share_one_gpu(hami, hami_gpus, leaver):
    card, other = hami_gpus
    tenants = [
        hami.pod(on=card, memory=4096, cores=25).running(memory=4096, cores=25, cards=[card.uuid]) for _ in range(3)
    ]
    caches = {tenant.env()["CUDA_DEVICE_MEMORY_SHARED_CACHE"] for tenant in tenants}
    assert len(caches) == 3, f"expected three cache paths, seen {caches}"
    hami.usage(card).equals(memory=12_288, cores=75, shares=3)
    told = {s.name: s.value for s in hami.samples() if dict(s.labels).get("device_uuid") == card.uuid}
    require_equal(
        {metrics.MEMORY_RATIO: 0.3, metrics.OVERVIEW: 12_884_901_888.0},
        {name: told.get(name) for name in (metrics.MEMORY_RATIO, metrics.OVERVIEW)},
        f"metrics of card {card.uuid} with three tenants",
    )
    for tenant in tenants:
        hami.require_devices(tenant)
    hami.pod(on=card, memory=1, cores=26).pending("1/2 CardInsufficientCore, 1/2 CardUuidMismatch").delete()
    hami.pod(on=card, memory=1, cores=25).running().delete()
    tenants[leaver].delete()
    hami.usage(card).equals(memory=8192, cores=50, shares=2)
    hami.usage(other).equals(memory=0, cores=0, shares=0)


@check(
    "mock-05",
    title="memory by percentage",
    claim="A percentage becomes whole MiB of the card that is taken, rounded down; only 100 percent brings all cores.",
    not_proven="that the container is held to its share",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.ADMISSION, Capability.MULTI_MODEL},
    fleet="mixed",
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize(
    ("node", "percent", "memory", "cores"),
    [
        pytest.param(0, 1, 409, 0, id="1-of-a100"),
        pytest.param(0, 25, 10_240, 0, id="25-of-a100"),
        pytest.param(1, 25, 4096, 0, id="25-of-t4"),
        pytest.param(0, 33, 13_516, 0, id="33-of-a100"),
        pytest.param(1, 33, 5406, 0, id="33-of-t4"),
        pytest.param(0, 99, 40_550, 0, id="99-of-a100"),
        pytest.param(0, 100, 40_960, 100, id="100-of-a100"),
        pytest.param(0, 101, "percentage-above-100", 0, id="101"),
        pytest.param(0, 0, "percentage-of-0", 0, id="0"),
    ],
)
def test_memory_percentage(hami, hami_nodes, node, percent, memory, cores):
    pin = hami_nodes[node]
    if not isinstance(memory, str):
        require_share(hami, pin, percent, memory, cores)
        return
    with hami.known(memory) as what:
        if what == "denied":
            text = f"invalid nvidia.com/gpumem-percentage value {percent} in container main"
            hami.denied(f"{text}: must be an integer between 0 and 100", on=pin, percent=percent, code=500)
            hami.pod(on=pin, percent=100).running(memory=40_960, cores=100)
        else:
            require_share(hami, pin, percent, {"whole": 40_960, "nothing": 0}[what], cores)


def require_share(hami, node, percent, memory, cores):
    """Assert what a percentage of the one card of a node becomes."""
    hami.pod(on=node, percent=percent).running(memory=memory, cores=cores, cards=[node.cards[0].uuid])
    hami.usage(node.cards[0]).equals(memory=memory, cores=cores, shares=1)


@check(
    "mock-06",
    title="more memory than a card has is refused",
    claim="A request above a card's memory is refused with the memory reason on every card, and one MiB less fits.",
    not_proven="that memory is enforced while a container runs",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=REASONS,
)
@pytest.mark.parametrize("where", ["pinned", "unpinned", "scaled"])
def test_reject_memory(hami, hami_node, where):
    if where == "scaled":
        hami.pod(on=hami_node, memory=40_961).pending("2/2 CardInsufficientMemory").delete()
        hami.configure_node(hami_node, devicememoryscaling=2.0)
        pod = hami.pod(on=hami_node, memory=40_961)
        with hami.known("register-annotation-changed-alone") as what:
            if what == "noticed":
                pod.running(memory=40_961)
            else:
                pod.pending("2/2 CardInsufficientMemory")
        return
    pin, nodes = (hami_node, 1) if where == "pinned" else (None, 2)
    hami.pod(on=pin, memory=40_961).pending("2/2 CardInsufficientMemory", nodes=nodes)
    hami.pod(on=pin, memory=40_960).running(memory=40_960)


@check(
    "mock-07",
    title="more cores than a card has",
    claim="A request above 100 percent of a card's cores is refused.",
    not_proven="that cores are enforced while a container runs",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.ENV},
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize("asked", [101, 150])
def test_core_clamp(hami, hami_gpu, asked):
    pod = hami.pod(on=hami_gpu, memory=1024, cores=asked)
    with hami.known("cores-above-100") as cores:
        pod.decided().require(f"placed: 1024 MiB {cores} %", f"a pod that asks for {asked} % of the cores")
    assert pod.stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == str(asked)
    pod.running(memory=1024, cores=cores)
    hami.usage(hami_gpu).equals(memory=1024, cores=cores, shares=1)
    hami.pod(on=hami_gpu, memory=1, cores=1).pending("1/2 CardInsufficientCore, 1/2 CardUuidMismatch").delete()
    pod.delete()
    negative = {"nvidia.com/gpucores": "-1"}
    hami.denied_by_kubernetes(
        "must be greater than or equal to 0", code=422, on=hami_gpu, count=None,
        spec={"containers": [Container(limits=negative).manifest()]},
    )  # fmt: skip
    hami.pod(on=hami_gpu, memory=1024, cores=100).running(memory=1024, cores=100)


@check(
    "mock-08",
    title="more cards than a node has are refused",
    claim="A pod gets all its cards from one node or is refused; a pod that asks for no card is not placed by cards.",
    not_proven="that the cards of one node are well connected",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.MULTI_NODE},
    jq=REASONS,
)
@pytest.mark.parametrize("where", ["pinned", "unpinned", "zero-cards"])
def test_reject_cards(hami, hami_node, where):
    if where == "zero-cards":
        pod = hami.pod(on=hami_node, count=0).running_without_cards(handed_to_hami=True)
        assert pod.stored["spec"]["schedulerName"] == "hami-scheduler"
        pod.told("FilteringFailed", hami.expected("events-of-zero-cards").value)
        return
    pin, nodes = (hami_node, 1) if where == "pinned" else (None, 2)
    hami.pod(on=pin, count=3, memory=1024).pending("NodeInsufficientDevice", nodes=nodes)
    hami.pod(on=pin, count=2, memory=1024).running(memory=1024)


@check(
    "mock-09",
    title="memory budget is refused and given back",
    claim="A card never promises more memory than it has, and gets it back when the holder ends.",
    not_proven="that the container is held to its share",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=REASONS,
)
@pytest.mark.parametrize("end", ["delete", "succeed", "fail"])
def test_memory_budget(hami, hami_gpus, end):
    card, other = hami_gpus
    holder = hami.pod(on=card, memory=30_000, cores=10).running(memory=30_000, cores=10)
    waiting = hami.pod(on=card, memory=10_961, cores=10).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
    twin = hami.pod(on=card, memory=10_960, cores=10).running(memory=10_960, cores=10)
    hami.usage(card).equals(memory=40_960, cores=20, shares=2)
    twin.delete()
    holder.end(end)
    waiting.running(memory=10_961, cores=10, cards=[card.uuid])
    hami.usage(other).equals(memory=0, cores=0, shares=0)


@check(
    "mock-10",
    title="core budget is refused and given back",
    claim="A card never promises more than all its cores, and gets them back when the holder ends.",
    not_proven="that the container is throttled to its share",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=REASONS,
)
@pytest.mark.parametrize("end", ["delete", "succeed", "fail"])
def test_core_budget(hami, hami_gpus, end):
    card, other = hami_gpus
    holder = hami.pod(on=card, memory=1024, cores=60).running(memory=1024, cores=60)
    waiting = hami.pod(on=card, memory=1024, cores=41).pending("1/2 CardInsufficientCore, 1/2 CardUuidMismatch")
    twin = hami.pod(on=card, memory=1024, cores=40).running(memory=1024, cores=40)
    hami.usage(card).equals(memory=2048, cores=100, shares=2)
    twin.delete()
    holder.end(end)
    waiting.running(memory=1024, cores=41, cards=[card.uuid])
    hami.usage(other).equals(memory=0, cores=0, shares=0)


@check(
    "mock-11",
    title="an exclusive card stays exclusive",
    claim="A card whose cores are all promised takes nobody else, a used card is never promised whole, and others stay free.",
    not_proven="that nobody else can touch the card from outside HAMi",
    layer=Layer.FILTER,
    needs=NEEDS,
    jq=REASONS,
)
@pytest.mark.parametrize(
    ("held", "asked", "reason"),
    [
        pytest.param(100, 1, "CardInsufficientCore", id="one-core"),
        pytest.param(100, 0, "CardComputeUnitsExhausted", id="no-cores"),
        pytest.param(0, 100, "ExclusiveDeviceAllocateConflict", id="whole-on-idle-tenant"),
        pytest.param(10, 100, "CardInsufficientCore", id="whole-on-busy-tenant"),
    ],
)
def test_exclusive(hami, hami_node, hami_gpus, held, asked, reason):
    card, other = hami_gpus
    holder = hami.pod(on=card, memory=1024, cores=held).running(memory=1024, cores=held)
    refused = ", ".join(sorted([f"1/2 {reason}", "1/2 CardUuidMismatch"]))
    waiting = hami.pod(on=card, memory=1, cores=asked).pending(refused)
    hami.pod(on=hami_node, memory=1, cores=100).running(cards=[other.uuid]).delete()
    holder.delete()
    waiting.running(memory=1, cores=asked, cards=[card.uuid])


@check(
    "mock-22",
    title="shares of a card run out and come back",
    claim="A card takes as many tenants as it has shares and no more; a freed share admits exactly one of those who wait.",
    not_proven="that tenants are scheduled fairly on the card",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.RECONFIGURE},
    jq="[.usage[-1]?]",
)
@pytest.mark.parametrize("split", [2, 4, 10])
def test_share_count(hami, hami_node, split):
    if split != 10:
        hami.configure_node(hami_node, devicesplitcount=split)
    card, other = hami_node.cards
    tenants = [
        hami.pod(on=card, memory=64, cores=1).running(memory=64, cores=1, cards=[card.uuid]) for _ in range(split)
    ]
    hami.usage(card).equals(memory=64 * split, cores=split, shares=split)
    reason = "1/2 CardTimeSlicingExhausted, 1/2 CardUuidMismatch"
    waiting = [hami.pod(on=card, memory=64, cores=1).pending(reason) for _ in range(2)]
    hami.pod(on=hami_node, memory=64, cores=1).running(cards=[other.uuid]).delete()
    tenants[0].delete()
    taken = hami.one_of(waiting).running(memory=64, cores=1, cards=[card.uuid])
    (left,) = (pod for pod in waiting if pod is not taken)
    # No further attempt is asked for: the recorder keeps 25 events of one pod, and this one had its share (client-go).
    require(not left.node, "still waiting", left.node, where=repr(left))
    hami.usage(card).equals(memory=64 * split, cores=split, shares=split)
