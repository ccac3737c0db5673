"""Figures that checks measured, as tables: one row for each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_hami.report.model import CheckResult, Report

NOTE = "Milliseconds where nothing else is said; phases are medians. Measured, not judged."


@dataclass(frozen=True)
class Table:
    """The figures of one check: ``rows`` are the case and one text for each column, empty where it has none."""

    check: CheckResult
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def tables(report: Report) -> tuple[Table, ...]:
    """Return a table for each check whose cases measured something; what is no number is left out."""
    return tuple(filter(None, map(_table, report.checks)))


def _table(check: CheckResult) -> Table | None:
    measured = {case.id: _numbers(case.evidence.get("figures")) for case in check.cases}
    columns = tuple(dict.fromkeys(name for numbers in measured.values() for name in numbers))
    if not columns:
        return None
    order = sorted((id_ for id_ in measured if measured[id_]), key=lambda id_: tuple(measured[id_].values()))
    rows = tuple((id_, tuple(_shown(measured[id_].get(name)) for name in columns)) for id_ in order)
    return Table(check, columns, rows)


def _numbers(found: object) -> dict[str, float]:
    if not isinstance(found, Mapping):
        return {}
    return {str(k): v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if abs(value) < 10_000 else f"{value:.0f}"
