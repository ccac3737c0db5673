"""Releases and the traits in which they differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.releases import NEWEST, Release, ReleaseError, traits

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
