"""Findings about what a pod asks for: numbers, memory, quota, NUMA. Each claim is the right behaviour."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.expect.accounting import Use
from pytest_hami.expect.podspec import Container

NEEDS = {Capability.ADMISSION, Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
DECISIONS = (
    '{decisions, pods: [.pods[] | {name, node, limits, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]}'
)


@check(
    "finding-s05",
    title="numbers beyond 32 bits",
    claim="A number of cards or cores that no node can have is refused, and never taken for another number.",
    not_proven="where between 100 percent and 32 bits a request ought to be refused",
    layer=Layer.ADMISSION,
    needs=NEEDS,
    fleet="findings",
    jq=DECISIONS,
)
@pytest.mark.parametrize("case", ["cores", "cards"])
def test_integer_wrap(hami, hami_gpu, case):
    # 2^31 percent of a card, and 2^32 + 1 cards.
    asked = {"cores": {"nvidia.com/gpucores": "2147483648"}, "cards": {"nvidia.com/gpu": "4294967297"}}[case]
    with hami.known("finding-s05") as known:
        seen, pod = hami.attempt(Container(count=1, memory=1024, limits=asked), on=hami_gpu)
        seen.require(known[case]["decision"], f"a pod with {asked}")
        held = known[case]["held"]
        if pod is not None:
            pod.use = {hami_gpu.uuid: Use(**held)} if any(held.values()) else {}
        hami.usage(hami_gpu).equals(**held)
    if pod is not None:
        pod.delete()
    hami.pod(on=hami_gpu, memory=1024, cores=100).running(memory=1024, cores=100)


@check(
    "finding-s06",
    title="a memory request that HAMi cannot read",
    claim="A memory request outside 32 bits is refused, and the pod is never placed without it.",
    not_proven="that memory in units such as 4Gi ought to be understood",
    layer=Layer.ADMISSION,
    needs=NEEDS | {Capability.MULTI_NODE},
    fleet="findings",
    jq=DECISIONS,
)
@pytest.mark.parametrize("where", ["node-with-cards", "node-without-cards"])
def test_unreadable_memory(hami, hami_node, where):
    (plain,) = (node for node in hami.nodes if not node.cards)
    node = hami_node if where == "node-with-cards" else plain
    asked = Container(count=1, limits={"nvidia.com/gpumem": "4Gi"})
    with hami.known("finding-s06") as known:
        seen, pod = hami.attempt(asked, on=node)
        seen.require(known[where], "a pod with nvidia.com/gpumem: 4Gi")
    if pod is not None:
        pod.delete()
    hami.pod(on=hami_node, memory=4096).running(memory=4096).delete()
    # The largest number that HAMi can read is refused as it should be.
    hami.pod(on=hami_node, memory=2_147_483_647).pending("2/2 CardInsufficientMemory")


@check(
    "finding-s09",
    title="numa-bind with topology-aware",
    claim="A pod that is bound to one NUMA group gets its cards of any group that has enough of them, whatever the policy.",
    not_proven="that the cards of a group are well connected",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.NUMA, Capability.TOPOLOGY},
    fleet="findings",
    jq=DECISIONS,
)
def test_numa_group_with_topology(hami, hami_nodes):
    node = next(node for node in hami_nodes if len(node.cards) == 5)
    three = [card.uuid for card in node.cards if card.numa == 1]
    bound = {"nvidia.com/numa-bind": "true"}
    topology = bound | {"hami.io/gpu-scheduler-policy": "topology-aware"}
    hami.pod(on=node, count=3, memory=1024, annotations=bound).running(memory=1024, cards=three).delete()
    hami.pod(on=node, count=2, memory=1024, annotations=topology).running(memory=1024).delete()
    with hami.known("finding-s09") as known:
        seen, _ = hami.attempt(on=node, count=3, memory=1024, annotations=topology)
        seen.require(known, "three cards of the NUMA group that has three")


@check(
    "finding-s10",
    title="quota beside init containers",
    claim="A namespace's quota counts every container of a pod, also beside init containers.",
    not_proven="that usage of pods without HAMi annotations is counted",
    layer=Layer.FILTER,
    needs=NEEDS,
    fleet="findings",
    jq=DECISIONS,
)
@pytest.mark.parametrize("inits", [1, 2])
def test_quota_with_init_containers(hami, hami_gpu, inits):
    # Two containers of 10240 MiB are one MiB too many. Percentages are not known before the filter.
    hami.quota({"limits.nvidia.com/gpumem": "20479"})
    both = [Container(name, percent=25) for name in ("first", "second")]
    hami.pod(*both, on=hami_gpu).pending("1/2 CardUuidMismatch, 1/2 ResourceQuotaNotFit").delete()
    setup = [Container(f"setup-{number}", count=None) for number in range(inits)]
    with hami.known("finding-s10") as known:
        seen, pod = hami.attempt(*both, init=setup, on=hami_gpu)
        seen.require(known, f"the same beside {inits} init containers")
    if pod is not None:
        pod.delete()
    hami.quota({"limits.nvidia.com/gpumem": "20480"})
    hami.pod(*both, on=hami_gpu).running(memory=10_240)
