"""Settings: precedence, sources and refusals, seen from outside."""

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
