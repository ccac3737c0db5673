"""Metric names, label sets and the sums over them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract import metrics
from pytest_hami.contract.releases import Release, traits

NEWEST = Release(2, 10, 0)
CARD = 'device_index="1",device_type="NVIDIA A10",device_uuid="GPU-B",node="n1"'
POD = 'container_index="0",device_uuid="GPU-B",namespace="default",node="n1",pod="p",zone="vGPU"'
EXPOSITION = f"""\
# HELP hami_build_info hami build metadata exposed as labels with a constant value of 1.
# TYPE hami_build_info gauge
hami_build_info{{build_date="x",compiler="gc",go_version="go1",platform="linux",revision="4707fb0",version="v2.10.0"}} 1
hami_gpu_core_allocated_ratio{{{CARD},zone="vGPU"}} 25
hami_gpu_core_limit_ratio{{{CARD},zone="vGPU"}} 100
hami_gpu_memory_allocated_bytes{{device_cores="100",{CARD},zone="vGPU"}} 4.294967296e+09
hami_gpu_memory_limit_bytes{{{CARD},zone="vGPU"}} 2.5769803776e+10
hami_gpu_shared_count{{{CARD},zone="vGPU"}} 1
hami_node_gpu_memory_allocated_ratio{{{CARD},zone="vGPU"}} 0.16666666666666666
hami_node_gpu_overview{{device_cores="100",device_memory_limit="24576",{CARD},zone="vGPU"}} 4.294967296e+09
hami_resource_quota_used{{limit="0",namespace="default",quota_name="nvidia.com/gpucores",zone="vGPU"}} 25
hami_resource_quota_used{{limit="8000",namespace="default",quota_name="nvidia.com/gpumem",zone="vGPU"}} 4096
hami_resource_quota_limit{{namespace="default",quota_name="nvidia.com/gpumem",zone="vGPU"}} 8000
hami_vgpu_core_allocated_ratio{{{POD}}} 25
hami_vgpu_memory_allocated_bytes{{{POD}}} 4.294967296e+09
"""


def test_what_the_series_say() -> None:
    samples = metrics.parse(EXPOSITION)
    assert metrics.card_usage(samples) == {
        ("n1", "GPU-B"): metrics.CardUsage(memory_limit=25_769_803_776, core_limit=100, memory=4096, shares=1, cores=25)
    }
    assert metrics.pod_usage(samples) == {("default", "p"): {"GPU-B": (4096, 25)}}
    assert metrics.quota_usage(samples) == {
        ("default", "nvidia.com/gpucores"): (25, None),
        ("default", "nvidia.com/gpumem"): (4096, 8000),
    }
    assert metrics.contract_violations(samples, NEWEST) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hami_gpu_shared_count", "hami_gpu_shared_number", "unknown metric hami_gpu_shared_number"),
        ("hami_gpu_shared_count", "hami_gpu_shared_number", "card GPU-B on n1: no hami_gpu_shared_count"),
        ('device_cores="100",device_index', "device_index", "hami_gpu_memory_allocated_bytes: expected labels"),
        (',pod="p",zone="vGPU"', ',pod="p",zone="x"', "expected zone vGPU, seen x"),
        (',pod="p",zone="vGPU"', ',pod="p"', "expected zone vGPU, seen None"),
        ("hami_build_info{", "other_info{", "no hami_build_info"),
    ],
)
def test_each_violation_is_told(old: str, new: str, told: str) -> None:
    assert old in EXPOSITION
    wrong = metrics.contract_violations(metrics.parse(EXPOSITION.replace(old, new)), NEWEST)
    assert any(told in line for line in wrong)


def test_older_releases_have_other_label_sets() -> None:
    samples = metrics.parse(EXPOSITION)
    wrong = metrics.contract_violations(samples, Release(2, 9, 0))
    assert "unknown metric hami_resource_quota_limit" in wrong
    assert any(line.startswith("hami_node_gpu_overview: expected labels") for line in wrong)
    assert "unknown metric hami_gpu_shared_count" in metrics.contract_violations(samples, Release(2, 8, 3))
    assert metrics.label_sets(Release(2, 11, 0)) is metrics.LABELS_2_10


OLD = """\
GPUDeviceCoreAllocated{deviceidx="1",deviceuuid="GPU-B",nodeid="n1",zone="vGPU"} 25
GPUDeviceCoreLimit{deviceidx="1",deviceuuid="GPU-B",nodeid="n1",zone="vGPU"} 100
GPUDeviceMemoryAllocated{devicecores="25",deviceidx="1",deviceuuid="GPU-B",nodeid="n1",zone="vGPU"} 4.294967296e+09
GPUDeviceMemoryLimit{deviceidx="1",deviceuuid="GPU-B",nodeid="n1",zone="vGPU"} 2.5769803776e+10
GPUDeviceSharedNum{deviceidx="1",deviceuuid="GPU-B",nodeid="n1",zone="vGPU"} 1
QuotaUsed{limit="8000",quotaName="nvidia.com/gpumem",quotanamespace="default",zone="vGPU"} 4096
vGPUCoreAllocated{containeridx="0",deviceuuid="GPU-B",nodename="n1",podname="p",podnamespace="default",zone="vGPU"} 25
vGPUMemoryAllocated{containeridx="0",deviceuuid="GPU-B",nodename="n1",podname="p",podnamespace="default",zone="vGPU"} 4294967296
"""


def test_what_2_8_says_is_read_under_the_newer_names() -> None:
    samples = metrics.read(OLD, (), Release(2, 8, 3))
    new = metrics.parse(EXPOSITION)
    assert metrics.card_usage(samples) == metrics.card_usage(new)
    assert metrics.pod_usage(samples) == metrics.pod_usage(new)
    assert metrics.quota_usage(samples) == {("default", "nvidia.com/gpumem"): (4096, None)}
    assert {s.name for s in metrics.read(OLD, {metrics.SHARES}, Release(2, 8, 3))} == {metrics.SHARES}
    assert metrics.read(OLD, {metrics.SHARES}, Release(2, 9, 0)) == ()


def test_the_page_of_2_8_is_held_against_its_own_contract() -> None:
    old = Release(2, 8, 3)
    wrong = metrics.contract_violations(metrics.parse(OLD.replace("GPUDeviceSharedNum", "GPUDeviceShared")), old)
    assert "unknown metric GPUDeviceShared" in wrong
    assert "card GPU-B on n1: no GPUDeviceSharedNum" in wrong
    assert metrics.type_violations("# TYPE GPUDeviceSharedNum counter\nGPUDeviceSharedNum 1\n", old) != []
    assert metrics.type_violations("# TYPE GPUDeviceSharedNum counter\nGPUDeviceSharedNum 1\n", NEWEST) == []


@pytest.mark.parametrize(("release", "text", "limit"), [
    (Release(2, 8, 3), 'QuotaUsed{limit="7",quotaName="q",quotanamespace="n"} 1', 7),
    (Release(2, 9, 0), 'hami_resource_quota_used{limit="7",quota_name="q",namespace="n"} 1', 7),
    (Release(2, 9, 0), 'hami_resource_quota_used{limit="0",quota_name="q",namespace="n"} 1', 0),
    (Release(2, 10, 0), 'hami_resource_quota_used{limit="0",quota_name="q",namespace="n"} 1', None),
    (Release(2, 10, 0), 'hami_resource_quota_used{limit="0",quota_name="q",namespace="n"} 1\n'
     'hami_resource_quota_limit{quota_name="q",namespace="n"} 0', 0),
])  # fmt: skip
def test_where_a_release_tells_a_limit(release: Release, text: str, limit: int | None) -> None:
    assert metrics.quota_limits(metrics.read(text + "\n", (), release), traits(release)) == {("n", "q"): limit}


def test_a_limit_that_is_no_number_is_a_typed_error() -> None:
    samples = metrics.parse('hami_resource_quota_used{limit="x",quota_name="q",namespace="n"} 1\n')
    with pytest.raises(metrics.MetricsError, match="label limit"):
        metrics.quota_limits(samples, traits(Release(2, 9, 0)))


def test_the_release_that_series_are_of() -> None:
    of_2_9 = EXPOSITION.replace("device_memory_limit=", 'shared_containers="0",device_memory_limit=').replace(
        f"hami_node_gpu_memory_allocated_ratio{{{CARD}", 'hami_node_gpu_memory_allocated_ratio{device_index="1",'
        'device_uuid="GPU-B",node="n1"')  # fmt: skip
    assert metrics.release_of(metrics.parse(EXPOSITION)) == NEWEST
    assert metrics.release_of(metrics.parse(of_2_9)) == Release(2, 9, 0)
    assert metrics.release_of(metrics.parse(OLD)) == Release(2, 8, 3)
    assert metrics.release_of(metrics.parse(EXPOSITION + OLD)) == NEWEST
    assert metrics.release_of(metrics.parse(EXPOSITION.replace("device_memory_limit=", "more="))) is None
    assert metrics.release_of(metrics.parse('hami_build_info{version="v0.0.0-master"} 1\n')) is None


def test_an_incomplete_card_is_left_out() -> None:
    samples = [sample for sample in metrics.parse(EXPOSITION) if sample.name != metrics.SHARES]
    assert metrics.card_usage(samples) == {}


def test_wrong_labels_and_values_are_no_crash() -> None:
    bare = metrics.Sample(metrics.VGPU_MEMORY, frozenset(), 1 << 20)
    assert metrics.pod_usage([bare]) == {("", ""): {"": (1, 0)}}
    assert metrics.quota_usage([metrics.Sample(metrics.QUOTA_USED, frozenset(), 3.0)]) == {("", ""): (3, None)}
    with pytest.raises(metrics.MetricsError, match="whole number"):
        metrics.pod_usage([metrics.Sample(metrics.VGPU_CORES, frozenset(), float("nan"))])


@pytest.mark.parametrize("text", ["hami_x{", "hami_x one", 'hami_x{a="b} 1'])
def test_no_exposition_is_a_typed_error(text: str) -> None:
    with pytest.raises(metrics.MetricsError):
        metrics.parse(text)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99_999), st.integers(0, 100)), max_size=6))
def test_pod_usage_is_the_sum_over_container_indexes(uses: list[tuple[str, int, int]]) -> None:
    samples = []
    for index, (uuid, memory, cores) in enumerate(uses):
        labels = frozenset({("namespace", "d"), ("pod", "p"), ("device_uuid", uuid), ("container_index", str(index))})
        samples.append(metrics.Sample(metrics.VGPU_MEMORY, labels, float(memory * metrics.MIB)))
        samples.append(metrics.Sample(metrics.VGPU_CORES, labels, float(cores)))
    found = metrics.pod_usage(samples).get(("d", "p"), {})
    assert found == {
        uuid: (sum(m for u, m, _ in uses if u == uuid), sum(c for u, _, c in uses if u == uuid))
        for uuid in {use[0] for use in uses}
    }
