"""Our columns in a pytest-html report."""

from __future__ import annotations

import html

import pytest


def header(cells: list[str]) -> None:
    """Insert the columns check and outcome after the result."""
    cells[1:1] = ["<th>Check</th>", "<th>HAMi outcome</th>"]


def row(report: pytest.TestReport, cells: list[str]) -> None:
    """Fill the columns and put an escaped id in place of the raw one."""
    check = html.escape(str(getattr(report, "hami_check", "")))
    outcome = html.escape(str(getattr(report, "hami_outcome", "")))
    for position, cell in enumerate(cells):
        if "col-testId" in cell:
            cells[position] = f'<td class="col-testId">{html.escape(report.nodeid)}</td>'
    cells[1:1] = [f"<td>{check}</td>", f"<td>{outcome}</td>"]
