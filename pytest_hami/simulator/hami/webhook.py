"""The mutating webhook ``vgpu.hami.io`` (HAMi, pkg/scheduler/webhook.go, pkg/device/nvidia/device.go)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.contract.quantities import DeviceConfig, quantity_value
from pytest_hami.simulator.hami.jsonpatch import diff
from pytest_hami.simulator.hami.rules import Rules


@dataclass(frozen=True)
class Admission:
    """The webhook's answer: HTTP code, reason and message of a denial, or the JSON patch."""

    allowed: bool
    code: int = 200
    reason: str = ""
    message: str = ""
    patch: list[dict[str, Any]] = field(default_factory=list)


class _AmountError(ValueError):
    pass


def admit(
    pod: Mapping[str, Any],
    *,
    scheduler_name: str,
    force_overwrite: bool,
    config: DeviceConfig,
    quota_fits: Callable[[int, int], bool],
    rules: Rules,
) -> Admission:
    """Return the answer to the creation of a pod; ``quota_fits`` tests MiB and percent in the pod's namespace."""
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        return _denied("pod has no containers")
    if not rules.takes_pod(str(spec.get("schedulerName") or ""), scheduler_name, force_overwrite):
        return Admission(True, message="pod already has different scheduler assigned")
    changed = deepcopy(dict(pod))
    try:
        asks = _mutate_containers(changed["spec"], config, rules)
    except _AmountError as error:
        return Admission(False, 500, "", str(error))
    privileged = _first_privileged(spec)
    if privileged is not None and rules.refuses_privileged(asks):
        return _denied(f"container {privileged} is privileged")
    if scheduler_name and rules.sets_scheduler(asks):
        changed["spec"]["schedulerName"] = scheduler_name
    if asks and scheduler_name and rules.refuses_node_name(str(spec.get("nodeName") or "")):
        return _denied("pod has node assigned")
    memory, cores = rules.quota_request(rules.quota_subjects(changed, config))
    if rules.webhook_checks_quota(memory, cores) and not quota_fits(memory, cores):
        return _denied("exceeding resource quota")
    return Admission(True, patch=diff(pod, changed))


def _denied(message: str) -> Admission:
    return Admission(False, 403, "Forbidden", message)


def _privileged(container: Mapping[str, Any]) -> bool:
    return bool((container.get("securityContext") or {}).get("privileged"))


def _first_privileged(spec: Mapping[str, Any]) -> str | None:
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or []:
            if _privileged(container):
                return str(container.get("name", ""))
    return None


def _mutate_containers(spec: dict[str, Any], config: DeviceConfig, rules: Rules) -> bool:
    asks = False
    for is_init, key in ((True, "initContainers"), (False, "containers")):
        for container in spec.get(key) or []:
            if rules.looks_at(is_init, _privileged(container)):
                asks |= _mutate(spec, container, config, rules)
    return asks


def _mutate(spec: dict[str, Any], container: dict[str, Any], config: DeviceConfig, rules: Rules) -> bool:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}

    def value(name: str) -> int | None:
        found = limits.get(name, requests.get(name))
        return None if found is None else quantity_value(found)

    percent = value(config.percentage_name)
    if percent is not None and not rules.percentage_valid(percent):
        raise _AmountError(
            f"invalid {config.percentage_name} value {percent} in container {container.get('name', '')}: "
            "must be an integer between 0 and 100"
        )
    for name in (config.count_name, config.memory_name, config.cores_name):
        amount = value(name)
        if amount is not None and not rules.amount_valid(name, amount):
            raise _AmountError(f"invalid {name} value {amount} in container {container.get('name', '')}")
    if config.priority_name in limits:
        _add_env(container, "CUDA_TASK_PRIORITY", str(quantity_value(limits[config.priority_name])))
    if config.gpu_core_policy not in ("", "default"):
        _add_env(container, "GPU_CORE_UTILIZATION_POLICY", config.gpu_core_policy)
    asks = config.count_name in limits
    if not asks:
        named = [name in limits for name in (config.memory_name, config.percentage_name, config.cores_name)]
        count = rules.default_count(config.default_gpu_num, *named)
        if count > 0:
            _set_limit(container, config.count_name, count)
            asks = True
    if _wants_all_cores(container, config, rules, value(config.memory_name), percent):
        _set_limit(container, config.cores_name, 100)
        asks = True
    if asks and config.runtime_class_name and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = config.runtime_class_name
    if not asks and config.overwrite_env:
        _add_env(container, "NVIDIA_VISIBLE_DEVICES", "none")
    return asks


def _wants_all_cores(
    container: Mapping[str, Any], config: DeviceConfig, rules: Rules, memory: int | None, percent: int | None
) -> bool:
    resources = container.get("resources") or {}
    named = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
    return config.count_name in named and config.cores_name not in named and rules.exclusive(memory, percent)


def _set_limit(container: dict[str, Any], name: str, value: int) -> None:
    resources = container.get("resources") or {}
    container["resources"] = resources
    limits = resources.get("limits") or {}
    resources["limits"] = limits
    limits[name] = str(value)


def _add_env(container: dict[str, Any], name: str, value: str) -> None:
    container["env"] = [*(container.get("env") or []), {"name": name, "value": value}]
