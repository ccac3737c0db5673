"""What was collected: the checks with their cases and marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_hami.cases import case_id
from pytest_hami.checks import Capability, Check


def listing(items: Sequence[pytest.Item]) -> list[str]:
    """Return one line for each check of the items, with what it needs and its cases."""
    from pytest_hami.plugin import item_check, item_needs

    cases: dict[str, list[pytest.Item]] = {}
    records: dict[str, Check] = {}
    for item in items:
        check = item_check(item)
        if check is not None:
            cases.setdefault(check.id, []).append(item)
            records[check.id] = check
    lines = []
    for id_ in sorted(cases):
        check = records[id_]
        lines.append(f"{id_}  {check.title}  [{check.layer}; fleet {check.fleet}; {len(cases[id_])} cases]")
        lines.append(f"    {check.claim}")
        needs = sorted(set().union(*(item_needs(item) for item in cases[id_])))
        lines.append(f"    needs: {', '.join(needs) or 'nothing'}; does not prove: {check.not_proven}")
    return lines


def validate_marks(item: pytest.Item) -> None:
    """Check the marks of an item. Raises pytest.UsageError."""
    from pytest_hami.plugin import item_needs

    mark = item.get_closest_marker("hami_fleet")
    if mark is not None and not (len(mark.args) == 1 and isinstance(mark.args[0], str)):
        raise pytest.UsageError(f"hami: {item.nodeid}: mark hami_fleet: expected one name or file")
    try:
        item_needs(item)
    except ValueError as error:
        known = ", ".join(Capability)
        raise pytest.UsageError(f"hami: {item.nodeid}: mark hami_needs: {error}; known are {known}") from None


def declarations(items: Sequence[pytest.Item], deselected: Sequence[pytest.Item]) -> list[dict[str, Any]]:
    """Return the events that declare the checks of the items, deselected ones of the same families included."""
    from pytest_hami.cluster.mutants import mutants_of
    from pytest_hami.plugin import item_check

    found: dict[str, dict[str, Any]] = {}
    families = {check.id.split("-")[0] for item in items if (check := item_check(item))}
    for item in (*items, *deselected):
        check = item_check(item)
        if check is None or check.id.split("-")[0] not in families:
            continue
        declaration = found.setdefault(
            check.id,
            {
                "kind": "check-declared", "id": check.id, "title": check.title, "claim": check.claim,
                "not_proven": check.not_proven, "layer": str(check.layer), "needs": sorted(map(str, check.needs)),
                "fleet": check.fleet, "jq": check.jq, "mutants": mutants_of(check.id), "cases": [],
            },
        )  # fmt: skip
        declaration["cases"].append({"id": case_id(item), "nodeid": item.nodeid})
    return [found[id_] for id_ in sorted(found)]
