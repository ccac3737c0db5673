"""The pytest hooks. Standard library and pytest only at import, so that an installed and unused plugin costs nothing."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hami import settings as settings_module
from pytest_hami.checks import Capability, Check, Outcome, check_of
from pytest_hami.fixtures import (
    hami,
    hami_cluster,
    hami_gpu,
    hami_gpus,
    hami_kubeconfig,
    hami_mesh,
    hami_node,
    hami_nodes,
)

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_hami.run import Run

__all__ = [
    "hami",
    "hami_cluster",
    "hami_gpu",
    "hami_gpus",
    "hami_kubeconfig",
    "hami_mesh",
    "hami_node",
    "hami_nodes",
]

SETTINGS = pytest.StashKey[settings_module.Settings]()
RUN = pytest.StashKey["Run"]()
RUN_ID = pytest.StashKey[str]()
DESELECTED = pytest.StashKey[list[pytest.Item]]()
EXIT_CLUSTER = 6
MARKERS = (
    "mock: a published mock check (33 of them); needs no GPU",
    "contract: a promise of HAMi beyond the published checks, and each finding (finding-s01 …); needs no GPU",
    "scale: a measurement of many placements, with figures in the report; needs no GPU",
    "realgpu: a proof that needs real GPUs",
    "hami_fleet(name): the fleet that a test needs (shipped name or YAML file)",
    "hami_needs(*capabilities): what the cluster must be able to show for this test or case",
)
MARKER_OF_FAMILY = {"mock": "mock", "proof": "realgpu", "contract": "contract", "finding": "contract", "scale": "scale"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    settings_module.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and resolve the settings; a bad value ends with exit code 4."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    settings = settings_module.resolve(config)
    config.stash[SETTINGS] = settings
    config.stash[DESELECTED] = []
    config.stash[RUN_ID] = settings["run-id"] or os.urandom(4).hex()
    if "option" in {settings.source(name) for name in ("fleet", "mutant", "release")}:
        from pytest_hami.run import validate

        validate(settings)
    if config.getoption("hami_list"):
        # Nothing runs, so nothing is handed to workers of pytest-xdist either.
        config.option.dist, config.option.tx = "no", []


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Answer ``--hami-list-mutants`` without collecting anything."""
    if not config.getoption("hami_list_mutants"):
        return None
    if config.getoption("hami_list"):
        raise pytest.UsageError("--hami-list and --hami-list-mutants: expected one of them, got both")
    from pytest_hami.cluster.mutants import mutant_names

    print("\n".join(mutant_names()))
    return 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Multiply checks for ``--hami-repeat``."""
    if check_of(metafunc.function) is None:
        return
    repeat = metafunc.config.stash[SETTINGS].repeat
    if repeat > 1:
        metafunc.fixturenames.append("_hami_repeat")
        metafunc.parametrize("_hami_repeat", range(1, repeat + 1), ids=lambda number: f"run{number}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each check the marker of its family, and its id as a word for ``-k``."""
    check = item_check(item)
    if check is None:
        return
    item.extra_keyword_matches.add(check.id)
    family = check.id.split("-")[0]
    if family in MARKER_OF_FAMILY:
        item.add_marker(MARKER_OF_FAMILY[family])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Declare the checks to the report and begin to make the cluster, while pytest goes on."""
    config = session.config
    items = [item for item in session.items if uses_hami(item)]
    if not items or config.option.collectonly or config.getoption("hami_list"):
        return
    deselected = config.stash[DESELECTED]
    run_of(config).begin(items, deselected)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember what will not run, so that the report can say so."""
    if items:
        items[0].config.stash[DESELECTED].extend(items)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Print each setting with its source once it is known that HAMi is under test."""
    if not any(uses_hami(item) for item in items):
        return []
    settings = config.stash[SETTINGS]
    shown = ", ".join(f"{s.name}={s.value} ({s.source})" for s in settings.items if s.value)
    lines = [f"hami: {shown}"]
    if config.getoption("hami_list"):
        return lines
    lines.extend(run_of(config).header())
    return lines


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Print the selected checks for ``--hami-list`` instead of running them."""
    if not session.config.getoption("hami_list"):
        return None
    from pytest_hami.listing import listing

    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    for line in listing([item for item in session.items if item_check(item)]):
        reporter.write_line(line)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this cluster cannot show, with reason and remedy."""
    if uses_hami(item):
        run_of(item.config).require_capabilities(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Find the outcome of each phase and attach the finished case to the last report."""
    report = yield
    if uses_hami(item):
        run_of(item.config).observe(item, call, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show invalid and inconclusive observations as errors, deviations by name."""
    outcome = getattr(report, "hami_outcome", "")
    if report.when == "call" and report.failed and outcome in {Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.ERROR}:
        return "error", "E", outcome.upper()
    if report.when == "call" and outcome not in {"", Outcome.PASSED} and report.passed:
        return "passed", ".", f"PASSED ({outcome})"
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Register the recorder in the process that owns the report: not in a worker of pytest-xdist."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Recorder(session.config), "hami-recorder")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
    """End the cluster and write the report, after the last fixtures and before the terminal summary."""
    run = session.config.stash.get(RUN, None)
    try:
        yield
    except Exception as error:
        # An interrupt leaves a test in the middle; that its clean-up fails then is no news worth a traceback.
        if run is None or exitstatus != pytest.ExitCode.INTERRUPTED:
            raise
        run.complain(f"clean-up after the interrupt failed: {error}")
    finally:
        if run is not None:
            if run.lost:
                session.exitstatus = EXIT_CLUSTER
            if run.observed_nothing and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
            run.finish(int(session.exitstatus))
            if hasattr(session.config, "workeroutput"):
                session.config.workeroutput["hami_lost"] = run.lost


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing running, whatever happened before."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.stop_cluster()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the verdict, what was simulated, and where the report is."""
    run = terminalreporter.config.stash.get(RUN, None)
    if run is not None:
        run.print_summary(terminalreporter)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give workers of pytest-xdist the run id of the controller."""
    node.workerinput["hami_run_id"] = node.config.stash[RUN_ID]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Learn from a worker of pytest-xdist that its cluster is gone."""
    lost = getattr(node, "workeroutput", {}).get("hami_lost")
    if lost:
        run_of(node.config).lost = lost


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_table_header(cells: list[str]) -> None:
    """Add our columns to a pytest-html report."""
    from pytest_hami.html_view import header

    header(cells)


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_table_row(report: pytest.TestReport, cells: list[str]) -> None:
    """Fill our columns and escape the id, which pytest-html 4.2 puts into the page as it is (pytest-html#1024)."""
    from pytest_hami.html_view import row

    row(report, cells)


class _Recorder:
    """Writes finished cases to the event stream."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the case that a report carries."""
        if hasattr(report, "hami_case"):
            run_of(self._config).record(report.hami_case)


def run_of(config: pytest.Config) -> Run:
    """Return the run of this pytest process, made on first use."""
    if RUN not in config.stash:
        from pytest_hami.run import Run

        config.stash[RUN] = Run(config, config.stash[SETTINGS], config.stash[RUN_ID])
    return config.stash[RUN]


def item_check(item: pytest.Item) -> Check | None:
    """Return the check that an item belongs to."""
    return check_of(getattr(item, "function", None))


def uses_hami(item: pytest.Item) -> bool:
    """Return whether an item is a check or asks for one of our fixtures."""
    names = getattr(item, "fixturenames", ())
    return item_check(item) is not None or any(name in __all__ for name in names)


def item_needs(item: pytest.Item) -> frozenset[Capability]:
    """Return the capabilities that an item needs: of its check and of its ``hami_needs`` marks."""
    check = item_check(item)
    needs = set(check.needs if check else ())
    for mark in item.iter_markers("hami_needs"):
        needs.update(Capability(name) for name in mark.args)
    return frozenset(needs)
