"""Prints which check caught which mutant, and with which message."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        dict(report.user_properties)
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and any(name == "mutant" for name, _ in report.user_properties)
    ]
    if not rows:
        return
    terminalreporter.section("mutants and the checks that caught them")
    for row in sorted(rows, key=lambda row: (row["check"], row["mutant"])):
        terminalreporter.write_line(f"{row['check']:<9} caught {row['mutant']}: {row['message']}")
