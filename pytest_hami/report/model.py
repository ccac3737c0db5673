"""The report as values, made from the event stream; every output is made from this."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hami.checks import UNSEEN, Outcome, worst

SCHEMA = "urn:pytest-hami:report:1"
# What a stream that lost its first line still says.
UNKNOWN: Mapping[str, Any] = {
    "proves": "suite", "provider": "", "lane": "unknown", "release": "unknown", "parts": [], "fleet": [], "settings": [],
    "mutants": [], "allowed": [], "suite": {}, "arguments": [],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One case of a check."""

    id: str
    nodeid: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    remedy: str = ""
    reference: str = ""
    failure: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    disturbances: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """One check with its cases."""

    id: str
    title: str
    claim: str
    not_proven: str
    layer: str
    needs: tuple[str, ...]
    fleet: str
    jq: str
    mutants: tuple[str, ...]
    cases: tuple[Case, ...]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the check: that of its worst case."""
        return worst(case.outcome for case in self.cases)

    @property
    def observed(self) -> int:
        """The number of cases that were judged."""
        return sum(case.outcome not in UNSEEN for case in self.cases)

    @property
    def seconds(self) -> float:
        """The time of all cases."""
        return round(sum(case.seconds for case in self.cases), 4)


@dataclass(frozen=True)
class Verdict:
    """The verdict: ``passed``, ``failed`` or ``incomplete``, and one sentence."""

    outcome: str
    sentence: str


@dataclass(frozen=True)
class Report:
    """A run: what was faced, what was checked, how it ended."""

    started: Mapping[str, Any]
    finished: Mapping[str, Any] | None
    checks: tuple[CheckResult, ...]
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def expectations(self) -> dict[str, str]:
        """The recorded release that HAMi was held against, why, and what HAMi told of its version while it ran."""
        return {
            "release": str(self.started.get("release", "")), "why": str(self.started.get("held_against", "")),
            "build_info": self.told.get("build_info", ""), "metrics": self.told.get("metrics", ""),
        }  # fmt: skip

    @property
    def doubt(self) -> str:
        """Why the release that HAMi was held against may be the wrong one; empty when nothing speaks against it."""
        release, metrics = self.expectations["release"], self.expectations["metrics"]
        if not metrics or metrics == release:
            return ""
        return f"HAMi was held against {release}, and its metrics are those of {metrics}: see --hami-release."

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return self.finished is not None and not self.finished.get("interrupted")

    @property
    def partial(self) -> bool:
        """Whether some declared case did not run."""
        return any(case.outcome is Outcome.NOT_RUN for check in self.checks for case in check.cases)

    @property
    def observed(self) -> int:
        """The number of cases that were judged."""
        return sum(check.observed for check in self.checks)

    @property
    def breaking(self) -> frozenset[Outcome]:
        """The outcomes that fail this run; ``--hami-allow-changed`` and its like take some away."""
        allowed = set(self.started.get("allowed", ()))
        return frozenset(outcome for outcome in Outcome if outcome.breaks_run and outcome not in allowed)

    def breaks(self, check: CheckResult) -> bool:
        """Whether a check fails this run: an allowed outcome of one case does not hide that of another."""
        return any(case.outcome in self.breaking for case in check.cases)

    @property
    def counts(self) -> dict[str, int]:
        """The number of checks by outcome, in the order of the words."""
        found = [check.outcome for check in self.checks]
        return {str(outcome): found.count(outcome) for outcome in Outcome if outcome in found}

    @property
    def simulated(self) -> bool:
        """Whether the run says nothing about HAMi."""
        return bool(self.started.get("proves", "suite") != "hami")

    @property
    def verdict(self) -> Verdict:
        """The verdict with its sentence."""
        broken = [check for check in self.checks if self.breaks(check)]
        total = len(self.checks)
        counts = self.counts
        words = {
            "deviation": "deviate as known", "changed": "changed", "failed": "failed", "invalid": "invalid",
            "inconclusive": "inconclusive", "error": "in error", "unsupported": "unsupported here", "skipped": "skipped",
            "not-run": "not run",
        }  # fmt: skip
        parts = [f"{counts.get('passed', 0)} of {total} checks passed"]
        parts.extend(f"{counts[key]} {word}" for key, word in words.items() if counts.get(key))
        sentence = ", ".join(parts) + "."
        if self.partial:
            cases = [case for check in self.checks for case in check.cases]
            sentence += (
                f" Partial: {sum(case.outcome is not Outcome.NOT_RUN for case in cases)} of {len(cases)} cases ran."
            )
        if not self.complete:
            outcome, sentence = "incomplete", f"The run did not come to its end: {sentence}"
        elif broken:
            outcome = "failed"
        elif self.observed:
            outcome = "passed"
        else:
            outcome, sentence = "incomplete", f"Nothing was observed: {sentence}"
        if self.simulated:
            sentence += " Every part of HAMi was simulated: this proves the suite, not HAMi."
        else:
            real = [f"{part['name']} {part['version']}" for part in self.started["parts"] if part["state"] == "real"]
            simulated = [part["name"] for part in self.started["parts"] if part["state"] == "simulated"]
            sentence += f" Real: {', '.join(real)}; simulated: {', '.join(simulated) or 'nothing'}."
        return Verdict(outcome, sentence[0].upper() + sentence[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, the content of report.json."""
        started = self.started
        return {
            "schema": SCHEMA,
            "verdict": {"outcome": self.verdict.outcome, "sentence": self.verdict.sentence},
            "proves": started.get("proves", "suite"),
            "complete": self.complete,
            "partial": self.partial,
            "provider": started.get("provider", ""),
            "lane": started.get("lane", ""),
            "parts": started.get("parts", []),
            "release": started.get("release", ""),
            "expectations": self.expectations,
            "versions": {"suite": (started.get("suite") or {}).get("version"), "python": started.get("python")}
            | {part["name"]: part["version"] for part in started.get("parts", []) if part.get("version")},
            "fleet": started.get("fleet", []),
            "mutants": started.get("mutants", []),
            "settings": started.get("settings", []),
            "run": {
                "id": started.get("run_id", ""), "started": started.get("time", ""),
                "finished": (self.finished or {}).get("time"), "exit_code": (self.finished or {}).get("exit_code"),
                "seed": started.get("seed"), "platform": started.get("platform"),
            },
            "counts": self.counts,
            "checks": [
                {
                    "id": check.id, "title": check.title, "claim": check.claim, "not_proven": check.not_proven,
                    "layer": check.layer, "needs": list(check.needs), "fleet": check.fleet, "jq": check.jq,
                    "mutants": list(check.mutants),
                    "outcome": str(check.outcome), "seconds": check.seconds,
                    "cases": [
                        {
                            "id": case.id, "nodeid": case.nodeid, "outcome": str(case.outcome), "seconds": case.seconds,
                            "reason": case.reason, "remedy": case.remedy, "reference": case.reference,
                            "failure": case.failure, "evidence": case.evidence,
                            "disturbances": [dict(found) for found in case.disturbances],
                        }
                        for case in check.cases
                    ],
                }
                for check in self.checks
            ],
        }  # fmt: skip

    def to_json(self) -> str:
        """Return report.json in its canonical form: sorted keys, no blanks, one newline at the end."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n"


def from_events(events: Iterable[Mapping[str, Any]]) -> Report:
    """Return the report of an event stream; unknown kinds are passed over."""
    started: Mapping[str, Any] = UNKNOWN
    finished: Mapping[str, Any] | None = None
    told: Mapping[str, str] = {}
    declared: dict[str, Mapping[str, Any]] = {}
    cases: dict[str, dict[str, Case]] = {}
    for event in events:
        kind = event.get("kind")
        if kind == "run-started" and started is UNKNOWN:
            started = {**UNKNOWN, **event}
        elif kind == "run-finished":
            finished = event
        elif kind == "release-told":
            told = {str(key): str(value) for key, value in event.items()}
        elif kind == "check-declared":
            declared.setdefault(str(event.get("id", "")), event)
        elif kind == "case-finished":
            case = _case(event)
            cases.setdefault(str(event.get("check", "")), {})[case.nodeid] = case
    results = []
    for id_ in sorted({*declared, *cases}):
        record = declared.get(id_, {})
        known = cases.get(id_, {})
        listed = {
            str(entry["nodeid"]): known.get(
                str(entry["nodeid"]), Case(str(entry["id"]), str(entry["nodeid"]), Outcome.NOT_RUN)
            )
            for entry in record.get("cases", [])
        }
        found = {**listed, **known}
        results.append(
            CheckResult(
                id=id_, title=str(record.get("title", id_)), claim=str(record.get("claim", "")),
                not_proven=str(record.get("not_proven", "")), layer=str(record.get("layer", "")),
                needs=tuple(record.get("needs", ())), fleet=str(record.get("fleet", "")), jq=str(record.get("jq", "")),
                mutants=tuple(record.get("mutants", ())),
                cases=tuple(found[nodeid] for nodeid in sorted(found)),
            )
        )  # fmt: skip
    return Report(started, finished, tuple(results), told)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _case(event: Mapping[str, Any]) -> Case:
    try:
        outcome = Outcome(str(event.get("outcome")))
    except ValueError:
        outcome = Outcome.ERROR
    return Case(
        id=str(event.get("case", "")), nodeid=str(event.get("nodeid", "")), outcome=outcome,
        seconds=_number(event.get("seconds")), reason=str(event.get("reason") or ""),
        remedy=str(event.get("remedy") or ""), reference=str(event.get("reference") or ""),
        failure=event.get("failure"), evidence=event.get("evidence") or {}, disturbances=_texts(event.get("disturbances")),
    )  # fmt: skip


def _texts(found: object) -> tuple[dict[str, str], ...]:
    entries = found if isinstance(found, list) else ()
    return tuple({str(key): str(value) for key, value in entry.items()} for entry in entries if isinstance(entry, dict))
