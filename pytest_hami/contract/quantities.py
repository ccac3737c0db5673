"""Kubernetes quantities and HAMi's reading of a container's request.

Source: HAMi 2.10.0, pkg/device/nvidia/device.go (GenerateResourceRequests), pkg/device/devices.go (Resourcereqs).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_UP, Decimal
from typing import Any

from pytest_hami.contract.releases import NEWEST, Release, Traits, traits

UNSET_PERCENT = 101
INT32_MAX = (1 << 31) - 1
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d{1,3})")
_SUFFIXES: dict[str, Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10**3),
    "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(1 << 10), "Mi": Decimal(1 << 20), "Gi": Decimal(1 << 30), "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50), "Ei": Decimal(1 << 60),
}  # fmt: skip

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENT = re.compile(r"[eE][+-]?\d+$")
_FINEST = Decimal("1e-9")
_LARGEST = 18


def parse_quantity(value: str | int) -> int | None:
    """Return a quantity as a whole 64-bit number, None when it is none.

    The value counts, not the spelling: an API server stores ``3000m`` as ``3`` before HAMi reads it with AsInt64.

    >>> parse_quantity("3k"), parse_quantity("4Gi"), parse_quantity("2e9"), parse_quantity("0.5")
    (3000, 4294967296, 2000000000, None)
    """
    exact = exact_quantity(value)
    if exact is None or exact != exact.to_integral_value() or abs(exact) >= 1 << 63:
        return None
    return int(exact)


def exact_quantity(value: str | int) -> Decimal | None:
    """Return a quantity as an exact number, None when it is none.

    >>> exact_quantity("1500m"), exact_quantity("one")
    (Decimal('1.500'), None)
    """
    match = _QUANTITY.fullmatch(str(value)) if len(str(value)) < 64 else None
    if match is None:
        return None
    number, suffix = match.groups()
    return Decimal(number) * (_SUFFIXES[suffix] if suffix in _SUFFIXES else Decimal(f"1{suffix}"))


def canonical_quantity(value: str | int) -> str:
    """Return a quantity as Kubernetes stores it: without a fraction and with the largest suffix; no quantity as it is.

    Source: Kubernetes 1.36, apimachinery, pkg/api/resource/quantity.go (CanonicalizeBytes).

    >>> [canonical_quantity(text) for text in ("4000", "24576", "0.5", "1024Mi", "1500Gi", "2e9", "512Ki", "0", "0.1Ki")]
    ['4k', '24576', '500m', '1Gi', '1500Gi', '2e9', '512Ki', '0', '102400m']
    """
    exact = exact_quantity(value)
    if exact is None:
        return str(value)
    text = str(value)
    if text.endswith("i") and abs(exact) >= 1024 and exact == exact.to_integral_value():
        number, power = int(exact), 0
        while number % 1024 == 0 and power < len(_BINARY) - 1:
            number, power = number // 1024, power + 1
        return f"{number}{_BINARY[power]}"
    # Finer than a billionth is rounded up.
    sign, digits, exponent = exact.quantize(_FINEST, ROUND_UP).as_tuple() if exact % _FINEST else exact.as_tuple()
    number, power = int("".join(map(str, digits))), int(exponent)
    if number == 0:
        return "0"
    while number % 10 == 0 and power < _LARGEST:
        number, power = number // 10, power + 1
    while power % 3:
        number, power = number * 10, power - 1
    written = f"{'-' if sign else ''}{number}"
    if power == 0:
        return written
    return f"{written}e{power}" if _EXPONENT.search(text) else written + _DECIMAL[power]


def quantity_value(value: str | int) -> int:
    """Return a quantity as a whole 64-bit number, rounded up and cut to the nearest there is, as Quantity.Value does.

    >>> quantity_value("0.5"), quantity_value("1500m"), quantity_value("-0.5"), quantity_value("1e30") == (1 << 63) - 1
    (1, 2, 0, True)
    """
    exact = exact_quantity(value)
    whole = 0 if exact is None else math.ceil(exact)
    return max(min(whole, (1 << 63) - 1), -(1 << 63))


def to_int32(value: int) -> int:
    """Return ``value`` wrapped to 32 bits, as HAMi 2.10.0 does with counts and cores.

    >>> to_int32(4294967297), to_int32(2147483648)
    (1, -2147483648)
    """
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@dataclass(frozen=True)
class DeviceConfig:
    """The ``nvidia:`` section of device-config.yaml; memory in MiB, cores in percent of a card."""

    count_name: str = "nvidia.com/gpu"
    memory_name: str = "nvidia.com/gpumem"
    percentage_name: str = "nvidia.com/gpumem-percentage"
    cores_name: str = "nvidia.com/gpucores"
    priority_name: str = "nvidia.com/priority"
    overwrite_env: bool = False
    default_memory: int = 0
    default_cores: int = 0
    default_gpu_num: int = 1
    memory_factor: int = 1
    split_count: int = 10
    memory_scaling: float = 1.0
    core_scaling: float = 1.0
    gpu_core_policy: str = "default"
    runtime_class_name: str = ""
    lib_cuda_log_level: str = "1"
    disable_core_limit: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DeviceConfig:
        """Return the configuration from HAMi's own keys; keys without a meaning here are accepted and left out.

        Raises ValueError naming an unknown key or a value of another kind.
        """
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(cls)}
        known: dict[str, Any] = {}
        for key, value in values.items():
            if key in _OTHER_KEYS:
                continue
            if key not in _CONFIG_KEYS:
                listed = ", ".join(sorted({*_CONFIG_KEYS, *_OTHER_KEYS}))
                raise ValueError(f"unknown device-config key {key!r}; known are {listed}")
            kind = kinds[_CONFIG_KEYS[key]]
            accepted = {float: (int, float), str: (str, int)}.get(kind, (kind,))
            if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                raise ValueError(f"device-config key {key}: expected {kind.__name__}, seen {str(value)[:60]!r}")
            known[_CONFIG_KEYS[key]] = kind(value)
        return cls(**known)


_OTHER_KEYS = frozenset(
    {"preConfiguredDeviceMemory", "enableNumaTopology", "migProfileAllowlist", "knownMigGeometries"}
)
_CONFIG_KEYS = {
    "resourceCountName": "count_name", "resourceMemoryName": "memory_name",
    "resourceMemoryPercentageName": "percentage_name", "resourceCoreName": "cores_name",
    "resourcePriorityName": "priority_name", "overwriteEnv": "overwrite_env", "defaultMemory": "default_memory",
    "defaultCores": "default_cores", "defaultGPUNum": "default_gpu_num", "memoryFactor": "memory_factor",
    "deviceSplitCount": "split_count", "deviceMemoryScaling": "memory_scaling", "deviceCoreScaling": "core_scaling",
    "gpuCorePolicy": "gpu_core_policy", "runtimeClassName": "runtime_class_name",
    "libCudaLogLevel": "lib_cuda_log_level", "disableCoreLimit": "disable_core_limit",
}  # fmt: skip


@dataclass(frozen=True)
class ContainerRequest:
    """What one container asks: ``count`` cards, ``memory`` MiB or ``percent`` (101 = unset) and ``cores`` of each."""

    count: int
    memory: int
    percent: int
    cores: int

    def memory_on(self, total: int) -> int:
        """Return the MiB that this request takes of a card of ``total`` MiB: a percentage is rounded down.

        >>> ContainerRequest(1, 0, 33, 0).memory_on(24564)
        8106
        """
        if self.memory != 0 or self.percent == UNSET_PERCENT:
            return max(self.memory, 0)
        product = to_int32(total * self.percent)
        return -(-product // 100) if product < 0 else product // 100


def container_request(
    container: Mapping[str, Any], config: DeviceConfig, of: Traits | None = None
) -> ContainerRequest | None:
    """Return the request of a container, None when a HAMi with these traits (default: the newest) sees none.

    A memory value outside int32 voids the whole request since 2.10.0, and is cut to 32 bits before; HAMi only logs it.
    """
    of = of or traits(Release.parse(NEWEST))
    resources = container.get("resources") or {}

    def value(name: str) -> int | None:
        for source in ("limits", "requests"):
            found = (resources.get(source) or {}).get(name)
            if found is not None:
                return parse_quantity(found)
        return None

    def present(name: str) -> bool:
        return any(name in (resources.get(source) or {}) for source in ("limits", "requests"))

    count = to_int32(value(config.count_name) or 0)
    if count <= 0:
        return None
    memory = 0
    if present(config.memory_name):
        asked = value(config.memory_name)
        factor = max(config.memory_factor, 1)
        if of.bad_memory_voids_request and (asked is None or asked < 0 or asked > INT32_MAX // factor):
            return None
        memory = (asked or 0) * factor
    percent = UNSET_PERCENT
    asked_percent = value(config.percentage_name)
    if asked_percent is not None:
        percent = to_int32(asked_percent)
        if of.percentage_clamped:
            percent = min(asked_percent, 100) if asked_percent > 0 else UNSET_PERCENT
    if percent == UNSET_PERCENT and memory == 0:
        if config.default_memory:
            memory = config.default_memory
        else:
            percent = 100
    cores = config.default_cores
    asked_cores = value(config.cores_name)
    if asked_cores is not None:
        cores = to_int32(asked_cores)
    return ContainerRequest(count, to_int32(memory), percent, cores)


def pod_requests(
    pod: Mapping[str, Any], config: DeviceConfig, of: Traits | None = None
) -> tuple[tuple[str, bool, ContainerRequest | None], ...]:
    """Return ``(container, is_init, request)`` of every container, init containers first.

    Traits are those of the newest release unless given.
    """
    spec = pod.get("spec") or {}
    return tuple(
        (str(container.get("name", "")), is_init, container_request(container, config, of))
        for is_init, key in ((True, "initContainers"), (False, "containers"))
        for container in spec.get(key) or []
    )
