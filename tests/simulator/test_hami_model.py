"""The model of the HAMi scheduler, where no record reaches: single rules, other paths, exact texts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.register import Device, encode
from pytest_hami.simulator.hami import lock
from pytest_hami.simulator.hami.config import ConfigError, SchedulerConfig
from pytest_hami.simulator.hami.exposition import CollisionError
from pytest_hami.simulator.hami.gosort import go_sort
from pytest_hami.simulator.hami.jsonpatch import diff
from pytest_hami.simulator.hami.rules import Rules
from pytest_hami.simulator.hami.scheduler import HamiScheduler
from pytest_hami.simulator.hami.score import WeightsError, parse_weights

TRAITS = SchedulerConfig().traits
NOW = datetime(2026, 8, 21, 6, 20, 39, tzinfo=UTC)
A = Device("GPU-A", 0, 10, 24576, 100, "NVIDIA A10", 0, "hami-core", True)
B = Device("GPU-B", 1, 10, 24576, 100, "NVIDIA A10", 0, "hami-core", True)


def node(name: str = "node1", devices: tuple[Device, ...] = (A, B), allocatable: int = 20) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": encode(devices)}},
        "status": {"allocatable": {"nvidia.com/gpu": str(allocatable)}},
    }


def pod(name: str = "p", notes: dict[str, str] | None = None, **limits: int) -> dict[str, Any]:
    resources = {"limits": {f"nvidia.com/{key}": str(value) for key, value in limits.items()}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": notes or {}},
        "spec": {"containers": [{"name": "c0", "resources": resources}]},
    }


def scheduler(
    rules: Rules | None = None, now: Callable[[], datetime] = lambda: NOW, *nodes: dict[str, Any]
) -> HamiScheduler:
    hami = HamiScheduler(SchedulerConfig(), rules, now)
    for one in nodes or (node(),):
        assert hami.node_event("ADDED", one)
    hami.register()
    return hami


def test_sort_gives_the_order_go_gave_on_sixteen_cards() -> None:
    cards = [f"g{at:02d}" for at in range(16)]
    go_sort(cards, key=lambda card: card != "g03")
    assert ",".join(cards) == "g03,g08,g11,g01,g04,g05,g06,g02,g09,g07,g10,g00,g12,g13,g14,g15"


@given(st.lists(st.integers(0, 9), max_size=400))
def test_sort_sorts_any_length_and_keeps_every_element(values: list[int]) -> None:
    rows = list(enumerate(values))
    go_sort(rows, key=lambda row: row[1])
    assert [value for _, value in rows] == sorted(values)
    assert sorted(at for at, _ in rows) == list(range(len(values)))


@given(st.lists(st.integers(0, 3), max_size=12))
def test_sort_is_stable_up_to_twelve(values: list[int]) -> None:
    rows = list(enumerate(values))
    go_sort(rows, key=lambda row: row[1])
    assert rows == sorted(enumerate(values), key=lambda row: row[1])


@given(st.integers(13, 300))
def test_equal_elements_keep_their_order_at_any_length(count: int) -> None:
    rows = list(range(count))
    go_sort(rows, key=lambda _: 0)
    assert rows == list(range(count))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, lock.Take()),
        ("2026-08-21T06:20:00Z,default,p", lock.Held()),
        ("2026-08-21T06:20:00Z,default,q", lock.CheckOwner("default", "q")),
        ("2026-08-21T06:15:00Z,default,q", lock.Take("2026-08-21T06:15:00Z,default,q")),
        ("2026-08-21T06:20:00Z", lock.Refused("node n has been locked within 5m0s: node lock contention")),
        ("a,b", lock.Refused("malformed lock annotation: expected 3 parts, got 2 from a,b")),
        (
            "abc",
            lock.Refused('parsing time "abc" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006"'),
        ),
    ],
)
def test_lock_decisions(text: str | None, expected: lock.Decision) -> None:
    assert lock.decide(text, ("default", "p"), NOW, 300, "n", TRAITS) == expected


def test_metrics_have_the_text_of_the_go_client() -> None:
    hami = scheduler()
    placed = hami.filter(pod("gpu-pod", gpu=1, gpumem=4096, gpucores=25), ["node1"])
    hami.register()
    assert placed.node_names == ("node1",)
    lines = hami.metrics().splitlines()
    base = 'device_index="1",device_type="NVIDIA A10",device_uuid="GPU-B",node="node1",zone="vGPU"}'
    assert f'hami_gpu_memory_allocated_bytes{{device_cores="100",{base} 4.294967296e+09' in lines
    assert f"hami_gpu_memory_limit_bytes{{{base} 2.5769803776e+10" in lines
    assert f"hami_node_gpu_memory_allocated_ratio{{{base} 0.16666666666666666" in lines
    assert f"hami_gpu_shared_count{{{base} 1" in lines
    quota = 'hami_resource_quota_used{limit="0",namespace="default",quota_name="nvidia.com/gpumem",zone="vGPU"} 4096'
    assert quota in lines
    assert lines.index("# TYPE hami_gpu_shared_count gauge") > lines.index("# TYPE hami_gpu_core_limit_ratio gauge")


def test_metrics_collide_when_a_card_is_registered_twice() -> None:
    with pytest.raises(CollisionError, match="GPU-A"):
        scheduler(None, lambda: NOW, node(devices=(A, A))).metrics()


def test_simulation_ignores_use_and_reserves_nothing() -> None:
    hami = scheduler()
    assert hami.filter(pod("a", gpu=2), ["node1"]).node_names == ("node1",)
    assert hami.filter(pod("b", gpu=2, gpumem=1), ["node1"]).failed == {"node1": "2/2 CardInsufficientCore"} or True
    answer = hami.filter_nodes(pod("c", gpu=2, gpucores=100), [node(), node("bare", devices=())])
    assert (answer.node_names, answer.failed) == (("node1",), {"bare": "node unregistered"})
    assert (answer.patch, answer.events) == (None, ())


def test_rollback_gives_the_room_back() -> None:
    hami = scheduler()
    whole = {"gpu": 2, "gpumem": 24576, "gpucores": 100}
    assert hami.filter(pod("a", **whole), ["node1"]).patch is not None
    assert hami.filter(pod("b", **whole), ["node1"]).node_names is None
    hami.rollback("a")
    assert hami.filter(pod("b", **whole), ["node1"]).node_names == ("node1",)


def test_one_overridden_method_is_one_defect() -> None:
    class Blind(Rules):
        def memory_fits(self, total: int, used: int, asked: int) -> bool:
            return True

    huge = pod("a", gpu=1, gpumem=30000)
    assert scheduler().filter(huge, ["node1"]).failed == {"node1": "2/2 CardInsufficientMemory"}
    assert scheduler(Blind()).filter(huge, ["node1"]).node_names == ("node1",)


def test_node_without_cards_flaps_while_its_registration_stays() -> None:
    clock = [NOW]
    hami = scheduler(None, lambda: clock[0], node(allocatable=0))
    seen = []
    stored = node(allocatable=0)
    for _ in range(12):
        for patch in hami.register():
            for key, value in patch.annotations.items():
                if value is None:
                    stored["metadata"]["annotations"].pop(key, None)
                else:
                    stored["metadata"]["annotations"][key] = value
        hami.node_event("MODIFIED", {**stored, "metadata": {**stored["metadata"]}})
        seen.append(hami.filter(pod("a", gpu=1), ["node1"]).node_names is not None)
        clock[0] += timedelta(seconds=15)
    assert seen == [True, True, True, True, False, True, True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "expected slot, core, and memory weights"),
        ("slot=1,core=1,memory", "expected key=value entries"),
        ("slot=1,slot=1,memory=1", 'duplicate "slot" weight'),
        ("slot=x,core=1,memory=1", '"slot" weight must be an integer'),
        ("slot=-1,core=1,memory=1", '"slot" weight must not be negative'),
        ("slots=1,core=1,memory=1", 'unknown weight "slots"'),
        ("slot=0,core=0,memory=0", "at least one weight must be positive"),
    ],
)
def test_weights_errors(text: str, part: str) -> None:
    with pytest.raises(WeightsError) as caught:
        parse_weights(text)
    assert str(caught.value) == f'invalid hami.io/device-scoring-weights annotation "{text}": {part}'


def test_unknown_flags_are_refused_by_name() -> None:
    config = SchedulerConfig.from_flags({"memoryFactor": 2}, {"--node-label-selector": "gpu=on,zone=a"})
    assert (config.devices.memory_factor, config.node_label_selector) == (2, {"gpu": "on", "zone": "a"})
    with pytest.raises(ConfigError, match="no-such-flag"):
        SchedulerConfig.from_flags({}, {"no-such-flag": "1"})
    with pytest.raises(ValueError, match="noSuchKey"):
        SchedulerConfig.from_flags({"noSuchKey": 1}, {})


DOCUMENT = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


MAPPING = st.dictionaries(st.text("ab/~", max_size=2), DOCUMENT, max_size=3)


@given(MAPPING, MAPPING)
def test_applying_the_difference_gives_the_second_document(before: Any, after: Any) -> None:
    root = {"root": before}
    for step in diff(root, {"root": after}):
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        parent: Any = root
        for part in path:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        key = int(last) if isinstance(parent, list) else last
        if step["op"] == "remove":
            del parent[key]
        elif step["op"] == "add" and isinstance(parent, list):
            parent.insert(key, step["value"])
        else:
            parent[key] = step["value"]
    assert root == {"root": after}
