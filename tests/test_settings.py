"""Settings: precedence, sources and refusals, seen from outside."""

import subprocess
import sys

import pytest

USES_HAMI = "def test_it(hami_cluster):\n    assert hami_cluster.release == '2.10.0'\n"


def collected(pytester, *arguments):
    pytester.makepyfile(USES_HAMI)
    return pytester.runpytest_subprocess("--collect-only", *arguments)


def test_defaults_are_shown_with_their_source(pytester, monkeypatch):
    monkeypatch.delenv("HAMI_RELEASE", raising=False)
    result = collected(pytester)
    result.stdout.fnmatch_lines(
        ["hami: cluster=local (default), release=2.10.0 (default), report=hami-report (default)*"]
    )


def test_option_beats_environment_beats_ini(pytester, monkeypatch):
    pytester.makeini("[pytest]\nhami_report = from-ini\nhami_cleanup = never\nhami_repeat = 2")
    monkeypatch.setenv("HAMI_REPORT", "from-environment")
    monkeypatch.setenv("HAMI_CLEANUP", "on-success")
    result = collected(pytester, "--hami-report=from-option")
    result.stdout.fnmatch_lines(
        ["*report=from-option (option), cleanup=on-success (environment), repeat=2 (ini), timeout-scale=1.0 (default)*"]
    )


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--hami-cluster=moon", "--hami-cluster: unknown provider 'moon'"),
        ("--hami-cluster=kind", "--hami-cluster: provider 'kind' is planned"),
        ("--hami-release=banana", "no expectations for HAMi banana"),
        ("--hami-fleet=nope", "unknown fleet 'nope'"),
        ("--hami-cleanup=maybe", "expected one of always, on-success, never"),
        ("--hami-repeat=0", "expected a whole number from 1 to 10000"),
        ("--hami-timeout-scale=fast", "expected a number"),
        ("--hami-timeout-scale=nan", "expected a number above 0"),
        ("--hami-run-id=A B", "expected up to 40 lower-case letters"),
        ("--hami-mutant=nope", "unknown mutant 'nope'"),
        ("--hami-report=", "expected a directory"),
    ],
)
def test_a_bad_value_is_one_clear_line_and_exit_code_4(pytester, argument, complaint):
    result = collected(pytester, argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.stderr.lines if line.startswith("ERROR")]
    assert len(lines) == 1
    assert complaint in lines[0]


def test_a_bad_environment_value_names_the_variable(pytester, monkeypatch):
    monkeypatch.setenv("HAMI_CLEANUP", "maybe")
    result = collected(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: HAMI_CLEANUP: expected one of*"])


def test_a_malformed_fleet_file_is_named_with_its_line(pytester):
    path = pytester.path / "mine.yaml"
    path.write_text("nodes:\n  - name: a\n  - nam: b\n")
    result = collected(pytester, f"--hami-fleet={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: hami: {path}:3: expected a node with a name"])


def test_nothing_but_our_modules_is_imported_by_an_unused_plugin(pytester):
    pytester.makepyfile("def test_nothing():\n    pass\n")
    script = (
        "import sys, pytest\n"
        "code = pytest.main(['-q', '-p', 'no:randomly', '-p', 'no:xdist', '-p', 'no:html', '-p', 'no:metadata', "
        "'-p', 'no:hypothesispytest'])\n"
        "print('IMPORTED', sorted(m for m in sys.modules if m.startswith('pytest_hami')))\n"
        "heavy = {'kubernetes', 'aiohttp', 'yaml', 'jq', 'jinja2', 'tenacity', 'prometheus_client', 'cryptography', 'urllib3'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=pytester.path
    )
    assert result.returncode == 0, result.stdout + result.stderr
    expected = ["", ".checks", ".fixtures", ".plugin", ".settings"]
    assert f"IMPORTED {[f'pytest_hami{name}' for name in expected]}" in result.stdout
    assert "HEAVY []" in result.stdout
