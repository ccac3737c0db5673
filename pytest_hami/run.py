"""One run: its cluster, its leases, its cases and its event stream. Imported when HAMi is used, not before."""

from __future__ import annotations

import collections
import contextlib
import datetime
import itertools
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hami import __version__, cases, listing, target
from pytest_hami.checks import UNSEEN, Outcome
from pytest_hami.cluster import fleet as fleets
from pytest_hami.cluster.base import HAMI_PARTS, Cluster, ClusterUnavailable, PartState
from pytest_hami.cluster.composition import CompositionRefused
from pytest_hami.cluster.local import LocalCluster
from pytest_hami.cluster.programs import identified
from pytest_hami.expect.expectations import ExpectationError
from pytest_hami.expect.expectations import load as load_expectations
from pytest_hami.expect.patience import Patience
from pytest_hami.plugin import EXIT_CLUSTER
from pytest_hami.settings import Settings
from pytest_hami.text import one_line

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_hami.expect.hami import Hami
    from pytest_hami.report.model import Report
    from pytest_hami.report.stream import Writer

DEFAULT_FLEET = "seed-002"
# While the run goes on, the report is made again after this many seconds, and seldom enough to cost 2 % of the time.
REBUILD_EVERY = 2.0
REBUILD_SHARE = 50
INTERRUPTED = frozenset({pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, EXIT_CLUSTER})


def validate(settings: Settings) -> None:
    """Check every value, also names that need our data to be known. Raises pytest.UsageError (exit code 4)."""
    from pytest_hami.cluster.mutants import mutant_names, part_of_mutant

    settings.require_sound()
    try:
        if settings["fleet"]:
            fleets.load(settings["fleet"])
        load_expectations(settings["release"])
    except (fleets.FleetError, ExpectationError) as error:
        raise pytest.UsageError(f"hami: {error}") from None
    known = mutant_names() if settings.mutants else []
    for name in settings.mutants:
        if name not in known:
            raise pytest.UsageError(
                f"--hami-mutant: unknown mutant {name!r}; --hami-list-mutants names all {len(known)}"
            )
    try:
        target.composition(settings).require_possible({name: part_of_mutant(name) for name in settings.mutants})
    except CompositionRefused as error:
        raise pytest.UsageError(str(error)) from None


class Run:
    """The state of one pytest process."""

    def __init__(self, config: pytest.Config, settings: Settings, run_id: str) -> None:
        """Raises pytest.UsageError for a setting that cannot be used; ends pytest where there is no cluster to be had."""
        validate(settings)
        self._config = config
        self._settings = settings
        worker = getattr(config, "workerinput", None)
        self._is_worker = worker is not None
        self.run_id = (worker or {}).get("hami_run_id") or run_id
        self.lost = ""
        self._complaints: list[str] = []
        try:
            composition = identified(target.composition(settings), settings.timeout_scale)
            self._faced = target.faced(settings, composition)
        except ClusterUnavailable as error:
            pytest.exit(f"hami: {one_line(error)}", returncode=EXIT_CLUSTER)
        self._cluster: Cluster = LocalCluster(
            str(self._faced.release), composition, mutants=settings.mutants, timeout_scale=settings.timeout_scale
        )
        self._expectations = load_expectations(self._cluster.release)
        # What usually comes at once has come by then, also on a busy machine.
        self._patience = Patience(short=0.4 * self._cluster.timing.settle)
        # By name of the declared fleet, equal sets of nodes that tests take in turn.
        self._fleets: dict[str, collections.deque[fleets.Fleet]] = {}
        self._provisioned = False
        self._dirty: set[str] = set()
        self._allowed = frozenset(
            outcome
            for outcome, option in ((Outcome.CHANGED, "changed"), (Outcome.INCONCLUSIVE, "inconclusive"))
            if config.getoption(f"hami_allow_{option}")
        )
        self._tests = 0
        self._writer: Writer | None = None
        self._report: Report | None = None
        self._declared: list[dict[str, Any]] = []
        self._sent_declarations = False
        self._told: dict[str, str] = {}
        self._written_told = False
        self._seen_checks: set[str] = set()
        self._next_build = 0.0
        self._observed = 0

    def begin(self, items: Sequence[pytest.Item], deselected: Sequence[pytest.Item]) -> None:
        """Declare the checks and their fleets, and start the cluster. Raises pytest.UsageError."""
        from pytest_hami.plugin import item_needs

        for item in items:
            listing.validate_marks(item)
        self._end_on_sigterm()
        try:
            able = [item for item in items if item_needs(item) <= self._cluster.capabilities]
            for name, tests in collections.Counter(self._fleet_name(item) for item in able).items():
                self._fleets[name] = collections.deque(fleets.load(name).copies(min(tests, self._cluster.fleet_copies)))
        except fleets.FleetError as error:
            raise pytest.UsageError(f"hami: {error}") from None
        self._declared = listing.declarations(items, deselected)
        try:
            self._cluster.start()
        except ClusterUnavailable as error:
            self._lose(error)
        if not self._is_worker and self._declared:
            for declaration in self._declared:
                self._write(declaration)
            # From now on a killed run leaves a report; the cluster starts in the meantime.
            self._build()

    def header(self) -> list[str]:
        """Return the lines that tell what is real."""
        parts = ", ".join(f"{p.name} {p.state}" for p in self._cluster.parts if p.state != "absent")
        lines = [f"hami: parts: {parts}"]
        if self._cluster.proves == "suite":
            whole = all(part.state != PartState.REAL for part in self._cluster.parts)
            what = "every part is SIMULATED" if whole else "every part of HAMi is SIMULATED"
            lines.append(f"hami: {what}: a green run proves this suite, not HAMi")
        for part in self._cluster.parts:
            if part.state is PartState.REAL:
                held = (
                    f", held against HAMi {self._faced.release}, {self._faced.why}" if part.name in HAMI_PARTS else ""
                )
                lines.append(f"hami: {part.name} is REAL: {part.version}{held}")
        if self._settings.mutants:
            lines.append(f"hami: MUTANTS are on: {', '.join(self._settings.mutants)}")
        return lines

    def ready_cluster(self) -> Cluster:
        """Return the cluster with the nodes of all declared fleets. Ends the run (exit code 6) when it cannot be had."""
        try:
            self._cluster.start()
            if not self._provisioned:
                # Watched from before the first pod, so that no history begins in the middle.
                self._cluster.journal.news()
                self._cluster.provision(itertools.chain(*self._fleets.values()))
                self._provisioned = True
                self._told = self._cluster.tells()
        except Exception as error:
            if not _is_loss(error):
                raise
            self._lose(error)
        return self._cluster

    def require_capabilities(self, item: pytest.Item) -> None:
        """Skip an item that needs what the cluster cannot show, or a fleet of another shape."""
        from pytest_hami.plugin import item_needs

        for need in sorted(item_needs(item) - self._cluster.capabilities):
            outcome, reason, remedy = cases.lack(need)
            item.stash[cases.CASE] = {"outcome": outcome, "reason": reason, "remedy": remedy}
            pytest.skip(f"{outcome}: {reason}; remedy: {remedy}")
        declared, used = self._declared_fleet(item), self._fleet_name(item)
        if declared and declared != used:
            wanted, have = fleets.load(declared), self._fleets[used][0]
            if wanted.shape() != have.shape():
                reason = f"fleet {used} has not the shape of {declared}, which this check declares"
                remedy = "leave --hami-fleet out"
                item.stash[cases.CASE] = {"outcome": Outcome.SKIPPED, "reason": reason, "remedy": remedy}
                pytest.skip(f"{Outcome.SKIPPED}: {reason}; remedy: {remedy}")

    @contextlib.contextmanager
    def lease(self, item: pytest.Item) -> Iterator[Hami]:
        """Give a test its fleet and namespace, gather its evidence, then clean up."""
        from pytest_hami.expect.hami import Hami, LeasedCard, LeasedNode

        cluster = self._cluster
        fleet = self._fleet(self._fleet_name(item))
        if fleet.name in self._dirty:
            cluster.renew(fleet)
            self._dirty.discard(fleet.name)
        nodes = []
        for node in fleet.nodes:
            name = cluster.node_name(fleet, node.name)
            cards = tuple(
                LeasedCard(c.uuid, c.index, c.type, c.memory, c.cores, c.numa, True, name) for c in node.cards
            )
            nodes.append(LeasedNode(name, cards))
        self._tests += 1
        worker = getattr(self._config, "workerinput", {}).get("workerid", "")
        labels = {"pytest-hami.io/run": self.run_id, "app.kubernetes.io/managed-by": "pytest-hami"}
        namespace = f"hami-{self.run_id}{'-' + worker if worker else ''}-{self._tests}"
        # A test that ends before its clean-up leaves nodes that nobody may trust.
        self._dirty.add(fleet.name)
        facade = Hami(cluster, namespace, nodes, cluster.fleet_label(fleet), labels, self._expectations, self._patience)
        try:
            yield facade
        finally:
            case = item.stash.setdefault(cases.CASE, {})
            case["deviations"] = [(e.documented, e.reference) for e in facade.deviations]
            try:
                case["disturbances"] = [found.to_dict() for found in facade.disturbances()]
                case["evidence"] = facade.evidence()
            except Exception as error:
                # Nothing that a cluster wrote may keep us from cleaning up.
                case["evidence"] = {"omitted": f"{type(error).__name__}: {one_line(error)}"}
            failed = case.get("outcome", Outcome.PASSED) not in {Outcome.PASSED, Outcome.DEVIATION}
            mode = self._settings["cleanup"]
            if mode == "never" or (mode == "on-success" and failed):
                facade.restore()
            else:
                facade.clean_up()
                self._dirty.discard(fleet.name)
            cluster.remove_pokes()

    def observe(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Find the outcome of a phase; with the last phase, attach the finished case to the report."""
        from pytest_hami.plugin import item_check

        error = call.excinfo.value if call.excinfo is not None else None
        loss = self._loss(None if report.skipped else error)
        if loss:
            self.lost = self.lost or f"the cluster is gone: {loss}"
            item.session.shouldstop = "hami: the cluster is gone"
            if report.failed:
                report.longrepr = f"hami: {self.lost}"
        cases.judge(item, call, report, lost=bool(self.lost), allowed=self._allowed)
        check = item_check(item)
        if check is None:
            return
        report.hami_check = check.id  # type: ignore[attr-defined]
        if report.when != "teardown":
            return
        record = cases.finished(item, check)
        report.hami_outcome = record["outcome"]  # type: ignore[attr-defined]
        report.hami_case = record  # type: ignore[attr-defined]
        if self._told:
            # With pytest-xdist only a worker has a cluster that it can ask.
            record["told"], self._told = self._told, {}
        if self._is_worker and not self._sent_declarations:
            self._sent_declarations = True
            record["declared"] = self._declared

    def record(self, case: dict[str, Any]) -> None:
        """Write a finished case to the stream, and refresh the report now and then."""
        for declaration in case.pop("declared", []):
            if declaration["id"] not in self._seen_checks:
                self._write(declaration)
        told = case.pop("told", None)
        if told and not self._written_told:
            self._written_told = True
            self._write({"kind": "release-told", **told})
        self._write(case)
        self._observed += Outcome(case["outcome"]) not in UNSEEN
        if time.monotonic() > self._next_build:
            self._build()

    def finish(self, exit_code: int) -> None:
        """Close the stream, end the cluster and write the report."""
        self.stop_cluster()
        if self._writer is None:
            return
        interrupted = bool(self.lost) or exit_code in INTERRUPTED
        self._write({"kind": "run-finished", "time": _now(), "exit_code": exit_code, "interrupted": interrupted})
        self._writer.close()
        self._build()

    @property
    def observed_nothing(self) -> bool:
        """Whether checks were selected and none of them could be observed."""
        return self._writer is not None and not self._observed

    def complain(self, text: str) -> None:
        """Keep one line for the summary."""
        self._complaints.append(" ".join(text.split())[:500])

    def stop_cluster(self) -> None:
        """End what this process started; safe to call twice."""
        self._cluster.stop()

    def print_summary(self, reporter: TerminalReporter) -> None:
        """Print verdict, what breaks it, and the place of the report."""
        for line in filter(None, [self.lost, *self._complaints]):
            reporter.write_line(f"hami: {line}", red=True)
        if self._report is None:
            return
        reporter.section("HAMi conformance", sep="=", bold=True)
        for check in self._report.checks:
            why = next((case.reason for case in check.cases if case.reason), "")
            if check.outcome is not Outcome.NOT_RUN and (check.outcome is not Outcome.PASSED or why):
                observed = (
                    f", {check.observed} of {len(check.cases)} cases" if check.observed < len(check.cases) else ""
                )
                text = f"{check.id} {check.outcome}{observed}: {check.title}" + (f" ({why})" if why else "")
                reporter.write_line(one_line(text))
        if self._report.doubt:
            reporter.write_line(one_line(self._report.doubt), yellow=True)
        reporter.write_line(self._report.verdict.sentence, bold=True)
        page = self.directory / "index.html"
        start = Path(self._config.invocation_params.dir)
        reporter.write_line(f"report: {page.relative_to(start) if page.is_relative_to(start) else page}")

    @property
    def directory(self) -> Path:
        """The directory of the report."""
        return Path(self._config.invocation_params.dir) / self._settings["report"]

    def _fleet_name(self, item: pytest.Item) -> str:
        return self._settings["fleet"] or self._declared_fleet(item) or DEFAULT_FLEET

    def _declared_fleet(self, item: pytest.Item) -> str:
        from pytest_hami.plugin import item_check

        mark = item.get_closest_marker("hami_fleet")
        check = item_check(item)
        return str(mark.args[0]) if mark and mark.args else (check.fleet if check else "")

    def _write(self, event: dict[str, Any]) -> None:
        if self._writer is None:
            from pytest_hami.report.stream import Writer

            try:
                self._writer = Writer(self.directory / "events.jsonl")
            except BlockingIOError:
                raise pytest.UsageError(f"--hami-report: another run writes to {self.directory} right now") from None
            except OSError as error:
                raise pytest.UsageError(f"--hami-report: cannot write {self.directory}: {error.strerror}") from None
            self._writer.write(self._started())
        if event["kind"] == "check-declared":
            self._seen_checks.add(event["id"])
        self._writer.write(event)

    def _started(self) -> dict[str, Any]:
        cluster = self._cluster
        return {
            "kind": "run-started",
            "time": _now(),
            "run_id": self.run_id,
            "suite": {"version": __version__, "commit": None},
            "proves": cluster.proves,
            "provider": cluster.provider,
            "lane": cluster.lane,
            "parts": [
                {"name": p.name, "state": str(p.state), "version": p.version, "digest": p.digest} for p in cluster.parts
            ],
            "release": cluster.release,
            "held_against": self._faced.why,
            "fleet": [
                {
                    "node": cluster.node_name(fleet, node.name),
                    "fleet": fleet.name,
                    "cards": [
                        {"uuid": c.uuid, "index": c.index, "type": c.type, "memory_mib": c.memory, "cores": c.cores}
                        for c in node.cards
                    ],
                }
                for fleet in itertools.chain(*self._fleets.values())
                for node in fleet.nodes
            ],
            "settings": [
                {"name": f"--hami-{s.name}", "value": s.value, "source": s.source} for s in self._settings.items
            ],
            "seed": _seed(self._config),
            "python": platform.python_version(),
            "platform": sys.platform,
            "mutants": list(self._settings.mutants),
            "arguments": [str(argument) for argument in self._config.invocation_params.args],
            "allowed": sorted(map(str, self._allowed)),
        }

    def _build(self) -> None:
        from pytest_hami.report.build import build

        started = time.monotonic()
        try:
            self._report = build(self.directory)
        except OSError as error:
            self.complain(f"--hami-report: cannot write {error.filename or self.directory}: {error.strerror}")
        now = time.monotonic()
        self._next_build = now + max(REBUILD_EVERY, REBUILD_SHARE * (now - started))

    def _fleet(self, name: str) -> fleets.Fleet:
        """Return the fleet, or that one of its copies that has rested longest."""
        if name not in self._fleets:
            # Asked for by name while a test runs, so nobody could know it after collection.
            self._fleets[name] = collections.deque([fleets.load(name)])
            self._cluster.provision(self._fleets[name])
        self._fleets[name].rotate(-1)
        return self._fleets[name][-1]

    def _loss(self, error: BaseException | None) -> str:
        """Return in one line why the cluster is gone, empty while it is there."""
        try:
            # A part that has ended explains every failure, also one that looks like a refuted claim.
            self._cluster.require_alive()
        except ClusterUnavailable as death:
            return one_line(death, 2000)
        return one_line(error) if error is not None and _is_loss(error) and not self._still_there(error) else ""

    def _still_there(self, error: BaseException) -> bool:
        from pytest_hami.kube.errors import ClusterLost

        # A journal that lost its cluster stays lost, whoever answers later.
        return not isinstance(error, ClusterUnavailable | ClusterLost) and self._cluster.answers()

    def _end_on_sigterm(self) -> None:
        def end(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, end)

    def _lose(self, error: BaseException) -> None:
        self.lost = one_line(error, 2000)
        pytest.exit(f"hami: {self.lost}", returncode=EXIT_CLUSTER)


def _is_loss(error: BaseException) -> bool:
    from pytest_hami.kube.errors import ClusterLost, Unreachable

    return isinstance(error, ClusterUnavailable | ClusterLost | Unreachable)


def _seed(config: pytest.Config) -> int | None:
    seed = config.getoption("randomly_seed", default=None)
    return seed if isinstance(seed, int) else None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
