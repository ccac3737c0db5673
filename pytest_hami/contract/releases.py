"""HAMi releases and the traits in which they differ.

Source: recordings of the schedulers of 2.8.3, 2.9.0 and 2.10.0 with the same inputs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

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

    ``positions_kept_for_models``: a container without cards keeps its empty group also on cards
    whose type is a model name.
    ``detailed_reasons``: a refused node's own reason reaches FailedScheduling (else ``NodeUnfitPod``).
    ``init_containers_counted``: init containers get cards and groups.
    ``init_peak``: of init and app containers the larger use counts, not the sum.
    ``init_share_returned``: the init share is given back once the init containers are done.
    ``quota_at_admission``: the webhook denies what a quota forbids.
    ``zero_quota_enforced``: a limit of 0 is a limit.
    ``privileged_denied``, ``percentage_denied``: the webhook denies privileged GPU containers and percentages over 100.
    ``bad_memory_voids_request``: memory outside int32 drops the whole request (else 0 MiB are reserved).
    ``score_before_numa``: without numa-bind, cards are sorted by score first.
    ``policy_lists``: ``mutex``, ``numa`` and comma lists are card policies.
    ``scoring_weights``, ``cordon``: the annotations device-scoring-weights and device-cordon are known.
    ``register_change_noticed``: a register annotation that changes alone is read again.
    ``lock_contention_suffix``: the text of a held lock ends with ``: node lock contention``.
    ``quota_per_card``: at admission a quota counts containers with several cards, too.
    ``quota_limit_metric``: there is a metric for quota limits.
    ``total_cores_labelled``: a metric's label ``device_cores`` is what the card has, not what is in use.
    ``handshake_stamped``: the scheduler stamps ``hami.io/node-handshake`` on a node with healthy cards.
    ``binds_from_own_cache``: bind looks the pod up in the scheduler's own cache, which may be behind.
    ``metrics_bear_node_deletion``: reading the metrics while a node is deleted is harmless (before: the process may die
    of a concurrent map iteration, https://github.com/Project-HAMi/HAMi/pull/1967).
    ``container_index_always_zero``: the pod metrics are summed by card under index 0.
    """

    release: Release
    positions_kept_for_models: bool
    detailed_reasons: bool
    init_containers_counted: bool
    quota_at_admission: bool
    metric_names: str
    container_index_always_zero: bool = False
    init_peak: bool = False
    init_share_returned: bool = False
    zero_quota_enforced: bool = False
    privileged_denied: bool = False
    percentage_denied: bool = False
    bad_memory_voids_request: bool = False
    score_before_numa: bool = False
    policy_lists: bool = False
    scoring_weights: bool = False
    cordon: bool = False
    register_change_noticed: bool = False
    lock_contention_suffix: bool = False
    quota_per_card: bool = False
    quota_limit_metric: bool = False
    total_cores_labelled: bool = False
    handshake_stamped: bool = False
    binds_from_own_cache: bool = False
    metrics_bear_node_deletion: bool = False


def traits(release: Release) -> Traits:
    """Return the traits of a release; one between or after the recorded releases has those of the newest before it."""
    since_290 = release >= Release(2, 9, 0)
    since_2100 = release >= Release(2, 10, 0)
    return Traits(
        release=release,
        positions_kept_for_models=not since_2100,
        detailed_reasons=since_2100,
        init_containers_counted=since_290,
        quota_at_admission=since_290,
        metric_names="2.10" if since_2100 else "2.9" if since_290 else "2.8",
        container_index_always_zero=since_2100,
        init_peak=since_2100,
        init_share_returned=since_2100,
        zero_quota_enforced=since_2100,
        privileged_denied=since_2100,
        percentage_denied=since_2100,
        bad_memory_voids_request=since_2100,
        score_before_numa=since_2100,
        policy_lists=since_2100,
        scoring_weights=since_2100,
        cordon=since_2100,
        register_change_noticed=since_2100,
        lock_contention_suffix=since_2100,
        quota_per_card=since_2100,
        quota_limit_metric=since_2100,
        total_cores_labelled=since_2100,
        handshake_stamped=since_290,
        binds_from_own_cache=since_290,
        metrics_bear_node_deletion=since_2100,
    )
