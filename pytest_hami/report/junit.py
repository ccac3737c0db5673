"""JUnit XML: one testcase for each case, invalid and inconclusive ones as errors."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from pytest_hami.checks import UNSEEN, Outcome
from pytest_hami.report.model import Report
from pytest_hami.report.text import clean

ERRORS = {Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.ERROR}


def render(report: Report) -> str:
    """Return the document."""
    broken = report.breaking
    cases = [(check, case) for check in report.checks for case in check.cases]
    suite = ET.Element(
        "testsuite",
        name="hami",
        tests=str(len(cases)),
        failures=str(sum(c.outcome in broken - ERRORS for _, c in cases)),
        errors=str(sum(c.outcome in broken & ERRORS for _, c in cases)),
        skipped=str(sum(c.outcome in UNSEEN for _, c in cases)),
        time=f"{sum(c.seconds for _, c in cases):.3f}",
        timestamp=clean(report.started.get("time", "")),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("verdict", report.verdict.outcome), ("proves", report.started.get("proves", "suite")),
                        ("release", report.started.get("release", ""))):  # fmt: skip
        ET.SubElement(properties, "property", name=name, value=clean(value))
    for check, case in cases:
        name = f"{check.id}[{case.id}]" if case.id else check.id
        element = ET.SubElement(
            suite, "testcase", classname=clean(check.id), name=clean(name), time=f"{case.seconds:.3f}"
        )
        if case.outcome in broken:
            failure = case.failure or {}
            tag = "error" if case.outcome in ERRORS else "failure"
            message = f"{case.outcome}: expected {failure.get('expected', '')}, seen {failure.get('seen', '')}"
            ET.SubElement(element, tag, message=clean(message)).text = clean(failure.get("text", ""), 20_000)
        elif case.outcome in UNSEEN:
            ET.SubElement(element, "skipped", message=clean(f"{case.outcome}: {case.reason}"))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
