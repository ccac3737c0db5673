"""``pytest-hami record``: what a real HAMi scheduler does, in the format of fixtures/evidence/README.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hami.cli.exits import EXIT_CLUSTER, EXIT_DISAGREEMENT, usage

if TYPE_CHECKING:
    from pytest_hami.record.recorder import Recorder

SHOWN = 10


def add(commands: Any) -> None:
    """Add the command to argparse's sub-commands."""
    record = commands.add_parser("record", help="write down what a real HAMi scheduler does, as new evidence")
    record.add_argument("--hami-scheduler", metavar="PATH", help="the HAMi scheduler to record [env HAMI_SCHEDULER]")
    record.add_argument(
        "--hami-assets", metavar="DIR",
        help="directory of etcd, kube-apiserver and kube-scheduler to record with [env HAMI_ASSETS or KUBEBUILDER_ASSETS]",
    )  # fmt: skip
    source = record.add_mutually_exclusive_group(required=True)
    source.add_argument("--scenarios", metavar="FILE", type=Path, help="scenarios to play; observations are ignored")
    source.add_argument("--random", metavar="N", type=int, help="make N scenarios up")
    record.add_argument(
        "--seed", metavar="S", type=int, default=0, help="with --random: seed of the first (default: 0)"
    )
    record.add_argument(
        "--compare", action="store_true", help="with --scenarios: hold the observations against the file's"
    )
    record.add_argument("-o", "--output", metavar="OUT.jsonl", type=Path, help="where to write the records")
    record.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pytest_hami.cluster.base import ClusterUnavailable, CommandRefused
    from pytest_hami.cluster.composition import CompositionRefused
    from pytest_hami.contract.metrics import MetricsError
    from pytest_hami.fidelity.records import RecordError
    from pytest_hami.kube.errors import ApiError, ClusterLost, HostileInput, Unreachable
    from pytest_hami.kube.wait import WaitTimeout
    from pytest_hami.record.recorder import recorder
    from pytest_hami.text import one_line

    if arguments.output is None and not arguments.compare:
        return usage("record: expected -o OUT.jsonl, or --compare")
    if arguments.compare and arguments.scenarios is None:
        return usage("record: --compare needs --scenarios FILE")
    try:
        programs = _programs(arguments)
        scenarios = _scenarios(arguments)
    except (ValueError, RecordError) as error:
        return usage(str(error))
    try:
        with recorder(programs) as found:
            return _record(found, scenarios, arguments.output, arguments.compare)
    except CompositionRefused as error:
        return usage(str(error))
    except (
        ClusterUnavailable, CommandRefused, ClusterLost, Unreachable, HostileInput, ApiError, WaitTimeout, MetricsError,
    ) as error:  # fmt: skip
        print(f"pytest-hami: {one_line(error, 1000)}", file=sys.stderr)
        return EXIT_CLUSTER
    except OSError as error:
        return usage(f"{arguments.output}: {error.strerror or error}")


def _programs(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the programs to record with. Raises ValueError for one that is missing or cannot be one."""
    from pytest_hami import settings

    found = settings.of_environment()
    for name in ("scheduler", "assets"):
        given = getattr(arguments, f"hami_{name}")
        if given:
            found[name] = settings.Setting(name, given, "option", f"--hami-{name}")
    if "scheduler" not in found:
        raise ValueError("record: expected --hami-scheduler PATH or HAMI_SCHEDULER: a model is no evidence")
    for name in ("scheduler", "assets"):
        if name in found and (wrong := settings.complaint(found[name])):
            raise ValueError(f"{found[name].place}: {wrong}")
    paths = settings.assets_in(found["assets"].value) if "assets" in found else {}
    paths["hami-scheduler"] = found["scheduler"].value
    return {name: Path(path).resolve() for name, path in paths.items()}


def _scenarios(arguments: argparse.Namespace) -> list[Mapping[str, Any]]:
    from random import Random

    from pytest_hami.fidelity import records
    from pytest_hami.record.generate import scenario

    if arguments.scenarios is not None:
        return [one.data for one in records.read_inputs(arguments.scenarios)]
    if arguments.random < 1:
        raise ValueError(f"--random: expected a number above 0, got {arguments.random}")
    seeds = range(arguments.seed, arguments.seed + arguments.random)
    return [{**scenario(Random(number), f"r{number:05}"), "seed": number} for number in seeds]


def _record(recorder: Recorder, scenarios: Iterable[Mapping[str, Any]], output: Path | None, compares: bool) -> int:
    from pytest_hami.record.compare import Comparison, compare
    from pytest_hami.text import one_line

    compared: dict[str, Comparison] = {}
    count = steps = 0
    file = output.open("w", encoding="utf-8") if output else None
    try:
        for scenario in scenarios:
            found = recorder.record(scenario)
            count, steps = count + 1, steps + len(found["steps"])
            if file:
                file.write(json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n")
            if compares:
                compared[str(scenario["id"])] = compare(scenario, found)
    finally:
        if file:
            file.close()
    where = f" in {output}" if output else ""
    print(f"{count} scenarios, {steps} steps of HAMi {recorder.version} recorded{where}")
    if not compares:
        return 0
    differences = [one for comparison in compared.values() for one in comparison.differences]
    for one in differences[:SHOWN]:
        print(f"{one_line(one.scenario)}: {one_line(one.where)}")
        print(f"    first:  {one_line(one.first, 400)}")
        print(f"    second: {one_line(one.second, 400)}")
    for chance, number in Counter(one.chance for one in compared.values() if one.chance).items():
        ids = ", ".join(name for name, one in compared.items() if one.chance == chance)
        print(f"{number} scenarios went another way by {chance}: {ids}")
    observations = sum(one.observations for one in compared.values())
    print(f"{observations} observations compared, {len(differences)} differences")
    return EXIT_DISAGREEMENT if differences else 0
