"""How HAMi 2.10.0 reads a container's request, value by value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.quantities import (
    ContainerRequest,
    DeviceConfig,
    container_request,
    parse_quantity,
    pod_requests,
    to_int32,
)

DEFAULT = DeviceConfig()


def container(**limits: Any) -> dict[str, Any]:
    return {"resources": {"limits": {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}}}


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_plain_number_is_itself(value: int) -> None:
    assert parse_quantity(value) == value
    assert parse_quantity(str(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3k", 3000),
        ("3Ki", 3072),
        ("3M", 3_000_000),
        ("3Mi", 3 << 20),
        ("3G", 3_000_000_000),
        ("4Gi", 1 << 32),
        ("1E", 10**18),
        ("2e9", 2_000_000_000),
        ("1E3", 1000),
        ("10e-1", 1),
        ("1.5k", 1500),
        ("3000m", 3),
        ("0.5", None),
        ("1500m", None),
        ("8Ei", None),
        ("9223372036854775808", None),
        ("1e999", None),
        ("", None),
        ("k", None),
        ("1 k", None),
        ("1ki", None),
        ("0x10", None),
        ("1" * 100, None),
    ],
)
def test_quantities(text: str, value: int | None) -> None:
    assert parse_quantity(text) == value


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_none(text: str) -> None:
    value = parse_quantity(text)
    assert value is None or abs(value) < 1 << 63


@given(st.integers())
def test_int32_wraps(value: int) -> None:
    wrapped = to_int32(value)
    assert -(2**31) <= wrapped < 2**31
    assert (wrapped - value) % 2**32 == 0


WHOLE = ContainerRequest(1, 0, 100, 0)


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        ({}, None),
        ({"gpumem": "4096"}, None),
        ({"gpu": "0"}, None),
        ({"gpu": "0.5"}, None),
        ({"gpu": "1"}, WHOLE),
        ({"gpu": 1}, WHOLE),
        ({"gpu": "4294967297"}, WHOLE),
        ({"gpu": "2147483648"}, None),
        ({"gpu": "2"}, ContainerRequest(2, 0, 100, 0)),
        ({"gpu": "1", "gpumem": "4096", "gpucores": "25"}, ContainerRequest(1, 4096, 101, 25)),
        ({"gpu": "1", "gpumem": "3k"}, ContainerRequest(1, 3000, 101, 0)),
        ({"gpu": "1", "gpumem": "2147483647"}, ContainerRequest(1, 2147483647, 101, 0)),
        ({"gpu": "1", "gpumem": "2e9"}, ContainerRequest(1, 2_000_000_000, 101, 0)),
        ({"gpu": "1", "gpumem": "2147483648"}, None),
        ({"gpu": "1", "gpumem": "3Gi"}, None),
        ({"gpu": "1", "gpumem": "3000M"}, None),
        ({"gpu": "1", "gpumem": "-1"}, None),
        ({"gpu": "1", "gpumem": "0.5"}, None),
        ({"gpu": "1", "gpumem": "0"}, WHOLE),
        ({"gpu": "1", "gpumem_percentage": "0"}, WHOLE),
        ({"gpu": "1", "gpumem_percentage": "-5"}, WHOLE),
        ({"gpu": "1", "gpumem_percentage": "33"}, ContainerRequest(1, 0, 33, 0)),
        ({"gpu": "1", "gpumem_percentage": "150"}, WHOLE),
        ({"gpu": "1", "gpumem": "10", "gpumem_percentage": "50"}, ContainerRequest(1, 10, 50, 0)),
        ({"gpu": "1", "gpumem": "0", "gpumem_percentage": "50"}, ContainerRequest(1, 0, 50, 0)),
        ({"gpu": "1", "gpucores": "150"}, ContainerRequest(1, 0, 100, 150)),
        ({"gpu": "1", "gpucores": "2147483648"}, ContainerRequest(1, 0, 100, -2147483648)),
        ({"gpu": "1", "gpucores": "4294967303"}, ContainerRequest(1, 0, 100, 7)),
    ],
)
def test_the_value_table(limits: dict[str, Any], request_: ContainerRequest | None) -> None:
    assert container_request(container(**limits), DEFAULT) == request_


def test_limits_win_over_requests_field_by_field() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "3", "nvidia.com/gpumem": "7"}}
    assert container_request({"resources": resources}, DEFAULT) == ContainerRequest(1, 7, 101, 0)


def test_defaults_of_the_configuration() -> None:
    config = DeviceConfig(default_memory=1000, default_cores=20, memory_factor=10)
    assert container_request(container(gpu="1"), config) == ContainerRequest(1, 1000, 101, 20)
    assert container_request(container(gpu="1", gpumem="7"), config) == ContainerRequest(1, 70, 101, 20)
    assert container_request(container(gpu="1", gpumem_percentage="5"), config) == ContainerRequest(1, 0, 5, 20)
    assert container_request(container(gpu="1", gpumem="214748365"), config) is None


@given(st.integers(0, 200_000), st.integers(1, 100))
def test_a_percentage_is_rounded_down(total: int, percent: int) -> None:
    assert ContainerRequest(1, 0, percent, 0).memory_on(total) == total * percent // 100


def test_memory_wins_over_percentage_and_big_cards_overflow() -> None:
    assert ContainerRequest(1, 0, 33, 0).memory_on(24564) == 8106
    assert ContainerRequest(1, 10, 33, 0).memory_on(24564) == 10
    assert ContainerRequest(1, 0, 100, 0).memory_on(21_474_837) == -21_474_835


def test_init_containers_come_first() -> None:
    pod = {
        "spec": {
            "containers": [{"name": "a", **container(gpu="1")}, {"name": "b"}],
            "initContainers": [{"name": "i", "resources": None}],
        }
    }
    assert pod_requests(pod, DEFAULT) == (("i", True, None), ("a", False, WHOLE), ("b", False, None))
    assert pod_requests({}, DEFAULT) == ()


def test_configuration_from_hamis_keys() -> None:
    values = {
        "resourceCountName": "example.com/gpu", "deviceSplitCount": 4, "deviceMemoryScaling": 2, "overwriteEnv": True,
        "libCudaLogLevel": 3, "enableNumaTopology": True, "disableCoreLimit": True,
    }  # fmt: skip
    assert DeviceConfig.from_dict(values) == DeviceConfig(
        count_name="example.com/gpu", split_count=4, memory_scaling=2.0, overwrite_env=True, lib_cuda_log_level="3",
        disable_core_limit=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"deviceSplitcount": 4}, "deviceSplitcount"),
        ({"deviceSplitCount": "4"}, "deviceSplitCount"),
        ({"deviceSplitCount": 1.5}, "deviceSplitCount"),
        ({"deviceSplitCount": True}, "deviceSplitCount"),
        ({"overwriteEnv": "false"}, "overwriteEnv"),
        ({"gpuCorePolicy": None}, "gpuCorePolicy"),
    ],
)
def test_a_wrong_configuration_is_named(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DeviceConfig.from_dict(values)
