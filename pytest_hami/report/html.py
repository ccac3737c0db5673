"""``index.html``: one self-contained file, no script, readable without style."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_hami.checks import Layer, Outcome
from pytest_hami.report import disturbances
from pytest_hami.report.figures import NOTE, tables
from pytest_hami.report.markdown import command
from pytest_hami.report.model import Report
from pytest_hami.report.text import clean

HERE = Path(__file__).parent
ROWS = 40
EVIDENCE_LIMIT = 1500
TITLES = {
    Layer.NODE: "Nodes and registration", Layer.ADMISSION: "Admission", Layer.FILTER: "Filter and choice",
    Layer.BIND: "Bind and restart", Layer.CONTAINER: "Containers", Layer.METRICS: "Metrics", Layer.MESH: "Mesh",
}  # fmt: skip


@functools.cache
def _template() -> Any:
    import jinja2

    # Everything that reaches the page passes here: cleaned, cut, then escaped by autoescape.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_harmless,
    )  # fmt: skip
    environment.filters["clean"] = clean
    return environment.get_template("index.html.j2")


def _harmless(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def render(report: Report) -> str:
    """Return the page."""
    from markupsafe import Markup

    style = (HERE / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    groups = [(title, [check for check in report.checks if check.layer == layer]) for layer, title in TITLES.items()]
    other = [check for check in report.checks if check.layer not in set(TITLES)]
    return str(
        _template().render(
            report=report,
            verdict=report.verdict,
            started=report.started,
            counts=report.counts,
            groups=[(title, checks) for title, checks in [*groups, ("Other", other)] if checks],
            broken=[check for check in report.checks if report.breaks(check)],
            breaking=report.breaking,
            outcomes=Outcome,
            parts=report.started.get("parts", []),
            command=command,
            disturbances=disturbances.rows(report),
            disturbances_note=disturbances.NOTE,
            figures=tables(report),
            figures_note=NOTE,
            limit=ROWS,
            pods=_pods,
            evidence=_evidence,
            style=Markup(style),
            style_hash=digest,
        )
    )


def _pods(evidence: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = evidence.get("pods")
    return [pod for pod in found if isinstance(pod, Mapping)] if isinstance(found, list) else []


def _evidence(evidence: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in evidence.items() if key != "pods"}
    return clean(json.dumps(rest, indent=1, sort_keys=True, default=str), EVIDENCE_LIMIT) if rest else ""
