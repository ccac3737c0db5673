"""What each container gets of the cards that its pod was given."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.expect.failures import require_equal
from pytest_hami.expect.podspec import Container

NEEDS = {
    Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.ENV, Capability.SCHEDULER_METRICS,
}  # fmt: skip
CONTAINERS = '[.pods[] | {name, allocated: .annotations["hami.io/vgpu-devices-allocated"], env}]'


@check(
    "mock-04",
    title="one container with two cards",
    claim="A container that asks for two cards gets two different ones of one node, each limited, or none.",
    not_proven="that the cards can reach each other",
    layer=Layer.CONTAINER,
    needs=NEEDS | {Capability.NVML_VIEW},
    jq=CONTAINERS,
)
@pytest.mark.parametrize("case", ["idle", "one-card-filled"])
def test_multi_gpu(hami, hami_node, case):
    first, second = hami_node.cards
    if case == "one-card-filled":
        holder = hami.pod(on=first, memory=38_000, cores=10).running()
        waiting = hami.pod(on=hami_node, count=2, memory=4096, cores=25)
        waiting.pending("1/2 AllocatedCardsInsufficientRequest, 1/2 CardInsufficientMemory")
        hami.pod(on=hami_node, count=2, memory=2960, cores=25).running(memory=2960).delete()
        holder.delete()
        waiting.running(memory=4096, cores=25, cards=[first.uuid, second.uuid])
        return
    pod = hami.pod(on=hami_node, count=2, memory=4096, cores=25)
    pod.running(memory=4096, cores=25, cards=[first.uuid, second.uuid])
    hami.require_devices(pod)
    assert [len(group) for group in pod.groups] == [2], f"expected one group of two cards, seen {pod.groups}"
    assert pod.env()["NVIDIA_VISIBLE_DEVICES"].split(",") == list(pod.cards)
    assert hami.nvml_view(pod) == [(index, uuid, 4096) for index, uuid in enumerate(pod.cards)]
    for card in hami_node.cards:
        hami.usage(card).equals(memory=4096, cores=25, shares=1)


@check(
    "mock-21",
    title="several containers in one pod",
    claim="Each container of a pod gets the cards and limits that it asked for, in its own position.",
    not_proven="that the containers are isolated from each other",
    layer=Layer.CONTAINER,
    needs=NEEDS | {Capability.HOOK},
    jq=CONTAINERS,
)
@pytest.mark.parametrize("case", ["two", "packed", "cpu-between", "metric-index"])
def test_multi_container(hami, hami_node, case):
    small = Container("small", memory=2048, cores=10)
    large = Container("large", memory=4096, cores=20)
    packed = {"hami.io/gpu-scheduler-policy": "binpack"} if case == "packed" else {}
    between = (Container("plain", count=None),) if case == "cpu-between" else ()
    pod = hami.pod(small, *between, large, on=hami_node, annotations=packed).running()
    sizes = {name: [(share.memory, share.cores) for share in shares] for name, shares in pod.shares.items() if shares}
    require_equal({"small": [(2048, 10)], "large": [(4096, 20)]}, sizes, "cards of each container")
    assert len(set(pod.cards)) == (1 if packed else 2)
    for name, size in (("small", 2048), ("large", 4096)):
        (share,) = pod.shares[name]
        require_equal({"view": [(0, share.uuid, size)]}, {"view": hami.nvml_view(pod, name)}, f"{pod!r} {name} NVML")
        hami.require_hook(pod, name)
        hami.require_devices(pod, name)
    if packed:
        (card,) = (card for card in hami_node.cards if card.uuid in pod.cards)
        hami.usage(card).equals(memory=6144, cores=30, shares=2)
    if between:
        assert not any(name.startswith("CUDA_") for name in pod.env("plain"))
        assert pod.exec(["cat", "/etc/ld.so.preload"], "plain").code != 0
        with hami.known("container-positions-on-model-types") as groups:
            require_equal({"groups": groups}, {"groups": len(pod.groups)}, "groups of the allocation of 3 containers")
    if case == "metric-index":
        found = {
            dict(sample.labels)["container_index"]
            for sample in hami.samples()
            if sample.name == metrics.VGPU_MEMORY and dict(sample.labels)["pod"] == pod.name
        }
        with hami.known("vgpu-container-index") as indexes:
            require_equal({"container_index": sorted(indexes)}, {"container_index": sorted(found)}, metrics.VGPU_MEMORY)


def _nvml(hami, card, case):
    if case == "one-card":
        pod = hami.pod(on=card, memory=4096, cores=25).running(memory=4096, cores=25)
        assert hami.nvml_view(pod) == [(0, card.uuid, 4096)]
        return
    node = next(node for node in hami.nodes if node.name == card.node)
    pod = hami.pod(on=node, count=2, memory=4096, cores=25).running(memory=4096, cores=25)
    view = hami.nvml_view(pod)
    assert (pod.cards.index(card.uuid), card.uuid, 4096) in view
    assert len(view) == 2


@check(
    "mock-27a",
    title="NVML shows the slice of card 0",
    claim="In the container the first card reports the slice as its total memory, exactly, alone and beside another.",
    not_proven="that an allocation above the slice fails",
    layer=Layer.CONTAINER,
    needs=NEEDS | {Capability.NVML_VIEW, Capability.HOOK},
    jq="[.nvml[] | {index: .[0], uuid: .[1], total: .[2]}]",
)
@pytest.mark.parametrize("case", ["one-card", "two-cards"])
def test_nvml_index0(hami, hami_gpus, case):
    _nvml(hami, hami_gpus[0], case)


@check(
    "mock-27b",
    title="NVML shows the slice of card 1",
    claim="In the container the second card reports the slice as its total memory, exactly, alone and beside another.",
    not_proven="that an allocation above the slice fails",
    layer=Layer.CONTAINER,
    needs=NEEDS | {Capability.NVML_VIEW, Capability.HOOK},
    jq="[.nvml[] | {index: .[0], uuid: .[1], total: .[2]}]",
)
@pytest.mark.parametrize("case", ["one-card", "two-cards"])
def test_nvml_index1(hami, hami_gpus, case):
    _nvml(hami, hami_gpus[1], case)


@check(
    "mock-29",
    title="CUDA runs in a slice",
    claim="A CUDA program runs to its end in a slice of a card.",
    not_proven="that it is held to the slice",
    layer=Layer.CONTAINER,
    needs=NEEDS,
    jq=CONTAINERS,
)
def test_cuda_vectoradd(hami, hami_gpu):
    sample = Container(memory=4096, cores=25, image="nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0")
    pod = hami.pod(sample, on=hami_gpu).running(memory=4096, cores=25, cards=[hami_gpu.uuid])
    # Everything up to the program itself is asserted above, on every kind of cluster.
    hami.require_capability(Capability.CUDA)
    result = pod.exec(["/cuda-samples/vectorAdd"])
    assert (result.code, "Test PASSED" in result.stdout) == (0, True), result.stdout
