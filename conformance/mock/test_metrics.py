"""What HAMi's metrics say, before, during and after."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.expect.failures import require, require_equal

NEEDS = {Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}


@check(
    "mock-26",
    title="monitoring tells the truth",
    claim="The scheduler's metrics carry exactly the promised series and labels, and follow a pod on its card and nowhere else.",
    not_proven="that reserved memory is used memory",
    layer=Layer.METRICS,
    needs=NEEDS | {Capability.MULTI_NODE},
    jq="[.usage[]? | {when, cards}]",
)
@pytest.mark.parametrize(
    "case",
    [
        "vector",
        "labels",
        "build-info",
        pytest.param("monitor", marks=pytest.mark.hami_needs("monitor_metrics")),
    ],
)
def test_monitoring(hami, hami_cluster, hami_gpus, case):
    card, _ = hami_gpus
    if case == "build-info":
        (sample,) = [sample for sample in hami.samples() if sample.name == "hami_build_info"]
        seen = dict(sample.labels)["version"].removeprefix("v")
        require(seen == hami_cluster.hami_version, hami_cluster.hami_version, seen, where="hami_build_info version")
        return
    before = series(hami)
    if case == "labels":
        hami.quota({"limits.nvidia.com/gpumem": "8192"})
    pod = hami.pod(on=card, memory=4096, cores=25).running(memory=4096, cores=25)
    if case == "monitor":
        require_monitor(hami, hami_cluster, card, pod)
        return
    if case == "labels":
        wrong = metrics.contract_violations(metrics.parse(hami_cluster.fresh_metrics()), hami.traits.release)
        require(not wrong, "the promised metric names and label sets", wrong, where="/metrics of the HAMi scheduler")
        wrong = metrics.type_violations(hami_cluster.scheduler_metrics(), hami.traits.release)
        require(not wrong, "a gauge for every name", wrong, where="/metrics of the HAMi scheduler")
        by_uuid = {device.id: device for node in hami.nodes if node.cards for device in hami.registered(node.name)}
        samples = hami.samples()
        usage = metrics.card_usage(samples)
        for sample in samples:
            labels = dict(sample.labels)
            device = by_uuid.get(labels.get("device_uuid"))
            if device is None or labels.get("node") not in hami.node_names:
                continue
            used = usage[(labels["node"], device.id)]
            cores = device.devcore if hami.traits.total_cores_labelled else used.cores
            promised = {
                "device_index": str(device.index), "device_type": device.type, "device_cores": str(cores),
                "device_memory_limit": str(device.devmem), "shared_containers": str(used.shares),
            }  # fmt: skip
            seen = {key: value for key, value in labels.items() if key in promised}
            require_equal({key: promised[key] for key in seen}, seen, f"labels of {sample.name} of card {device.id}")
        return
    during = series(hami)
    moved = {
        key: (before.get(key), during.get(key)) for key in {*before, *during} if before.get(key) != during.get(key)
    }
    key = (card.node, card.uuid)
    require_equal(
        {
            ("hami_gpu_memory_allocated_bytes", *key): (0.0, 4_294_967_296.0),
            ("hami_gpu_core_allocated_ratio", *key): (0.0, 25.0),
            ("hami_gpu_shared_count", *key): (0.0, 1.0),
            ("hami_node_gpu_memory_allocated_ratio", *key): (0.0, 0.1),
            ("hami_node_gpu_overview", *key): (0.0, 4_294_967_296.0),
            ("hami_vgpu_memory_allocated_bytes", *key): (None, 4_294_967_296.0),
            ("hami_vgpu_core_allocated_ratio", *key): (None, 25.0),
        },
        moved,
        "series that changed while one pod of 4096 MiB and 25 % runs",
    )
    require(
        metrics.pod_usage(hami.samples())[(pod.namespace, pod.name)] == {card.uuid: (4096, 25)}, "4096 MiB, 25 %", moved
    )
    pod.delete()
    hami.usage(card).equals(memory=0, cores=0, shares=0)
    require_equal(before, series(hami), "series after the pod is gone")


def require_monitor(hami, hami_cluster, card, pod):
    """Assert that the monitor of the card's node tells of every card, and of the pod's limit until it is gone."""
    limit = "hami_vgpu_memory_limit_bytes"
    samples = hami.monitor_samples(card.node, until=lambda found: found.get(limit))
    wrong = metrics.monitor_violations([s for found in samples.values() for s in found], hami.traits.release)
    require(
        not wrong, "the promised metric names and label sets", wrong, where=f"/metrics of the monitor of {card.node}"
    )
    host = {"hami_host_gpu_memory_used_bytes": {}, "hami_host_gpu_utilization_ratio": {}}
    for each in hami.nodes_by_name[card.node].cards:
        staged = hami_cluster.staged_card(each.index)
        key = (each.uuid, str(each.index), f"NVIDIA-{each.type}")
        host["hami_host_gpu_memory_used_bytes"][key] = staged and staged.used << 20
        host["hami_host_gpu_utilization_ratio"][key] = staged and staged.utilisation
    for name, expected in host.items():
        seen = {
            tuple(map(dict(s.labels).get, ("device_uuid", "device_index", "device_type"))): s.value
            for s in samples[name]
        }
        if None in expected.values():
            seen = dict.fromkeys(seen)
        require_equal(expected, seen, name)
    (container,) = pod.stored["spec"]["containers"]
    keys = ("namespace", "pod", "container", "device_uuid")
    seen = {tuple(map(dict(s.labels).get, keys)): s.value for s in samples[limit]}
    require_equal({(pod.namespace, pod.name, container["name"], card.uuid): 4_294_967_296.0}, seen, limit)
    pod.delete()
    hami.monitor_samples(card.node, until=lambda found: not found.get(limit))


def series(hami):
    """Return the value of every series of the leased nodes by (name, node, uuid)."""
    found = {}
    for sample in hami.samples():
        labels = dict(sample.labels)
        if labels.get("node") in hami.node_names:
            found[(sample.name, labels["node"], labels["device_uuid"])] = sample.value
    return found
