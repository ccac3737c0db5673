"""``pull-request.md``: what fits into a comment, the important first, at most 60,000 characters by construction."""

from __future__ import annotations

import hashlib
import shlex

from pytest_hami.checks import Outcome
from pytest_hami.report import disturbances
from pytest_hami.report.figures import NOTE, tables
from pytest_hami.report.model import Case, CheckResult, Report
from pytest_hami.report.text import clean, escape_code, escape_markdown

LIMIT = 60_000
NOT_REPEATED = frozenset({"--hami-report", "--hami-run-id"})
TAIL_ROOM = 2_000
FIGURES_LIMIT = 10_000
FIGURE_ROWS, FIGURE_COLUMNS = 10, 16


def render(report: Report) -> str:
    """Return the fragment."""
    head = _head(report) + _disturbances(report) + _figures(report)
    tail = _tail(report)
    room = LIMIT - len(head) - len(tail) - TAIL_ROOM
    blocks: list[str] = []
    left_out = 0
    for check in report.checks:
        if check.outcome.breaks_run or check.outcome is Outcome.DEVIATION:
            block = _block(check, is_open=report.breaks(check))
            if len(block) > room:
                left_out += 1
                continue
            room -= len(block)
            blocks.append(block)
    if left_out:
        blocks.append(f"{left_out} more checks did not fit here; they are in index.html and report.json.\n")
    return head + "\n".join(blocks) + tail


def _head(report: Report) -> str:
    mark = {"passed": "✅", "failed": "❌", "incomplete": "⚠️"}[report.verdict.outcome]
    lines = [f"### {mark} HAMi conformance: {report.verdict.outcome}", "", escape_markdown(report.verdict.sentence), ""]
    if report.simulated:
        lines += ["> **Simulated cluster.** A green result here proves the suite, not HAMi.", ""]
    if report.started.get("mutants"):
        lines += [f"> Mutants were on: {escape_markdown(', '.join(report.started['mutants']))}", ""]
    parts = ", ".join(
        escape_markdown(f"{part['name']} {part['state']}" + (f" ({part['version']})" if part.get("version") else ""))
        for part in report.started.get("parts", [])
        if part.get("state") != "absent"
    )
    counts = ", ".join(f"{count} {outcome}" for outcome, count in report.counts.items())
    lines += [f"**HAMi {escape_markdown(report.started.get('release', '?'))}** · {counts}", "", f"Parts: {parts}", ""]
    if report.expectations["why"]:
        held = f"Held against HAMi {report.expectations['release']}, {report.expectations['why']}."
        lines += [escape_markdown(held), ""]
    if report.doubt:
        lines += [f"> ⚠️ {escape_markdown(report.doubt)}", ""]
    return "\n".join(lines) + "\n"


def _disturbances(report: Report) -> str:
    found = disturbances.rows(report)
    if not found:
        return ""
    lines = ["**Disturbances**", "", "| kind | times | what | checks |", "| --- | ---: | --- | --- |"]
    for row in found[:FIGURE_ROWS]:
        shown = ", ".join(row.checks[:FIGURE_ROWS]) + (" …" if len(row.checks) > FIGURE_ROWS else "")
        lines.append(
            f"| {escape_markdown(row.kind[:60])} | {row.count} | {escape_markdown(row.meaning)} | {escape_markdown(shown)} |"
        )
    return "\n".join([*lines, "", disturbances.NOTE, "", ""])


def _figures(report: Report) -> str:
    found = tables(report)
    lines: list[str] = []
    for table in found:
        cells = [["case", *table.columns], *([case, *values] for case, values in table.rows[:FIGURE_ROWS])]
        header, *rows = [
            "| " + " | ".join(escape_markdown(cell[:60]) for cell in row[:FIGURE_COLUMNS]) + " |" for row in cells
        ]
        rule = "| --- |" + " ---: |" * (min(len(cells[0]), FIGURE_COLUMNS) - 1)
        lines += [
            f"**{escape_markdown(table.check.id)}: {escape_markdown(table.check.title)}**",
            "",
            header,
            rule,
            *rows,
            "",
        ]
    return "\n".join([*lines, NOTE, "", ""])[:FIGURES_LIMIT] if found else ""


def _block(check: CheckResult, *, is_open: bool) -> str:
    state = " open" if is_open else ""
    title = f"<b>{check.outcome}</b> {escape_markdown(check.id)}: {escape_markdown(check.title)}"
    lines = [f"<details{state}><summary>{title}</summary>", "", escape_markdown(check.claim), ""]
    for case in check.cases:
        if case.outcome.breaks_run or case.outcome is Outcome.DEVIATION:
            lines += _case(case)
    if check.mutants and check.outcome.breaks_run:
        lines += [f"This check can fail: it catches the mutants {escape_markdown(', '.join(check.mutants))}.", ""]
    lines += ["</details>", ""]
    return "\n".join(lines)


def _case(case: Case) -> list[str]:
    lines = [
        f"**{escape_markdown(case.id or 'case')}** {case.outcome}"
        + (f": {escape_markdown(case.reason)}" if case.reason else "")
    ]
    if case.reference:
        lines += ["", f"Reference: {escape_markdown(case.reference)}"]
    failure = case.failure
    if failure:
        rows = [
            (name, clean(failure.get(name, ""), 1500)) for name in ("where", "expected", "seen", "difference", "reason")
        ]
        lines += [
            "",
            "```text",
            *(f"{name + ':':<12}{escape_code(value, 1500)}" for name, value in rows if value),
            "```",
        ]
    return [*lines, ""]


def _tail(report: Report) -> str:
    digest = hashlib.sha256(report.to_json().encode()).hexdigest()
    passed = [check.id for check in report.checks if check.outcome is Outcome.PASSED]
    lines = [
        "",
        f"{len(passed)} checks passed: {', '.join(map(escape_markdown, passed))}" if passed else "No check passed.",
        "",
    ]
    for outcome in (Outcome.UNSUPPORTED, Outcome.SKIPPED, Outcome.NOT_RUN):
        found = [check.id for check in report.checks if check.outcome is outcome]
        if found:
            lines += [f"{outcome}: {', '.join(map(escape_markdown, found))}", ""]
    lines += [f"Repeat: `{command(report)}` · report.json sha256 `{digest}`", ""]
    return "\n".join(lines)


def command(report: Report, nodeid: str = "") -> str:
    """Return the command line that repeats the run, or one case, quoted for a shell."""
    arguments = [clean(argument, 300) for argument in report.started.get("arguments", [])]
    if nodeid:
        arguments = [clean(nodeid, 300), *(
            f"{setting['name']}={clean(setting['value'], 200)}"
            for setting in report.started.get("settings", [])
            if setting.get("source") not in {"default", None} and setting["name"] not in NOT_REPEATED
        )]  # fmt: skip
    return shlex.join(["pytest", *arguments]).replace("`", "")
