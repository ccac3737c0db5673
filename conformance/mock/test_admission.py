"""What the webhook does to a pod, and what it leaves alone."""

import pytest

from pytest_hami.checks import Capability, Layer, check
from pytest_hami.contract import metrics
from pytest_hami.expect.failures import require_equal
from pytest_hami.expect.podspec import Container

NEEDS = {Capability.ADMISSION, Capability.FILTER, Capability.BIND, Capability.ALLOCATE, Capability.SCHEDULER_METRICS}
ONE_CARD = ("quota-of-one-card", "1/2 CardUuidMismatch, 1/2 ResourceQuotaNotFit")
STORED = "[.pods[] | {name, scheduler, limits}]"


@check(
    "mock-02",
    title="webhook, allocation and runtime agree",
    claim="A GPU pod is sent to HAMi and changed nowhere else, and its container sees the allocated card, limits and hook.",
    not_proven="that the hook enforces the limits",
    layer=Layer.ADMISSION,
    needs=NEEDS | {Capability.ENV, Capability.HOOK, Capability.NVML_VIEW, Capability.RECONFIGURE},
    jq='.pods[0] | {scheduler, allocated: .annotations["hami.io/vgpu-devices-allocated"], env}',
)
@pytest.mark.parametrize("runtime_class", ["", "nvidia"], ids=["no-runtime-class", "runtime-class"])
def test_webhook_allocation_runtime(hami, hami_nodes, runtime_class):
    if runtime_class:
        hami.configure_scheduler(runtimeClassName=runtime_class)
    pod = hami.pod(memory=4096, cores=25)
    allowed = {"schedulerName": ("default-scheduler", "hami-scheduler")}
    if runtime_class:
        allowed["runtimeClassName"] = (None, runtime_class)
    require_equal(allowed, hami.mutations(pod), "fields of the spec that the webhook changed")
    pod.running(memory=4096, cores=25)
    (uuid,) = pod.cards
    assert pod.env()["NVIDIA_VISIBLE_DEVICES"] == uuid
    hami.require_hook(pod)
    hami.require_devices(pod)
    assert hami.nvml_view(pod) == [(0, uuid, 4096)]


@check(
    "mock-24",
    title="pods without cards are left alone",
    claim="A pod that asks for no card keeps its spec and scheduler, and sees no variable, hook or device of HAMi.",
    not_proven="that it cannot reach a card by other means",
    layer=Layer.ADMISSION,
    needs=NEEDS | {Capability.ENV, Capability.DEVICES, Capability.HOOK, Capability.RECONFIGURE},
    jq="[.pods[] | {name, scheduler, annotations, env}]",
)
@pytest.mark.parametrize("case", ["plain", "env-all", "runtime-class", "overwrite-env", "core-policy"])
def test_cpu_only_webhook(hami, hami_node, case):
    container = Container(count=None, env={"NVIDIA_VISIBLE_DEVICES": "all"} if case == "env-all" else {})
    if case == "runtime-class":
        hami.configure_scheduler(runtimeClassName="nvidia")
    elif case == "overwrite-env":
        hami.configure_scheduler(overwriteEnv=True)
    elif case == "core-policy":
        hami.configure_scheduler(gpuCorePolicy="force")
    pod = hami.pod(container, on=hami_node).running_without_cards()
    added = {}
    if case == "overwrite-env":
        added = {"NVIDIA_VISIBLE_DEVICES": "none"}
        require_equal(added, {name: pod.env().get(name) for name in added}, "env of a CPU container")
    elif case == "core-policy":
        with hami.known("core-policy-on-cpu-containers") as policy:
            added = {"GPU_CORE_UTILIZATION_POLICY": policy}
            require_equal(added, {name: pod.env().get(name) for name in added}, "env of a CPU container")
    env = [{"name": name, "value": value} for name, value in added.items()]
    stored = pod.stored["spec"]["containers"]
    allowed = {"containers": ([{k: v for k, v in c.items() if k != "env"} for c in stored], stored)} if added else {}
    require_equal(allowed, hami.mutations(pod), "what the webhook changed")
    assert (stored[0].get("env") or []) == (env or container.manifest().get("env", []))
    # The same configuration must not reach a container with cards in the wrong way either.
    hami.pod(on=hami_node, memory=1024, cores=5).running(memory=1024, cores=5)
    assert not any(name.startswith(("CUDA_", "GPU_CORE")) for name in pod.env() if name not in added)
    assert pod.exec(["cat", "/etc/ld.so.preload"]).code != 0
    assert "nvidia" not in pod.exec(["ls", "/dev"]).stdout


@check(
    "mock-28",
    title="namespace quota",
    claim="HAMi enforces limits.nvidia.com/gpumem and gpucores of a namespace: at admission where the amount is known, else in the filter.",
    not_proven="that usage of pods without HAMi annotations is counted",
    layer=Layer.ADMISSION,
    needs=NEEDS | {Capability.NATIVE_QUOTA},
    jq='{denied, waiting: [.pods[] | select(.refused != "") | {name, refused}]}',
)
@pytest.mark.parametrize(
    "case",
    [
        "memory",
        "cores",
        "percentage",
        "percentage-of-two",
        "two-cards",
        "zero",
        "deleted",
        "released",
        "restart",
        "other-namespace",
        "native",
    ],
)
def test_namespace_quota(hami, hami_node, case):
    card, other = hami_node.cards
    if case == "native":
        hami.quota({"requests.nvidia.com/gpu": "1"}, name="native")
        hami.pod(on=card, memory=4096).running()
        hami.denied_by_kubernetes("exceeded quota: native", "requests.nvidia.com/gpu=1", on=card, memory=4096)
    elif case == "memory":
        hami.quota({"limits.nvidia.com/gpumem": "8192"})
        first = hami.pod(on=card, memory=4096).running()
        hami.pod(on=card, memory=4096).running()
        require_over_quota(hami, *ONE_CARD, on=card, memory=1)
        hami.require_quota_used(gpumem=8192)
        told = [dict(s.labels) for s in hami.samples() if s.name == metrics.QUOTA_USED]
        limits = {row["quota_name"]: row["limit"] for row in told if row["namespace"] == hami.namespace}
        require_equal(
            {"gpumem": "8192"}, {"gpumem": limits.get("nvidia.com/gpumem")}, f"label limit of {metrics.QUOTA_USED}"
        )
        first.delete()
        hami.pod(on=other, memory=4096).running()
        hami.require_quota_used(gpumem=8192)
    elif case == "cores":
        hami.quota({"limits.nvidia.com/gpucores": "50"})
        hami.pod(on=card, memory=1, cores=30).running()
        require_over_quota(hami, *ONE_CARD, on=card, memory=1, cores=21)
        hami.pod(on=card, memory=1, cores=20).running()
        hami.require_quota_used(gpucores=50)
    elif case == "percentage":
        hami.quota({"limits.nvidia.com/gpumem": "10240"})
        hami.pod(on=hami_node, percent=26).pending("2/2 ResourceQuotaNotFit")
        hami.pod(on=hami_node, percent=25).running(memory=10_240)
    elif case == "percentage-of-two":
        hami.quota({"limits.nvidia.com/gpumem": "20479"})
        waiting = hami.pod(on=hami_node, count=2, percent=25)
        waiting.pending("1/2 AllocatedCardsInsufficientRequest, 1/2 ResourceQuotaNotFit")
        hami.quota({"limits.nvidia.com/gpumem": "20480"})
        waiting.running(memory=10_240)
        hami.require_quota_used(gpumem=20_480)
    elif case == "released":
        hami.quota({"limits.nvidia.com/gpumem": "4096", "limits.nvidia.com/gpucores": "10"})
        for end in ("delete", "succeed", "fail"):
            pod = hami.pod(on=card, memory=4096, cores=10).running(memory=4096, cores=10)
            hami.require_quota_used(gpumem=4096, gpucores=10)
            pod.end(end)
            hami.require_quota_used(gpumem=0, gpucores=0)
    elif case == "restart":
        hami.quota({"limits.nvidia.com/gpumem": "4096"})
        hami.pod(on=card, memory=3000).running(memory=3000)
        hami.cluster.restart("hami-scheduler")
        hami.require_quota_used(gpumem=3000)
        require_over_quota(hami, *ONE_CARD, on=card, memory=1097)
    elif case == "two-cards":
        hami.quota({"limits.nvidia.com/gpumem": "8192"})
        reason = "1/2 AllocatedCardsInsufficientRequest, 1/2 ResourceQuotaNotFit"
        require_over_quota(hami, "quota-of-two-cards", reason, on=hami_node, count=2, memory=4097)
        hami.pod(on=hami_node, count=2, memory=4096).running()
    elif case == "zero":
        hami.quota({"limits.nvidia.com/gpumem": "0"})
        with hami.known("quota-of-zero") as what:
            if what == "enforced":
                require_over_quota(hami, *ONE_CARD, on=card, memory=1)
                hami.pod(on=hami_node, cores=10).pending("2/2 ResourceQuotaNotFit")
            else:
                hami.pod(on=card, memory=1).running(memory=1)
                hami.pod(on=hami_node, cores=10).running(memory=40_960)
    elif case == "deleted":
        hami.quota({"limits.nvidia.com/gpumem": "4096"})
        waiting = hami.pod(on=hami_node, percent=25).pending("2/2 ResourceQuotaNotFit")
        hami.drop_quota()
        waiting.running(memory=10_240)
    else:
        hami.quota({"limits.nvidia.com/gpumem": "4096"})
        elsewhere = hami.other_namespace("free")
        hami.pod(on=card, memory=8192, namespace=elsewhere).running()
        require_over_quota(hami, *ONE_CARD, on=card, memory=4097)
        hami.pod(on=card, memory=4096).running()


def require_over_quota(hami, expectation, reason, **how):
    """Assert that a pod is refused for a quota where the release does it: at admission, or in the filter for a reason."""
    with hami.known(expectation) as place:
        if place == "admission":
            hami.denied("exceeding resource quota", **how)
        else:
            hami.pod(**how).pending(reason).delete()


@check(
    "mock-30",
    title="a card is implied",
    claim="A limit on memory, percentage or cores alone asks for one card, in limits and requests of each container.",
    not_proven="that requests alone would; Kubernetes refuses them",
    layer=Layer.ADMISSION,
    needs=NEEDS,
    jq=STORED,
)
@pytest.mark.parametrize(
    ("asked", "memory", "cores"),
    [
        pytest.param({"memory": 4096}, 4096, 0, id="memory"),
        pytest.param({"cores": 30}, 40_960, 30, id="cores"),
        pytest.param({"percent": 50}, 20_480, 0, id="percentage"),
        pytest.param({"memory": 4096, "cores": 25}, 4096, 25, id="memory-and-cores"),
        pytest.param({"percent": 100}, 40_960, 100, id="whole-by-percentage"),
        # Kubernetes refuses it before HAMi is asked; here so that a cluster which lets it pass is noticed.
        pytest.param(None, 0, 0, id="requests-only"),
    ],
)
def test_implicit_gpu(hami, hami_node, asked, memory, cores):
    if asked is None:
        container = Container(count=None).manifest() | {"resources": {"requests": {"nvidia.com/gpumem": "4096"}}}
        text = "Limit must be set for non overcommitable resources"
        hami.denied_by_kubernetes(text, code=422, on=hami_node, count=None, spec={"containers": [container]})
        return
    hami.configure_scheduler(runtimeClassName="nvidia")
    pod = hami.pod(*(Container(name, count=None, **asked) for name in ("first", "second")), on=hami_node)
    for container in pod.stored["spec"]["containers"]:
        resources = container["resources"]
        require_equal({"limit": "1", "request": "1"}, {
            "limit": resources["limits"].get("nvidia.com/gpu"), "request": resources["requests"].get("nvidia.com/gpu"),
        }, f"nvidia.com/gpu of the stored container {container['name']}")  # fmt: skip
    seen = {key: pod.stored["spec"].get(key) for key in ("schedulerName", "runtimeClassName")}
    require_equal({"schedulerName": "hami-scheduler", "runtimeClassName": "nvidia"}, seen, "the stored pod")
    pod.running(memory=memory, cores=cores)
    assert [len(shares) for shares in pod.shares.values()] == [1, 1]


@check(
    "mock-31",
    title="a card without sizes is a whole card",
    claim="A pod that only says how many cards it wants gets them whole, with all memory and cores, and shares with nobody.",
    not_proven="that nobody else can touch the card from outside HAMi",
    layer=Layer.ADMISSION,
    needs=NEEDS,
    jq=STORED,
)
@pytest.mark.parametrize("count", [1, 2])
def test_default_full_memory(hami, hami_node, count):
    taken = hami_node.cards[:count]
    notes = {"nvidia.com/use-gpuuuid": ",".join(card.uuid for card in taken)}
    pod = hami.pod(on=hami_node, count=count, annotations=notes)
    pod.running(memory=40_960, cores=100, cards=[card.uuid for card in taken])
    assert pod.stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "100"
    for card in taken:
        hami.usage(card).equals(memory=40_960, cores=100, shares=1)
        hami.pod(on=card, memory=1, cores=1).pending("1/2 CardInsufficientMemory, 1/2 CardUuidMismatch")
