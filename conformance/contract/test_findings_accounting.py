"""Findings about what HAMi writes down and counts. Each claim is the right behaviour."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.expect import observe
from pytest_hami.expect.accounting import Use
from pytest_hami.expect.failures import require_equal
from pytest_hami.expect.podspec import Container

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
ALLOCATIONS = '[.pods[] | {name, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]'
COUNTED = "{decisions, counted: [.usage[]? | {when, cards}]}"


def require_counted(hami, card, pod, held):
    """Assert what HAMi counts for the only pod on a card, on the card and for the pod."""
    pod.use = {card.uuid: Use(**held)} if any(held.values()) else {}
    hami.usage(card).equals(**held)


@check(
    "finding-s01",
    title="containers keep their positions",
    claim="The allocation has one entry for each container, in order, and an empty one for a container that asks for no card.",
    not_proven="that the device plugin gives each container the entry of its position",
    layer=Layer.FILTER,
    needs=NEEDS,
    fleet="findings",
    jq=ALLOCATIONS,
)
@pytest.mark.parametrize("order", ["plain-first", "plain-between", "plain-last"])
def test_container_positions(hami, hami_node, order):
    plain, one, two = Container("plain", count=None), Container("one", memory=1024), Container("two", memory=2048)
    shape = {"plain-first": (plain, one), "plain-between": (one, plain, two), "plain-last": (two, plain)}[order]
    pod = hami.pod(*shape, on=hami_node).running()
    with hami.known("finding-s01") as known:
        seen = [len(group) for group in pod.groups]
        require_equal({"cards": known[order]}, {"cards": seen}, f"{pod!r} cards in each entry of {observe.ALLOCATED}")


@check(
    "finding-s02",
    title="a pod counts after its init containers",
    claim="A pod is counted with all that its containers hold until it ends, also after an init container without cards is done.",
    not_proven="what is counted while an init container runs",
    layer=Layer.FILTER,
    needs=NEEDS,
    fleet="findings",
    jq=COUNTED,
)
def test_usage_after_init(hami, hami_gpus):
    card, other = hami_gpus
    setup = Container("setup", count=None)
    _, pod = hami.attempt(Container("app", memory=4000, cores=50), init=[setup], on=card)
    with hami.known("finding-s02") as known:
        require_counted(hami, card, pod, known["held"])
        # One MiB and one percent more than is left beside the first pod.
        seen, second = hami.attempt(on=card, memory=36_961, cores=51)
        seen.require(known["second"], "a pod that does not fit beside the first")
        second.delete()
        require_counted(hami, card, pod, known["held"])
    hami.usage(other).equals(memory=0, cores=0, shares=0)
    pod.delete()
    # The twin without init container holds its share.
    hami.pod(Container("app", memory=4000, cores=50), on=card).running(memory=4000, cores=50)
    hami.pod(on=card, memory=36_961).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")


@check(
    "finding-s11",
    title="copied annotations hold no card",
    claim="Only what HAMi itself placed is counted: annotations that were copied to another pod hold nothing of a card.",
    not_proven="that nobody but HAMi can write its annotations",
    layer=Layer.FILTER,
    needs=NEEDS,
    fleet="findings",
    jq=COUNTED,
)
@pytest.mark.parametrize("ghost", ["gated", "foreign-scheduler"])
def test_copied_annotations(hami, hami_gpu, ghost):
    card = hami_gpu
    text = f"{card.uuid},NVIDIA,40960,10:;"
    notes = {observe.VGPU_NODE: card.node, observe.ALLOCATED: text}
    rest = {
        "gated": {"schedulingGates": [{"name": "pytest-hami.io/ghost"}]},
        "foreign-scheduler": {"schedulerName": "nobody"},
    }
    pod = hami.pod(Container(count=None), annotations=notes, spec=rest[ghost])
    with hami.known("finding-s11") as known:
        require_counted(hami, card, pod, known["held"])
        seen, blocked = hami.attempt(on=card, memory=1)
        seen.require(known["next"], "a pod that asks for one MiB of an unused card")
        blocked.delete()
    # It is over when the other pod is gone.
    pod.delete()
    hami.usage(card).equals(memory=0, cores=0, shares=0)
    hami.pod(on=card, memory=40_960).running(memory=40_960)


@check(
    "finding-s13",
    title="a filter call that names no nodes",
    claim="A filter call that names no nodes is answered with an error, and its pod keeps what it holds.",
    not_proven="that kube-scheduler ever makes such a call: it does with an extender that is not nodeCacheCapable",
    layer=Layer.FILTER,
    needs=NEEDS | {Capability.EXTENDER},
    fleet="findings",
    jq="{answers, counted: [.usage[]? | {when, cards}]}",
)
def test_filter_without_nodes(hami, hami_gpu):
    card = hami_gpu
    pod = hami.pod(on=card, memory=4000, cores=25).running(memory=4000, cores=25)
    held = pod.use
    # A pod that asks for no card is not HAMi's affair, whatever is missing.
    plain = hami.manifest(Container(count=None))
    require_equal(
        {"answer": "answered"}, {"answer": hami.filter_answer({"Pod": plain})}, "a filter call for a plain pod"
    )
    with hami.known("finding-s13") as known:
        answer = hami.filter_answer({"Pod": pod.current})
        require_counted(hami, card, pod, known["held"])
        require_equal({"answer": known["answer"]}, {"answer": answer}, "a filter call for a pod that runs")
    # The next change of the pod makes it count again.
    hami.client.patch("Pod", pod.name, {"metadata": {"labels": {"pytest-hami.io/seen": "again"}}}, pod.namespace)
    pod.use = held
    hami.usage(card).equals(memory=4000, cores=25, shares=1)
    hami.pod(on=card, memory=36_961).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
