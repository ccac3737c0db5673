"""Every output is made from the stream, the same stream makes the same bytes, and the page opens in a browser."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hami.checks import Outcome
from pytest_hami.report import html, junit, markdown
from pytest_hami.report.build import build
from pytest_hami.report.model import from_events
from pytest_hami.report.stream import Writer, read
from pytest_hami.report.text import clean, escape_code, escape_markdown

OUTPUTS = ("report.json", "index.html", "pull-request.md", "junit.xml")


def written(directory: Path, events: list[dict[str, Any]]) -> Path:
    writer = Writer(directory / "events.jsonl")
    for event in events:
        writer.write(event)
    writer.close()
    return directory


def test_the_same_stream_makes_the_same_bytes(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    directory = written(tmp_path / "r", events)
    build(directory)
    first = {name: (directory / name).read_bytes() for name in OUTPUTS}
    build(directory)
    assert {name: (directory / name).read_bytes() for name in OUTPUTS} == first
    assert sorted(path.name for path in directory.iterdir()) == sorted([*OUTPUTS, "events.jsonl"])


def test_report_json_has_what_it_promises(events: list[dict[str, Any]]) -> None:
    report = json.loads(from_events(events).to_json())
    assert [check["id"] for check in report["checks"]] == ["mock-01", "mock-02", "mock-03"]
    assert {"id", "title", "claim", "outcome", "cases", "jq", "layer", "not_proven"} <= set(report["checks"][0])
    assert report["counts"] == {"passed": 1, "deviation": 1, "failed": 1}
    assert report["verdict"] == {
        "outcome": "failed",
        "sentence": "1 of 3 checks passed, 1 deviate as known, 1 failed. "
        "Every part of HAMi was simulated: this proves the suite, not HAMi.",
    }
    assert report["parts"][0]["name"] == "apiserver"
    assert report["proves"] == "suite"


def test_a_torn_stream_is_an_incomplete_report(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    directory = written(tmp_path, events[:5])
    with (directory / "events.jsonl").open("ab") as file:
        file.write(b'{"kind":"case-finished","check":"mo')
    report = build(directory)
    assert report.verdict.outcome == "incomplete"
    assert [str(check.outcome) for check in report.checks] == ["passed", "not-run", "not-run"]
    assert "Incomplete." in (directory / "index.html").read_text()
    assert "incomplete" in (directory / "pull-request.md").read_text().splitlines()[0]


def test_an_event_that_is_too_large_loses_its_evidence_and_says_so(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    events[4]["evidence"] = {"pods": ["x" * (5 << 20)]}
    directory = written(tmp_path, events)
    (case,) = (event for event in read(directory / "events.jsonl") if event.get("check") == "mock-01")
    assert "bytes of evidence" in case["evidence"]["omitted"]


def test_the_fragment_puts_failures_first_and_ends_with_the_digest(events: list[dict[str, Any]]) -> None:
    report = from_events(events)
    text = markdown.render(report)
    assert text.splitlines()[0] == "### ❌ HAMi conformance: failed"
    assert "Simulated cluster" in "\n".join(text.splitlines()[:6])
    assert text.index("mock-02") < text.index("1 checks passed: mock-01")
    assert "it catches the mutants memory-off-by-one" in text
    assert "difference: memory: expected 4096, seen 4097" in text
    assert hashlib.sha256(report.to_json().encode()).hexdigest() in text.splitlines()[-1]
    assert "`pytest -m mock -k 'a b'`" in text
    assert markdown.command(report, "t.py::x[it's]") == """pytest 't.py::x[it'"'"'s]' --hami-mutant=m"""


def test_the_page_shows_claim_failure_and_reason(events: list[dict[str, Any]]) -> None:
    page = html.render(from_events(events))
    shown = ("Claim of mock-02.", "expected 4096, seen 4097", "said so", "+0.1s ADDED", "Bound", "GPU-1,")
    for text in (*shown, "Simulated: proves the suite", "https://example.org/1"):
        assert text in page
    (declared,) = re.findall(r"style-src 'sha256-([^']+)'", page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    import base64

    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() == declared


def test_junit_counts(events: list[dict[str, Any]]) -> None:
    suite = ET.fromstring(junit.render(from_events(events)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")


HOSTILE = st.text() | st.sampled_from(
    ["<script>", "```", "@all", "#1", "| |", "</details>", "\x1b[0m", "\u202e", "&amp;"]
)


@given(st.lists(HOSTILE, min_size=6, max_size=6), st.sampled_from(list(Outcome)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
def test_no_text_breaks_an_output(events: list[dict[str, Any]], texts: list[str], outcome: Outcome) -> None:
    failed = {**events[5], "outcome": str(outcome), "reason": texts[0], "case": texts[1]}
    failed["failure"] = {**events[5]["failure"], "expected": texts[2], "seen": texts[3], "timeline": [texts[4]]}
    failed["evidence"] = {"pods": [{"name": texts[5], "refused": texts[0]}], "x": texts}
    report = from_events([*events[:5], failed, *events[6:]])
    json.loads(report.to_json())
    ET.fromstring(junit.render(report))
    page = html.render(report)
    assert "<script" not in page.lower()
    assert not set(page) & set("\x1b\u202e\x00")
    assert markdown.render(report).count("\n```") % 2 == 0


@given(st.integers(0, 3000), st.integers(0, 60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
def test_the_fragment_fits_whatever_comes(events: list[dict[str, Any]], size: int, count: int) -> None:
    more = []
    for number in range(count):
        id_ = f"contract-{number:03d}"
        more.append({**events[2], "id": id_, "claim": "#" * size, "cases": []})
        failure = {**events[5]["failure"], "expected": "`" * size * 3, "seen": "<" * size}
        more.append({**events[5], "check": id_, "failure": failure})
    text = markdown.render(from_events([*events[:-1], *more, events[-1]]))
    assert len(text) <= markdown.LIMIT


@given(st.text(), st.integers(1, 50))
def test_cleaned_text_is_harmless_and_short(text: str, limit: int) -> None:
    seen = clean(text, limit)
    assert not any(ord(character) < 32 and character not in "\t\n" for character in seen)
    assert len(seen.encode()) <= limit + 30
    seen.encode()
    assert "\n" not in escape_markdown(text)
    assert "```" not in escape_code(text)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_in_a_browser(
    tool: Callable[..., str], tmp_path: Path, events: list[dict[str, Any]], width: int
) -> None:
    directory = written(tmp_path, events)
    build(directory)
    chromium = tool("chromium", "chromium-browser", "google-chrome", remedy="install Debian's package chromium")
    common = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    page = f"file://{directory / 'index.html'}"
    shot = tmp_path / "shot.png"
    done = subprocess.run(
        [*common, "--enable-logging=stderr", f"--window-size={width},900", f"--screenshot={shot}", page],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    # A style that the policy refuses, or any other complaint of the page, appears as a console message.
    assert "CONSOLE" not in done.stderr, done.stderr
    assert shot.stat().st_size > 20_000
    dom = subprocess.run([*common, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True).stdout
    assert "1 of 3 checks passed" in dom


def test_an_allowed_outcome_hides_no_other(events: list[dict[str, Any]]) -> None:
    events[0]["allowed"] = ["changed"]
    events[2]["cases"].append({"id": "b", "nodeid": "t.py::mock-02[b]"})
    changed = {**events[5], "outcome": "changed"}
    invalid = {**events[5], "case": "b", "nodeid": "t.py::mock-02[b]", "outcome": "invalid"}
    report = from_events([*events[:5], changed, invalid, *events[6:]])
    assert report.verdict.outcome == "failed"
    assert "<details open>" in markdown.render(report)
    assert (
        from_events([*events[:5], changed, {**invalid, "outcome": "passed"}, *events[6:]]).verdict.outcome == "passed"
    )
