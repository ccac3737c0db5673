"""Bad input ends with one clear line and exit code 4, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECK = """
from pytest_hami.checks import Layer, check

@check("mock-09", title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".", fleet={fleet!r})
def test_one(hami):
    pass
"""
USAGE = 4


def refused(pytester: pytest.Pytester, *arguments: str, **environment: str) -> str:
    """Return the line of a usage error."""
    done = pytester.runpytest_subprocess("-p", "no:randomly", *arguments)
    assert done.ret == USAGE, done.outlines + done.errlines
    lines = [line for line in done.errlines + done.outlines if "ERROR" in line or "hami" in line.lower()]
    errors = [line for line in lines if line.startswith("ERROR")]
    assert len(errors) == 1, done.outlines + done.errlines
    assert "Traceback" not in "\n".join(done.errlines + done.outlines)
    return errors[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--hami-cluster", "mars"], "--hami-cluster: unknown provider 'mars'; this version knows: local"),
        (["--hami-cluster", "kind"], "--hami-cluster: provider 'kind' is planned and not there yet"),
        (["--hami-fleet", "mars"], "fleet 'mars'"),
        (["--hami-release", "1.0.0"], "no expectations for HAMi 1.0.0"),
        (["--hami-cleanup", "maybe"], "--hami-cleanup: expected one of always, on-success, never"),
        (["--hami-repeat", "0"], "--hami-repeat: expected a whole number"),
        (["--hami-timeout-scale", "nan"], "--hami-timeout-scale: expected a number above 0"),
        (["--hami-mutant", ""], "--hami-mutant: expected names separated by commas"),
        (["--hami-mutant", "no-such"], "--hami-mutant: unknown mutant 'no-such'"),
        (["--hami-run-id", "Not An Id"], "--hami-run-id: expected up to 40 lower-case letters"),
        (["--hami-report", ""], "--hami-report: expected a directory"),
        (["--hami-list", "--hami-list-mutants"], "--hami-list and --hami-list-mutants: expected one of them"),
    ],
)
def test_options(pytester: pytest.Pytester, arguments: list[str], text: str) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    assert text in refused(pytester, *arguments)
    assert not (pytester.path / "hami-report").exists()


def test_environment_and_ini_are_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    pytester.makeini("[pytest]\nhami_cleanup = maybe\n")
    assert "ini key hami_cleanup: expected one of" in refused(pytester)
    monkeypatch.setenv("HAMI_CLEANUP", "perhaps")
    assert "HAMI_CLEANUP: expected one of always, on-success, never, got 'perhaps'" in refused(pytester)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("HAMI_RELEASE", "1.0.0", "no expectations for HAMi 1.0.0"),
        ("HAMI_SCHEDULER", "/nowhere/scheduler", "HAMI_SCHEDULER: no such file"),
        ("HAMI_FLEET", "mars", "unknown fleet 'mars'"),
        ("HAMI_MUTANT", "no-such", "unknown mutant 'no-such'"),
    ],
)
def test_a_bad_environment_is_a_usage_error_before_anything_starts(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    monkeypatch.setenv(name, value)
    assert text in refused(pytester)


def test_a_fleet_file_that_is_no_yaml_is_named_with_its_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    path = pytester.path / "fleet.yaml"
    path.write_text("nodes:\n  - name: w1\n  - name: [\n")
    line = refused(pytester, "--hami-fleet", str(path))
    assert "fleet.yaml:4: not YAML" in line


def test_a_fleet_file_of_the_wrong_shape_is_named_with_its_node(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    path = pytester.path / "fleet.yaml"
    path.write_text("nodes:\n  - name: w1\n    cards: {model: NVIDIA T4, memory: lots}\n")
    line = refused(pytester, "--hami-fleet", str(path))
    assert "fleet.yaml:2" in line
    assert "memory must be a whole number" in line


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        ("{model: NVIDIA T4, memory: 1, uuids: 5}", "uuids need one entry"),
        ("{model: NVIDIA T4, memory: 1, count: 3, uuids: GPU}", "uuids need one entry"),
        ("{model: NVIDIA T4, memory: 1, uuids: {a: b}}", "uuids need one entry"),
        ("{model: NVIDIA T4, memory: 1, memory: 2}", "key 'memory' occurs twice"),
        ("{model: NVIDIA T4, memory: 1, numa: -5}", "numa must be a whole number from 0"),
        ("{model: NVIDIA T4, memory: 1, mode: fast}", "mode must be one of"),
        ("{model: NVIDIA T4, memory: 1}\n    taints: [x=y:Bogus]", "expected key=value:Effect"),
        ("{model: NVIDIA T4, memory: 1}\n    labels: {'a b': c}", "Kubernetes takes no 'a b'"),
        ("{model: NVIDIA T4, memory: 1}\n  - name: w1", "node name 'w1' occurs twice"),
        ("{model: NVIDIA T4, memory: 1}\n  - name: W2", "a node name has up to 26"),
    ],
)
def test_fleet_files_that_cannot_be_used(pytester: pytest.Pytester, cards: str, text: str) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    path = pytester.path / "fleet.yaml"
    path.write_text(f"nodes:\n  - name: w1\n    cards: {cards}\n")
    line = refused(pytester, "--hami-fleet", str(path))
    assert "fleet.yaml:" in line
    assert text in line


def test_a_fleet_file_with_a_name_that_no_node_can_carry(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    path = pytester.path / "My Fleet.yaml"
    path.write_text("nodes:\n  - name: w1\n    cards: {model: NVIDIA T4, memory: 1}\n")
    assert "a fleet is called after its file" in refused(pytester, "--hami-fleet", str(path))


def test_a_check_that_declares_an_unknown_fleet(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CHECK.format(fleet="nowhere"))
    assert "fleet 'nowhere'" in refused(pytester)


def test_a_report_directory_that_cannot_be_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CHECK.format(fleet="seed-002"))
    (pytester.path / "taken").write_text("a file")
    assert "--hami-report: cannot write" in refused(pytester, "--hami-report", "taken")
    assert Path(pytester.path / "taken").read_text() == "a file"


@pytest.mark.parametrize(
    ("mark", "text"),
    [("hami_fleet()", "mark hami_fleet: expected one name"), ("hami_needs('gpu')", "mark hami_needs: 'gpu'")],
)
def test_marks(pytester: pytest.Pytester, mark: str, text: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(hami):\n    pass\n")
    assert text in refused(pytester)


def test_a_check_needs_a_known_id() -> None:
    from pytest_hami.checks import Layer, check

    with pytest.raises(ValueError, match="check id 'mine': expected mock-NN"):
        check("mine", title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")
