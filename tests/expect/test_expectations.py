"""What the releases are expected to do, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hami import resources
from pytest_hami.contract.releases import RECORDED
from pytest_hami.expect import expectations
from pytest_hami.expect.expectations import Expectation, ExpectationError

ROOT = Path(__file__).resolve().parents[2]
RELEASES = [str(release) for release in RECORDED]


def test_every_recorded_release_has_expectations_with_the_same_names() -> None:
    folder = resources.data_directory("fixtures") / "expectations"
    assert sorted(path.stem for path in folder.glob("*.yaml")) == sorted(RELEASES)
    names = {release: sorted(expectations.load(release)) for release in RELEASES}
    assert names["2.8.3"] == names["2.9.0"] == names["2.10.0"]


def test_every_expectation_is_asked_for_by_a_check() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "conformance").rglob("*.py"))
    assert [name for name in expectations.load(RELEASES[-1]) if f'"{name}"' not in text] == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_reference_names_a_page_a_source_file_or_recorded_scenarios(release: str) -> None:
    for expectation in expectations.load(release).values():
        for place in filter(None, expectation.reference.split(", ")):
            if place.startswith("fixtures/evidence/"):
                path, _, scenario = place.partition("#")
                assert scenario, expectation
                assert f"hami-{release}/" in path, expectation
            else:
                assert place.startswith(("https://github.com/Project-HAMi/HAMi/", f"HAMi v{release} ")), expectation


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "9.9.9.yaml"
    monkeypatch.setattr(resources, "expectation_file", lambda release: path)
    return path


def test_what_is_read(written: Path) -> None:
    written.write_text("a: {value: [1]}\nb: {value: 2, documented: d, reference: r}\nc: {unsupported: since 3}\n")
    found = expectations.load("9.9.9")
    assert found == {
        "a": Expectation("a", [1]), "b": Expectation("b", 2, "d", "r"), "c": Expectation("c", unsupported="since 3"),
    }  # fmt: skip
    assert [name for name, expectation in found.items() if expectation.is_deviation] == ["b"]


@pytest.mark.parametrize("text", [
    "a: 1", "a: {}", "a: {value: 1, unsupported: x}", "a: {value: 1, reason: x}", "a: {documented: d, reference: r}",
    "a: {value: 1, documented: d}", "a: {value: 1, reference: r}", "[1]", "",
])  # fmt: skip
def test_a_malformed_file_is_a_typed_error(written: Path, text: str) -> None:
    written.write_text(text)
    with pytest.raises(ExpectationError):
        expectations.load("9.9.9")


def test_a_release_without_expectations_is_a_typed_error() -> None:
    with pytest.raises(ExpectationError, match=r"recorded releases are 2\.10\.0, 2\.8\.3, 2\.9\.0"):
        expectations.load("9.9.9")
