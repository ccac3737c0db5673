"""pytest-html gets our columns, with every id escaped."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

SUITE = """
import pytest
from pytest_hami.checks import Layer, check

@check("mock-01", title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")
@pytest.mark.parametrize("text", ["a"], ids=["<img src=x onerror=alert(1)>"])
def test_one(hami, text):
    pass

def test_plain():
    pass
"""


def test_columns_and_escaping(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_subprocess("--html=x.html", "--self-contained-html", "-p", "no:randomly")
    assert done.ret == 0
    page = (pytester.path / "x.html").read_text()
    assert "<th>Check</th>" in page
    assert "<th>HAMi outcome</th>" in page
    (blob,) = re.findall(r'data-jsonblob="([^"]*)"', page)
    rows = [row for tests in json.loads(unescape(blob))["tests"].values() for row in tests]
    cells = " ".join(" ".join(row["resultsTableRow"]) for row in rows)
    assert "<td>mock-01</td>" in cells
    assert "<td>passed</td>" in cells
    assert "<img" not in cells
    assert "&lt;img src=x onerror=alert(1)&gt;" in cells
