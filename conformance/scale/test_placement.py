"""How fast pods are placed, and where the time goes; judged is only that each of them is."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import allocation, metrics
from pytest_hami.expect.accounting import Use, total
from pytest_hami.expect.failures import require, require_equal
from pytest_hami.expect.placement import figures, placement_of
from pytest_hami.expect.podspec import Container
from pytest_hami.kube.wait import poll, wait_until

NEEDS = {
    Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS, Capability.CHEAP_NODES,
}  # fmt: skip
MEMORY, CORES = 300, 1
PLAIN_CREATES = 5
CLIENTS = 8
# One node takes one pod for each turn of its lock, and who comes too late waits 1 s, 2 s … 10 s: a small burst says enough.
SECONDS_EACH = 3
SHAPES = [
    pytest.param(nodes, pods, marks=pytest.mark.hami_fleet(f"scale-{nodes}"), id=f"{nodes}-nodes")
    for nodes, pods in ((1, 20), (16, 100), (200, 100))
]


@check(
    "scale-01",
    title="pods created one after the other",
    claim="Each pod of a sequence is placed and served, and the cards carry exactly their sum.",
    not_proven="that the pace is good enough: a figure, not a verdict",
    layer=Layer.BIND,
    needs=NEEDS,
    fleet="scale-1",
    jq=".figures",
)
@pytest.mark.parametrize(("nodes", "pods"), SHAPES)
def test_sequence(hami, nodes, pods):
    measure(hami, nodes, pods, clients=1)


@check(
    "scale-02",
    title="pods created at once",
    claim="Each pod of a burst is placed and served in the end, and the cards carry exactly their sum.",
    not_proven="that the pace is good enough: a figure, not a verdict",
    layer=Layer.BIND,
    needs=NEEDS,
    fleet="scale-1",
    jq=".figures",
)
@pytest.mark.parametrize(("nodes", "pods"), SHAPES)
def test_burst(hami, nodes, pods):
    measure(hami, nodes, pods, clients=CLIENTS)


def measure(hami, nodes, pods, *, clients):
    plain_namespace = hami.other_namespace("plain", labels={"hami.io/webhook": "ignore"})
    plain = statistics.median(create(hami, f"plain-{n}", plain_namespace, nobody=True)[1] for n in range(PLAIN_CREATES))
    started = time.monotonic()
    limit = hami.timing.place + SECONDS_EACH * pods

    def served(made):
        uid, seconds = made
        return placement_of(seconds, hami.journal.history(uid))

    def one(number):
        made = create(hami, f"pod-{number}", hami.namespace)
        if clients == 1:
            # The next one must not find the lock of this one.
            wait(hami, lambda: served(made) and is_free(hami, made[0]), limit, f"pod-{number} is served, its node free")
        return made

    try:
        with ThreadPoolExecutor(clients) as pool:
            made = list(pool.map(one, range(pods)))
        # From the last one on: most are served long before it.
        wait(hami, lambda: all(map(served, reversed(made))), limit, f"all {pods} pods are served")
        placed = [served(pod) for pod in made]
        last = max(hami.journal.history(uid)[-1].time for uid, _ in made)
        events = [event for uid, _ in made for event in hami.journal.events_of(uid)]
        found = figures(placed, nodes=nodes, seconds=last - started, plain_create=plain, events=events)
        hami.note("figures", found)
        require_placed(hami, [uid for uid, _ in made])
    finally:
        remove_pods(hami, hami.namespace)
        remove_pods(hami, plain_namespace)


def create(hami, name, namespace, *, nobody=False):
    """Create a pod, for nobody to schedule where told so, and return its UID and the seconds that it took."""
    spec = {"schedulerName": "nobody"} if nobody else None
    body = hami.manifest(Container(memory=MEMORY, cores=CORES), namespace=namespace, spec=spec)
    body["metadata"]["name"] = name
    started = time.monotonic()
    made = hami.client.create("Pod", body)
    return made["metadata"]["uid"], time.monotonic() - started


def remove_pods(hami, namespace):
    hami.client.delete_all("Pod", namespace, grace_seconds=0)
    poll(
        lambda: not hami.client.list("Pod", namespace), timeout=hami.timing.delete,
        missing=lambda: f"the end of all pods in {namespace}",
    )  # fmt: skip


def is_free(hami, uid):
    """Whether the node of a placed pod has no lock."""
    node = hami.journal.find("Node", None, hami.journal.latest(uid)["spec"]["nodeName"])
    return "hami.io/mutex.lock" not in node["metadata"].get("annotations", {})


def wait(hami, ready, limit, missing):
    wait_until(hami.journal, ready, timeout=limit, missing=lambda: missing)


def require_placed(hami, uids):
    """Assert that each pod has one share of one card of its node, and that HAMi counts exactly these."""
    held = []
    for uid in uids:
        pod = hami.journal.latest(uid)
        name, node = pod["metadata"]["name"], hami.nodes_by_name[pod["spec"]["nodeName"]]
        text = pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        shares = [share for group in allocation.parse(text) for share in group]
        where = f"{name}: vgpu-devices-allocated"
        require(
            [(s.memory, s.cores) for s in shares] == [(MEMORY, CORES)], f"{MEMORY} MiB, {CORES} %", text, where=where
        )
        require(shares[0].uuid in {card.uuid for card in node.cards}, f"a card of {node.name}", text, where=where)
        held.append({shares[0].uuid: Use(MEMORY, CORES, 1)})
    sums = total(held)
    samples = metrics.read(hami.cluster.fresh_metrics(), metrics.USAGE_SERIES, hami.traits.release)
    used = {uuid: Use(c.memory, c.cores, c.shares) for (_, uuid), c in metrics.card_usage(samples).items()}
    mine = [card.uuid for card in hami.cards]
    require_equal(
        {uuid: str(sums.get(uuid, Use())) for uuid in mine}, {uuid: str(used.get(uuid, "no series")) for uuid in mine},
        "HAMi's metrics with all pods placed",
    )  # fmt: skip
