"""What is around the code: tox, the README's promises, the wheel, the neighbours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jq
import pytest

ROOT = Path(__file__).resolve().parents[1]
MAIN = "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/pytest -m mock"
TESTS = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox -e tests"
NEIGHBOURS = ("pytest-django", "pytest-asyncio", "pytest-xdist", "pytest-html", "pytest-kind-ng", "pytest-randomly")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return what it printed; a failure shows it."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("env", ["tests", "mutants", "bench", "network"])
def test_tox_passes_our_environment(env: str, tmp_path: Path) -> None:
    shown = run(sys.executable, "-m", "tox", "config", "-e", env, "-k", "pass_env", "--workdir", tmp_path, cwd=ROOT)
    passed = {line.strip() for line in shown.splitlines()}
    assert {"HAMI_*", "KUBEBUILDER_ASSETS", "KUBECONFIG"} <= passed


def test_the_readme_and_ci_say_the_same_two_lines() -> None:
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    for line in (MAIN, TESTS):
        assert f"\n{line}\n" in readme
        assert f"\n{line}\n" in ci
    assert ci.rstrip().endswith(TESTS)
    assert readme.index(TESTS) < 1200


def test_links_of_the_documents_lead_somewhere() -> None:
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert target.startswith("https://") or (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.fixture(scope="module")
def main_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the README's first line prints, and its report."""
    directory = tmp_path_factory.mktemp("main") / "hami-report"
    output = run(sys.executable, "-m", "pytest", "-m", "mock", f"--hami-report={directory}", cwd=ROOT)
    return output, directory


def test_the_readme_shows_what_is_printed(main_job: tuple[str, Path]) -> None:
    output, directory = main_job
    (excerpt,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    printed = output.replace(f"{directory}/", "hami-report/").splitlines()
    for line in excerpt.splitlines():
        assert line in printed or line == "..."


def test_each_jq_program_shows_a_fact(main_job: tuple[str, Path]) -> None:
    _, directory = main_job
    report: dict[str, Any] = json.loads((directory / "report.json").read_text())
    assert len(report["checks"]) == 33
    for check in report["checks"]:
        program = jq.compile(check["jq"])
        facts = [program.input_value(case["evidence"]).all() for case in check["cases"] if case["evidence"]]
        assert any(fact not in ([], [None], [[]], [{}]) for fact in facts), (
            f"{check['id']}: {check['jq']} shows nothing"
        )


def test_the_main_jobs_report_is_small_and_says_what_it_proves(main_job: tuple[str, Path]) -> None:
    _, directory = main_job
    assert (directory / "index.html").stat().st_size <= 400_000
    assert "proves the suite, not HAMi" in (directory / "index.html").read_text()
    assert json.loads((directory / "report.json").read_text())["proves"] == "suite"


@pytest.mark.network
def test_a_wheel_in_an_empty_environment_and_its_neighbours(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "pytest_hami/conformance/mock/test_budget.py" in names
    assert "pytest_hami/_data/fixtures/fleets/seed-002.yaml" in names
    assert "pytest_hami/report/index.html.j2" in names
    assert not [name for name in names if "evidence" in name and not name.endswith(".py")]
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)

    empty = tmp_path / "empty"
    empty.mkdir()
    command = (python, "-m", "pytest", "--pyargs", "pytest_hami.conformance", "-m", "mock")
    assert "29 of 33 checks passed" in run(*command, cwd=empty)
    report = json.loads((empty / "hami-report" / "report.json").read_text())
    assert (len(report["checks"]), report["verdict"]["outcome"]) == (33, "passed")

    run(python, "-m", "pip", "install", "-q", *NEIGHBOURS, cwd=tmp_path)
    shown = run(*command, "-k", "mock-09", "-n", "2", "--html", "x.html", cwd=empty)
    assert "1 of 33 checks passed, 32 not run" in shown
    assert "PytestRemovedIn" not in shown
    (empty / "test_async.py").write_text(
        "import pytest\n\n@pytest.mark.asyncio\nasync def test_it(hami_node):\n    assert hami_node.cards\n"
    )
    strict = ("-W", "error", "-o", "asyncio_default_fixture_loop_scope=function")
    assert "1 passed" in run(python, "-m", "pytest", *strict, "test_async.py", cwd=empty)
    shown = run(python, "-m", "pytest", "--fixtures", cwd=empty)
    assert {"hami_cluster", "kind_cluster", "django_user_model"} <= set(re.findall(r"^(\w+)", shown, re.MULTILINE))
