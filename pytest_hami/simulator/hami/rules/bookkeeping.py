"""What counts, how long, and how it is written down (pkg/device/pods.go, pkg/device/quota.go, pkg/scheduler/scheduler.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_hami.contract.allocation import Groups, encode
from pytest_hami.simulator.hami import accounting
from pytest_hami.simulator.hami.rules.base import ReleaseRules
from pytest_hami.simulator.hami.state import WORD, CardShare


class AccountingRules(ReleaseRules):
    """What counts, how long, and how it is written down."""

    def gets_cards(self, is_init: bool) -> bool:
        """Whether the filter looks at a container."""
        return not is_init or self.traits.init_containers_counted

    def places_init_alone(self) -> bool:
        """Whether each init container is placed on the node as it is, apart from the pod's other containers."""
        return self.traits.init_peak

    def pads(self, types: frozenset[str]) -> bool:
        """Whether a container without cards keeps its place in the device string (issues 2899 and 3079)."""
        return self.traits.positions_kept_for_models or WORD in types

    def decode(self, text: str) -> Groups:
        """Return the groups of a device string. Raises AllocationError."""
        groups = accounting.decode(text, strict=self.traits.malformed_share_refused)
        return groups if self.traits.empty_groups_read else tuple(group for group in groups if group)

    def reads_undecodable(self) -> bool:
        """Whether a pod whose device string cannot be decoded counts, without any card."""
        return not self.traits.malformed_share_refused

    def collapse(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what a pod holds of each card."""
        return accounting.collapse(groups, inits) if self.traits.init_peak else accounting.every_share(groups)

    def quota_use(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what the containers of one pass would use, the one being fitted last.

        HAMi 2.10.0 classifies them by their place in the pass: with init containers the first others are taken for init
        ones, of which only the largest counts (issue 3052).
        """
        return self.collapse(groups, inits)

    def text_of(self, groups: Groups) -> str:
        """Return the allocation as it is written on the pod."""
        return encode(groups)

    def follows_annotation(self) -> bool:
        """Whether what a counted pod holds follows later changes of its device string."""
        return not self.traits.usage_fixed_at_first_sight

    def after_init(self, groups: Groups, inits: int) -> tuple[CardShare, ...]:
        """Return what a pod holds of each card once its init containers succeeded."""
        return accounting.collapse(groups[inits:], 0)

    def init_done(self, pod: Mapping[str, Any]) -> bool:
        """Whether the share of the init containers is given back: all of them ended with exit code 0."""
        return self.traits.init_share_returned and accounting.init_done(pod)

    def releases_on_phase(self, phase: str) -> bool:
        """Whether a pod in this phase gives its room back."""
        return phase in ("Succeeded", "Failed")

    def releases_on_delete(self, pod: Mapping[str, Any]) -> bool:
        """Whether a deleted pod gives its room back."""
        return True

    def keeps_terminating(self) -> bool:
        """Whether a terminating pod holds its room until it is gone."""
        return True

    def freezes_terminating(self) -> bool:
        """Whether what a terminating pod holds changes no more."""
        return self.traits.terminating_not_recovered

    def counts_new(self, pod: Mapping[str, Any]) -> bool:
        """Whether an annotated pod that was not known counts."""
        terminating = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
        return not (terminating and self.traits.terminating_not_recovered)

    def filter_returns_quota(self) -> bool:
        """Whether a pod that is filtered again, or whose patch fails, gives its use of the quota back."""
        return self.traits.quota_follows_filter

    def least_quota_use(self, used: int) -> int:
        """Return a use of the quota that fell to ``used``."""
        return max(used, 0) if self.traits.quota_follows_filter else used

    def releases_unknown(self) -> bool:
        """Whether a bind for a pod or node that HAMi does not know gives the reservation back."""
        return self.traits.unknown_pod_released
