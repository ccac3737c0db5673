"""Settings: precedence, sources and refusals, seen from outside."""

from pathlib import Path

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


def programs(directory, *names, mode=0o755):
    directory.mkdir()
    for name in names:
        (directory / name).touch(mode=mode)
    return directory


def shown_assets(pytester, *arguments):
    lines = collected(pytester, *arguments).outlines
    shown = next(line for line in lines if line.startswith("hami: cluster="))
    return next((part for part in shown.split(", ") if part.startswith("assets=")), "")


def test_assets_follow_the_convention_of_envtest(pytester, monkeypatch, tmp_path):
    own, envtest, typed = (programs(tmp_path / name, "etcd", "kube-apiserver") for name in ("own", "envtest", "typed"))
    for program in ("etcd", "kube-apiserver"):
        for directory in (own, envtest, typed):
            (directory / program).write_text("#!/bin/sh\necho 'etcd Version: 3.0\nKubernetes v1.0'\n")
    pytester.makeini("[pytest]\nhami_assets = from-ini")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(envtest))
    assert shown_assets(pytester) == f"assets={envtest} (environment)"
    monkeypatch.setenv("HAMI_ASSETS", str(own))
    assert shown_assets(pytester) == f"assets={own} (environment)"
    assert shown_assets(pytester, f"--hami-assets={typed}") == f"assets={typed} (option)"
    assert shown_assets(pytester, "--hami-assets=") == "", "an empty option means none"


@pytest.mark.parametrize(
    ("there", "mode", "message"),
    [
        ((), 0o755, "no etcd and no kube-apiserver in "),
        (("etcd", "kube-scheduler"), 0o755, "no kube-apiserver in "),
        (("etcd", "kube-apiserver", "kube-scheduler"), 0o644, "not executable: "),
    ],
    ids=["empty", "half", "plain-files"],
)
def test_a_directory_that_cannot_be_used_is_named_with_what_is_missing(pytester, tmp_path, there, mode, message):
    directory = programs(tmp_path / "assets", *there, mode=mode)
    result = collected(pytester, f"--hami-assets={directory}")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: --hami-assets: {message}*"])


def test_the_place_of_a_bad_path_is_named(pytester, monkeypatch, tmp_path):
    pytester.makepyfile(USES_HAMI)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    result = pytester.runpytest_subprocess()
    assert result.ret == 4
    assert any("KUBEBUILDER_ASSETS: no such directory" in line for line in result.outlines + result.errlines)


@pytest.mark.parametrize("option", ["device-plugin", "monitor", "nvml"])
def test_a_program_that_does_not_exist_is_refused(pytester, option):
    result = collected(pytester, f"--hami-{option}={Path('nowhere')}")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: --hami-{option}: no such file: 'nowhere'"])
