"""What the webhook decides (pkg/scheduler/webhook.go, pkg/device/nvidia/device.go, MutateAdmission)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_hami.contract.quantities import (
    UNSET_PERCENT,
    ContainerRequest,
    DeviceConfig,
    parse_quantity,
    pod_requests,
)
from pytest_hami.simulator.hami.rules.base import ReleaseRules

Requests = Sequence[tuple[str, bool, ContainerRequest | None]]
"""Name, whether it is an init container, and request of each container."""


class AdmissionRules(ReleaseRules):
    """What the webhook decides."""

    def takes_pod(self, name: str, own: str, force: bool) -> bool:
        """Whether a pod with this schedulerName is HAMi's business."""
        if name in ("", "default-scheduler"):
            return name == "" or force or (own != "" and name == own)
        return self.traits.own_name_taken and own != "" and name == own

    def looks_at(self, is_init: bool, privileged: bool) -> bool:
        """Whether a container is looked at."""
        if is_init and not self.traits.init_containers_mutated:
            return False
        return self.traits.privileged_denied or not privileged

    def percentage_valid(self, percent: int) -> bool:
        """Whether a memory percentage is accepted."""
        return not self.traits.percentage_denied or 0 <= percent <= 100

    def amount_valid(self, name: str, amount: int) -> bool:
        """Whether the webhook accepts a number of cards, MiB or percent; HAMi does not look at them."""
        return True

    def default_count(self, default: int, memory: bool, percentage: bool, cores: bool) -> int:
        """Return the cards of a container that names none; 0 adds nothing."""
        return default if memory or percentage or cores else 0

    def exclusive(self, memory: int | None, percent: int | None) -> bool:
        """Whether a container without a core limit gets all cores of its cards."""
        return percent == 100 if percent is not None else memory is None

    def refuses_privileged(self, asks: bool) -> bool:
        """Whether a pod with a privileged container is refused."""
        return self.traits.privileged_denied and asks

    def refuses_node_name(self, node_name: str) -> bool:
        """Whether a pod that asks for cards may name its node."""
        return node_name != ""

    def sets_scheduler(self, asks: bool) -> bool:
        """Whether the pod is handed to HAMi's scheduler."""
        return asks

    def quota_subjects(self, pod: Mapping[str, Any], config: DeviceConfig) -> Requests:
        """Return what the webhook reads of a pod to test it against the quota."""
        if self.traits.quota_per_card:
            return pod_requests(pod, config, self.traits)
        containers = (pod.get("spec") or {}).get("containers") or []
        return [(str(one.get("name", "")), False, _single_card(one, config)) for one in containers]

    def quota_request(self, requests: Requests) -> tuple[int, int]:
        """Return the MiB and percent that the webhook tests: the larger of the init maximum and the sum of the rest."""
        init, app = (0, 0), (0, 0)
        for _, is_init, request in requests:
            if request is None:
                continue
            memory, cores = request.memory * request.count, request.cores * request.count
            if is_init:
                init = (max(init[0], memory), max(init[1], cores))
            else:
                app = (app[0] + memory, app[1] + cores)
        return max(init[0], app[0]), max(init[1], app[1])

    def webhook_checks_quota(self, memory: int, cores: int) -> bool:
        """Whether the webhook tests a request against the quota."""
        if not self.traits.quota_at_admission:
            return False
        return not self.traits.quota_per_card or memory != 0 or cores != 0


def _single_card(container: Mapping[str, Any], config: DeviceConfig) -> ContainerRequest | None:
    """Return the plain numbers of a container with exactly one card: HAMi 2.9.0 reads them without any default."""
    resources = container.get("resources") or {}

    def value(name: str) -> int:
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        found = limits.get(name, requests.get(name))
        return 0 if found is None else parse_quantity(found) or 0

    if value(config.count_name) != 1:
        return None
    memory = value(config.memory_name) * max(config.memory_factor, 1)
    return ContainerRequest(1, memory, UNSET_PERCENT, value(config.cores_name))
