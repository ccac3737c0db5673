"""Registration of nodes and cards, and what survives restarts and changes."""

import re

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.contract.register import Device
from pytest_hami.expect import observe
from pytest_hami.expect.failures import require, require_equal

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STAMP = re.compile(r"(\w+)_\d{4}[.-]\d{2}[.-]\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?Z?")
A100 = {
    "count": 10,
    "devmem": 40_960,
    "devcore": 100,
    "type": "NVIDIA A100-SXM4-40GB",
    "mode": "hami-core",
    "health": True,
}


@check(
    "mock-01",
    title="cards are registered",
    claim="Every card of every GPU node, and no other, is in the node's annotation, its allocatable and the scheduler's metrics.",
    not_proven="that the cards exist",
    layer=Layer.NODE,
    needs={Capability.SCHEDULER_METRICS, Capability.MULTI_NODE},
    jq="{registered, allocatable}",
)
@pytest.mark.parametrize("case", ["annotation", "allocatable", "metrics", "cpu-node"])
def test_device_registration(hami, hami_nodes, case):
    registered = {node.name: hami.registered(node.name) for node in hami_nodes}
    found = {node.name: hami.journal.find("Node", None, node.name) for node in hami.nodes}
    hami.note("registered", {name: [device.id for device in devices] for name, devices in registered.items()})
    hami.note("allocatable", {n: o["status"].get("allocatable", {}).get("nvidia.com/gpu") for n, o in found.items()})
    if case == "annotation":
        for node in hami_nodes:
            for card in node.cards:
                expected = Device(id=card.uuid, index=card.index, numa=card.numa, **A100)
                seen = [device for device in registered[node.name] if device.id == card.uuid]
                require(seen == [expected], str(expected), seen, where=f"node {node.name} {observe.REGISTER}")
            require(len(registered[node.name]) == 2, "2 cards", registered[node.name], where=f"node {node.name}")
        hami.samples()
        again = {node.name: hami.registered(node.name) for node in hami_nodes}
        require(again == registered, "the same cards after another register run", again, where=observe.REGISTER)
        expected = hami.expected("node-handshake").value
        for node in hami_nodes:
            text = observe.annotations(hami.journal.find("Node", None, node.name)).get(observe.HANDSHAKE, "absent")
            word = STAMP.fullmatch(text)
            require(
                (word[1] if word else text) == expected, expected, text, where=f"node {node.name} {observe.HANDSHAKE}"
            )
        uuids = [device.id for devices in registered.values() for device in devices]
        require(len(set(uuids)) == 4 and all(map(UUID.fullmatch, uuids)), "4 distinct card UUIDs", uuids)
    elif case == "allocatable":
        for node in hami_nodes:
            status = found[node.name]["status"]
            seen = {key: status[key].get("nvidia.com/gpu") for key in ("capacity", "allocatable")}
            require_equal({"capacity": "20", "allocatable": "20"}, seen, f"node {node.name} nvidia.com/gpu")
    elif case == "metrics":
        usage = metrics.card_usage(hami.samples())
        for card in hami.cards:
            seen = usage.get((card.node, card.uuid))
            expected = metrics.CardUsage(memory_limit=42_949_672_960, core_limit=100, memory=0, shares=0, cores=0)
            require(seen == expected, str(expected), seen, where=f"metrics of card {card.uuid}")
        mine = {uuid for node, uuid in usage if node in hami.node_names}
        require(mine == {card.uuid for card in hami.cards}, "exactly the fleet's cards", sorted(mine))
    else:
        (plain,) = (node for node in hami.nodes if not node.cards)
        notes = observe.annotations(found[plain.name])
        require(observe.REGISTER not in notes, f"no {observe.REGISTER}", notes, where=f"node {plain.name}")
        seen = {k: found[plain.name]["status"].get(k, {}).get("nvidia.com/gpu") for k in ("capacity", "allocatable")}
        require_equal({"capacity": None, "allocatable": None}, seen, f"node {plain.name} nvidia.com/gpu")


@check(
    "mock-23",
    title="a restart loses nothing",
    claim="After a restart of scheduler or plugin running pods keep cards and accounting, and waiting pods still get theirs.",
    not_proven="that a restart during an Allocate is harmless",
    layer=Layer.BIND,
    needs=NEEDS | {Capability.RESTART},
    jq='[.pods[] | {name, uid, allocated: .annotations["hami.io/vgpu-devices-allocated"]}]',
)
@pytest.mark.parametrize("part", ["hami-scheduler", "node"])
@pytest.mark.parametrize("waiting", [False, True], ids=["held", "held-and-waiting"])
def test_restart_recovery(hami, hami_cluster, hami_gpus, part, waiting):
    card, other = hami_gpus
    holder = hami.pod(on=card, memory=30_000, cores=10).running(memory=30_000, cores=10)
    reason = "1/2 CardInsufficientMemory, 1/2 CardUuidMismatch"
    queued = hami.pod(on=card, memory=20_000).pending(reason) if waiting else None
    before = (holder.uid, observe.annotations(holder.current)[observe.ALLOCATED])
    registered = hami.registered(card.node)
    hami_cluster.restart(part)
    require(
        hami.registered(card.node) == registered, str(registered), hami.registered(card.node), where=observe.REGISTER
    )
    hami.require_shares(hami.nodes_by_name[card.node])
    hami.usage(card).equals(memory=30_000, cores=10, shares=1)
    hami.usage(other).equals(memory=0, cores=0, shares=0)
    after = (holder.current["metadata"]["uid"], observe.annotations(holder.current)[observe.ALLOCATED])
    require(before == after, str(before), after, where="UID and allocation across the restart")
    restarts = [status["restartCount"] for status in holder.current["status"]["containerStatuses"]]
    require(restarts == [0], "no restart of the container", restarts)
    holder.forget_env()
    hami.require_env(holder)
    hami.require_hook(holder)
    hami.pod(on=card, memory=10_961).pending(reason).delete()
    hami.pod(on=card, memory=10_960).running(memory=10_960).delete()
    if queued:
        holder.delete()
        queued.running(memory=20_000, cards=[card.uuid])


@check(
    "mock-32",
    title="memory oversubscription",
    claim="With a memory scaling of 2 a node promises twice its memory, says so to its containers, and takes it back without harm.",
    not_proven="that oversubscribed memory can be used",
    layer=Layer.NODE,
    needs=NEEDS | {Capability.ENV, Capability.RECONFIGURE, Capability.MULTI_NODE},
    jq='[.pods[] | {name, allocated: .annotations["hami.io/vgpu-devices-allocated"], env}]',
)
@pytest.mark.parametrize("case", ["single", "two-tenants", "shrink-back"])
def test_memory_oversubscription(hami, hami_nodes, case):
    node, untouched = hami_nodes
    card, other = node.cards
    before = hami.pod(on=card, memory=1000, cores=5).running(memory=1000)
    assert "CUDA_OVERSUBSCRIBE" not in before.env()
    double_memory(hami, node, untouched)
    if case == "single":
        pod = hami.pod(on=card, memory=61_440, cores=10).running(memory=61_440)
        assert pod.env()["CUDA_OVERSUBSCRIBE"] == "true"
        hami.pod(on=card, memory=19_481).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
        hami.pod(on=node, memory=81_921).pending("2/2 CardInsufficientMemory")
        hami.pod(on=untouched, memory=61_440).pending("2/2 CardInsufficientMemory")
    elif case == "two-tenants":
        for _ in range(2):
            hami.pod(on=card, memory=40_000, cores=10).running(memory=40_000, cards=[card.uuid])
        hami.usage(card).equals(memory=81_000, cores=25, shares=3)
    else:
        hami.pod(on=card, memory=61_440, cores=10).running(memory=61_440)
        hami.configure_node(node)
        hami.usage(card).equals(memory=62_440, cores=15, shares=2)
        hami.pod(on=card, memory=1).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
        require_equal(
            {"MiB": [40_960, 40_960]},
            {"MiB": [d.devmem for d in hami.registered(node.name)]},
            "registered after the shrink",
        )
        hami.pod(on=other, memory=40_960, cores=5).running(memory=40_960)
    assert before.current["status"]["containerStatuses"][0]["restartCount"] == 0


def double_memory(hami, node, untouched):
    """Scale the memory of a node by two and assert that it registers twice its memory and the scheduler counts with it."""
    hami.configure_node(node, devicememoryscaling=2.0)
    require_equal(
        {"scaled": [81_920, 81_920], "other": [40_960, 40_960]},
        {"scaled": [d.devmem for d in hami.registered(node.name)],
         "other": [d.devmem for d in hami.registered(untouched.name)]},
        "registered MiB",
    )  # fmt: skip
    with hami.known("register-annotation-changed-alone") as what:
        require_limit(hami, node, 85_899_345_920 if what == "noticed" else 42_949_672_960)
    if what != "noticed":
        # A number of shares that changes as well is noticed by every release.
        hami.configure_node(node, devicememoryscaling=2.0, devicesplitcount=11)
        require_limit(hami, node, 85_899_345_920)


def require_limit(hami, node, expected):
    """Assert the bytes that the scheduler counts with on each card of a node."""
    usage = metrics.card_usage(hami.samples())
    seen = {card.uuid: usage[(node.name, card.uuid)].memory_limit for card in node.cards}
    require_equal(dict.fromkeys(seen, expected), seen, f"{metrics.MEMORY_LIMIT} of node {node.name}")
