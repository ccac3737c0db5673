"""HAMi releases and the traits in which they differ.

Source: recordings of the schedulers of 2.8.3, 2.9.0 and 2.10.0 with the same inputs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass, fields

NEWEST = "2.10.0"
_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:[-+].*)?")


class ReleaseError(ValueError):
    """A text that is no release."""


@dataclass(frozen=True, order=True)
class Release:
    """A HAMi release."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Release:
        """Return the release in ``text``. Raises ReleaseError.

        >>> Release.parse("v2.10.0") > Release.parse("2.9.0")
        True
        """
        match = _RELEASE.fullmatch(text)
        if match is None:
            raise ReleaseError(f"expected a release such as 2.10.0, seen {text[:40]!r}")
        return cls(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


RECORDED = (Release(2, 8, 3), Release(2, 9, 0), Release(2, 10, 0))
# A build without link flags calls itself v0.0.0-master (pkg/version/version.go).
_UNSTATED = Release(0, 0, 0)


@dataclass(frozen=True)
class Faced:
    """The recorded release that a HAMi is held against, and why that one, in words that follow its name."""

    release: Release
    why: str


def is_stated(text: str) -> bool:
    """Return whether a version that a program states is one: a build without link flags is 0.0.0-master."""
    try:
        return Release.parse(text) != _UNSTATED
    except ReleaseError:
        return False


def faced(stated: str, flags: Collection[str]) -> Faced:
    """Return the release to hold a scheduler against, from the version that it states and its command-line flags.

    One that is not recorded is held against the newest release before it, a newer one so against the newest of all. The
    flags, named without dashes, tell the family of a build that states no version.

    >>> faced("2.9.0", ())
    Faced(release=Release(major=2, minor=9, patch=0), why='which it states to be')
    >>> faced("2.11.1", ()).why
    'the newest recorded release: 2.11.1 is newer'
    """
    if not is_stated(stated):
        return _faced_by_flags(stated, flags)
    version = Release.parse(stated)
    if version in RECORDED:
        exact = stated.removeprefix("v") == str(version)
        return Faced(version, "which it states to be" if exact else f"the recorded release of {stated}")
    if version > RECORDED[-1]:
        return Faced(RECORDED[-1], f"the newest recorded release: {stated} is newer")
    before = [release for release in RECORDED if release < version]
    if before:
        return Faced(before[-1], f"the newest recorded release before {stated}")
    return Faced(RECORDED[0], f"the oldest recorded release: {stated} is older")


def _faced_by_flags(stated: str, flags: Collection[str]) -> Faced:
    unsaid = f"by its flags: it calls itself {stated}"
    if not flags:
        return Faced(RECORDED[-1], f"the newest recorded release: it calls itself {stated}")
    # cmd/scheduler/main.go: 2.9.0 brought legacy-metrics, 2.10.0 took default-mem away.
    if "legacy-metrics" not in flags:
        return Faced(Release(2, 8, 3), unsaid)
    if "default-mem" in flags:
        return Faced(Release(2, 9, 0), unsaid)
    return Faced(RECORDED[-1], f"{unsaid}, and nothing tells it from a newer one")


@dataclass(frozen=True)
class Traits:
    """What differs between releases on the NVIDIA path; each trait was seen in all three recorded releases.

    Admission

    ``own_name_taken``: the webhook looks at pods that name HAMi's scheduler already.
    ``init_containers_mutated``: the webhook looks at init containers.
    ``privileged_denied``: a privileged container beside a request for cards is refused (else it is passed over).
    ``percentage_denied``: a percentage outside 0 to 100 is refused.
    ``quota_at_admission``: the webhook refuses what a quota forbids.
    ``quota_per_card``: the webhook counts each card of a request (else only requests for exactly one card, and every
    pod is tested, even one that asks for nothing).

    Requests

    ``init_containers_counted``: init containers get cards and groups.
    ``bad_memory_voids_request``: memory outside int32 drops the whole request (else it is cut to 32 bits).
    ``percentage_clamped``: a percentage above 100 is 100 and one below 1 is unset.

    Choice

    ``init_peak``: init containers are placed each on its own; of init and app containers the larger use counts (else
    all containers add up).
    ``score_before_numa``: without numa-bind, cards are sorted by score first.
    ``policy_lists``: ``mutex``, ``numa`` and comma lists are card policies.
    ``scoring_weights``, ``cordon``: the annotations device-scoring-weights and device-cordon are known.
    ``request_scored_on_exact_type``: the request counts in a card's score only if the type is exactly NVIDIA.
    ``zero_totals_score_zero``: a card or node without shares, cores or memory scores 0 (else not a number).
    ``topology_without_scores``: topology-aware takes several cards although no pair of them has a score (else none).
    ``selectors_trimmed``: blanks in the lists of types and UUIDs do not count, an empty list is no constraint, and
    both lists count.
    ``vendor_case_ignored``: a card type in other case is still NVIDIA's.
    ``insufficient_by_vendor``: only NVIDIA's cards count for ``NodeInsufficientDevice``.
    ``collected_cards_counted``: cards that were collected in vain are counted in the reason (else they count as one).
    ``first_entry_charged``: of a UUID that is registered twice the first entry carries the use of the pod being placed
    (else each).
    ``positions_kept_for_models``: a container without cards keeps its empty group also on cards whose type is a model
    name.

    Accounting

    ``usage_fixed_at_first_sight``: what a counted pod holds follows no later change of its annotation.
    ``malformed_share_refused``: a device string with a malformed number is ignored (else the number is 0).
    ``empty_groups_read``: empty groups of a device string are read (else they vanish).
    ``init_share_returned``: the init share is given back once the init containers are done.
    ``terminating_not_recovered``: a terminating pod that was not known does not count.
    ``quota_follows_filter``: a filter that is repeated takes the earlier use off the quota, and the use never falls
    below 0.
    ``zero_quota_enforced``: a limit of 0 is a limit.
    ``binds_from_own_cache``: Bind looks pod and node up in HAMi's cache (else it asks the API server).
    ``unknown_pod_released``: a bind for a pod or node that HAMi does not know gives the reservation back.

    Nodes

    ``handshake_stamped``: ``Requesting_<time>`` is written on nodes with a register annotation.
    ``handshake_without_cards``: and on all others, for each vendor.
    ``handshake_removed``: a node that lost its cards loses the handshake (else it becomes ``Deleted_<time>``).
    ``register_change_noticed``: a register annotation that changes alone is read again.
    ``node_forgotten``: a node that is deleted and comes again is read again.

    ``simulation``: the filter answers about full Node objects without their names (else it breaks).

    Words

    ``detailed_reasons``: a refused node's own reason reaches FailedScheduling (else ``NodeUnfitPod``).
    ``silent_without_request``: a pod without a request gets no event.
    ``own_lock_held``: a lock that the pod holds already is no obstacle.
    ``legacy_lock_released``: a lock without an owner is given back by whoever failed.
    ``event_limit_by_type``: of a pod's events 25 normal ones and 25 warnings are told before some are dropped (else 25 in
    all).
    ``lock_contention_suffix``: the text of a held lock ends with ``: node lock contention``.
    ``mig_asked_beyond_cards``: a node with a MIG card is asked for more cards than it has, because they can be parts.
    ``mig_reason``: a MIG card without room has a reason of its own.

    Metrics

    ``metric_names``: the release whose names are used: 2.8, 2.9 or 2.10.
    ``container_index_always_zero``: the pod metrics are summed by card under index 0.
    ``overview_at_register``: the metrics of cards change with the register run (else also with each filter, which
    leaves its attempt in them).
    ``metrics_bear_node_deletion``: reading the metrics while a node is deleted is harmless (before: the process may die
    of a concurrent map iteration, https://github.com/Project-HAMi/HAMi/pull/1967).
    ``total_cores_labelled``: the label with a card's cores is their total (else those in use).
    ``zero_memory_has_no_ratio``: a card without memory has no memory ratio (else one that is no number).
    ``quota_limit_metric``: there is a metric for quota limits.
    ``legacy_metrics``: the flag of that name adds the names of 2.8.
    ``default_flags``: there are flags for default memory, cores and cards, without effect.
    """

    release: Release
    metric_names: str
    own_name_taken: bool
    init_containers_mutated: bool
    privileged_denied: bool
    percentage_denied: bool
    quota_at_admission: bool
    quota_per_card: bool
    init_containers_counted: bool
    bad_memory_voids_request: bool
    percentage_clamped: bool
    init_peak: bool
    score_before_numa: bool
    policy_lists: bool
    scoring_weights: bool
    cordon: bool
    request_scored_on_exact_type: bool
    zero_totals_score_zero: bool
    topology_without_scores: bool
    selectors_trimmed: bool
    vendor_case_ignored: bool
    insufficient_by_vendor: bool
    collected_cards_counted: bool
    first_entry_charged: bool
    positions_kept_for_models: bool
    usage_fixed_at_first_sight: bool
    malformed_share_refused: bool
    empty_groups_read: bool
    init_share_returned: bool
    terminating_not_recovered: bool
    quota_follows_filter: bool
    zero_quota_enforced: bool
    binds_from_own_cache: bool
    unknown_pod_released: bool
    handshake_stamped: bool
    handshake_without_cards: bool
    handshake_removed: bool
    register_change_noticed: bool
    node_forgotten: bool
    simulation: bool
    detailed_reasons: bool
    silent_without_request: bool
    own_lock_held: bool
    legacy_lock_released: bool
    lock_contention_suffix: bool
    event_limit_by_type: bool
    mig_asked_beyond_cards: bool
    mig_reason: bool
    container_index_always_zero: bool
    overview_at_register: bool
    metrics_bear_node_deletion: bool
    total_cores_labelled: bool
    zero_memory_has_no_ratio: bool
    quota_limit_metric: bool
    legacy_metrics: bool
    default_flags: bool


_SINCE_2_9 = frozenset(
    {
        "own_name_taken", "quota_at_admission", "init_containers_counted", "request_scored_on_exact_type",
        "zero_totals_score_zero", "empty_groups_read", "terminating_not_recovered", "binds_from_own_cache",
        "handshake_stamped", "legacy_metrics", "event_limit_by_type",
    }
)  # fmt: skip
_BEFORE_2_10 = frozenset({"positions_kept_for_models", "default_flags"})


@functools.cache
def traits(release: Release) -> Traits:
    """Return the traits of a release; one between or after the recorded releases has those of the newest before it."""
    since_290 = release >= Release(2, 9, 0)
    since_2100 = release >= Release(2, 10, 0)
    flags = [field.name for field in fields(Traits) if field.name not in ("release", "metric_names")]
    return Traits(
        release=release,
        metric_names="2.10" if since_2100 else "2.9" if since_290 else "2.8",
        **{name: since_290 if name in _SINCE_2_9 else (name in _BEFORE_2_10) is not since_2100 for name in flags},
    )
