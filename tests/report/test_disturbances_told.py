"""What disturbed pods is counted in every output, and said only where there was any."""

from __future__ import annotations

import json
from typing import Any

from pytest_hami.report import html, markdown
from pytest_hami.report.disturbances import NOTE, rows
from pytest_hami.report.model import from_events

LOST = {"kind": "lost-wake-up", "pod": "ns/pod-2", "told": "not tried again within 0.5 s, placed after a node came"}


def test_each_kind_is_counted_with_its_checks(events: list[dict[str, Any]]) -> None:
    events[4]["disturbances"] = [LOST, LOST, {"kind": "new-kind", "pod": "ns/p", "told": "x"}]
    report = from_events(events)
    first, second = rows(report)
    assert (first.kind, first.count, first.checks) == ("lost-wake-up", 2, ("mock-01",))
    assert (second.kind, second.count, second.meaning) == ("new-kind", 1, "")
    assert "| lost-wake-up | 2 | there was room for a waiting pod" in markdown.render(report)
    page = html.render(report)
    assert NOTE in page
    assert '<th scope="row">lost-wake-up</th>' in page
    assert "ns/pod-2: not tried again within 0.5 s" in page
    (check, *_) = json.loads(report.to_json())["checks"]
    assert check["cases"][0]["disturbances"][0] == LOST


def test_without_any_nothing_is_said_of_them(events: list[dict[str, Any]]) -> None:
    report = from_events(events)
    assert rows(report) == ()
    assert NOTE not in html.render(report) + markdown.render(report)


def test_hostile_ones_are_left_out_and_escaped(events: list[dict[str, Any]]) -> None:
    for hostile in ("x", ["x"], {"a": 1}, None):
        events[4]["disturbances"] = hostile
        assert rows(from_events(events)) == ()
    events[4]["disturbances"] = [{"kind": f"<b>|@{n}{'x' * 500}", "told": "<i>" * 3000} for n in range(2000)]
    report = from_events(events)
    assert "<b>|" not in html.render(report)
    assert "<i>" not in html.render(report)
    assert len(markdown.render(report)) <= 60_000
