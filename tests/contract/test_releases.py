"""Releases and the traits in which they differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.releases import NEWEST, RECORDED, Faced, Release, ReleaseError, faced, traits

NUMBERS = st.integers(0, 9999)


@given(st.builds(Release, NUMBERS, NUMBERS, NUMBERS))
def test_what_is_written_is_read_again(release: Release) -> None:
    assert Release.parse(str(release)) == Release.parse(f"v{release}") == release


def test_order_is_by_number() -> None:
    assert Release.parse("2.8.3") < Release.parse("2.9.0") < Release.parse("v2.10.0") == Release.parse(NEWEST)


@pytest.mark.parametrize("text", ["", "latest", "2.10", "2.10.0.1", "v", "2.x.0", "99999.0.0"])
def test_other_text_is_a_typed_error(text: str) -> None:
    with pytest.raises(ReleaseError):
        Release.parse(text)


@pytest.mark.parametrize(
    ("text", "kept", "detailed", "index_zero", "admission"),
    [
        ("2.8.3", True, False, False, False),
        ("2.9.0", True, False, False, True),
        ("2.10.0", False, True, True, True),
        ("2.11.0", False, True, True, True),
    ],
)
def test_traits(text: str, kept: bool, detailed: bool, index_zero: bool, admission: bool) -> None:
    found = traits(Release.parse(text))
    assert found.release == Release.parse(text)
    assert found.positions_kept_for_models is kept
    assert found.detailed_reasons is detailed
    assert found.container_index_always_zero is index_zero
    assert found.quota_at_admission is admission


@pytest.mark.parametrize("release", RECORDED, ids=str)
def test_a_recorded_release_is_held_against_itself(release: Release) -> None:
    assert faced(f"v{release}", ()) == faced(str(release), ()) == Faced(release, "which it states to be")


@pytest.mark.parametrize(
    ("stated", "release", "why"),
    [
        ("2.9.4", "2.9.0", "the newest recorded release before 2.9.4"),
        ("2.8.9", "2.8.3", "the newest recorded release before 2.8.9"),
        ("2.7.1", "2.8.3", "the oldest recorded release: 2.7.1 is older"),
        ("2.10.1", NEWEST, "the newest recorded release: 2.10.1 is newer"),
        ("3.0.0-rc1", NEWEST, "the newest recorded release: 3.0.0-rc1 is newer"),
        ("2.10.0-12-gabcdef0", NEWEST, "the recorded release of 2.10.0-12-gabcdef0"),
    ],
)
def test_another_release_is_held_against_the_nearest_and_says_so(stated: str, release: str, why: str) -> None:
    assert faced(stated, ()) == Faced(Release.parse(release), why)


@pytest.mark.parametrize("stated", ["0.0.0-master", "v0.0.0-master", "unknown"])
@pytest.mark.parametrize(
    ("flags", "release", "said"),
    [
        ({"default-mem", "kube-qps"}, "2.8.3", "by its flags"),
        ({"default-mem", "legacy-metrics"}, "2.9.0", "by its flags"),
        ({"legacy-metrics", "node-lock-retry-timeout"}, NEWEST, "nothing tells it from a newer one"),
        (set(), NEWEST, "the newest recorded release"),
    ],
)
def test_the_flags_tell_what_a_build_without_a_version_is(
    stated: str, flags: set[str], release: str, said: str
) -> None:
    found = faced(stated, flags)
    assert found.release == Release.parse(release)
    assert said in found.why
    assert f"calls itself {stated}" in found.why
