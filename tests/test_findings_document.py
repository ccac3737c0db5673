"""docs/findings.md tells of exactly the findings that are checks, and of the releases on which they deviate."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SECTION = re.compile(r"^## (finding-[sp]\d{2}): (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)


@pytest.fixture(scope="module")
def sections() -> dict[str, tuple[str, str]]:
    text = (ROOT / "docs" / "findings.md").read_text()
    return {id_: (title, body) for id_, title, body in SECTION.findall(text)}


def deviating_releases() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (ROOT / "fixtures" / "expectations").glob("*.yaml"):
        for name, entry in yaml.safe_load(path.read_text()).items():
            if name.startswith("finding-") and "documented" in entry:
                found.setdefault(name, set()).add(path.stem)
    return found


def test_every_finding_is_told_with_the_title_of_its_check(sections: dict[str, tuple[str, str]]) -> None:
    command = [sys.executable, "-m", "pytest", "conformance", "-m", "contract", "-q", "--hami-list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    checks = dict(re.findall(r"^(finding-[sp]\d{2})  (.+?)  \[", done.stdout, re.MULTILINE))
    assert checks
    assert {id_: title for id_, (title, _) in sections.items()} == checks


def test_the_releases_are_those_on_which_the_check_deviates(sections: dict[str, tuple[str, str]]) -> None:
    told = {
        id_: set(re.findall(r"\d+\.\d+\.\d+", body.partition("- Releases:")[2].partition("\n")[0]))
        for id_, (_, body) in sections.items()
    }
    assert told == deviating_releases()


def test_every_finding_has_a_reproduction(sections: dict[str, tuple[str, str]]) -> None:
    for id_, (_, body) in sections.items():
        kind, code = re.findall(r"```(\w+)\n(.*?)```", body, re.DOTALL)[0]
        assert kind in {"sh", "yaml"}, id_
        if kind == "yaml":
            assert isinstance(yaml.safe_load(code), dict), id_
