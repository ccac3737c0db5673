"""What checks measured is a table in both reports, whatever a stream holds."""

from __future__ import annotations

from typing import Any

from pytest_hami.report import html, markdown
from pytest_hami.report.figures import tables
from pytest_hami.report.model import from_events


def test_a_table_for_each_check_that_measured(events: list[dict[str, Any]]) -> None:
    events[4]["evidence"]["figures"] = {"nodes": 16, "pods per second": 35.31, "max": 12_345.6}
    report = from_events(events)
    (table,) = tables(report)
    assert (table.check.id, table.columns) == ("mock-01", ("nodes", "pods per second", "max"))
    assert table.rows == (("a", ("16", "35.31", "12346")),)
    assert "| a | 16 | 35.31 | 12346 |" in markdown.render(report)
    page = html.render(report)
    assert '<th scope="row">a</th><td class="number">16</td><td class="number">35.31</td>' in page
    assert "Measured, not judged." in page


def test_without_figures_nothing_is_said_of_them(events: list[dict[str, Any]]) -> None:
    report = from_events(events)
    assert tables(report) == ()
    assert "Measured, not judged." not in html.render(report) + markdown.render(report)


def test_hostile_figures_are_left_out_and_escaped(events: list[dict[str, Any]]) -> None:
    for hostile in (["x"], "x", {"a": "<b>", "c": True, "d": None, "e": [1]}):
        events[4]["evidence"]["figures"] = hostile
        assert tables(from_events(events)) == ()
    events[4]["evidence"]["figures"] = {f"<b>|@{number}{'x' * 500}": number for number in range(5000)}
    report = from_events(events)
    assert "<b>|" not in html.render(report)
    assert len(markdown.render(report)) <= 60_000
