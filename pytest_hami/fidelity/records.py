"""Reads evidence: JSON Lines, plain or packed with gzip, in the format of ``fixtures/evidence/README.md``."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pytest_hami.contract.releases import NEWEST, Release, ReleaseError
from pytest_hami.fidelity import scenario
from pytest_hami.fidelity.schema import SchemaError, check

_FOLDER = re.compile(r"hami-v?(\d+\.\d+\.\d+)")
_GZIP = b"\x1f\x8b"


class Kind(StrEnum):
    """What a record is about."""

    SCHEDULER = "scheduler"
    ALLOCATE = "allocate"
    PREFERRED = "preferred"
    FULL_CHAIN = "full-chain"
    REGISTER = "register"
    LIFECYCLE = "lifecycle"


class RecordError(ValueError):
    """A file that is no evidence; the text is one line that names file, line and field."""


@dataclass(frozen=True)
class Record:
    """One record: a line, or for ``LIFECYCLE`` all lines of one run of the device plugin.

    ``data`` is the line's object; of a run it is ``{"run": name, "events": [line, …]}``. A case of Allocate in mode mig has in
    ``earlier`` the cases of the same fleet right before it: they were made on one plugin, whose cards keep their instances.
    """

    kind: Kind
    id: str
    data: Mapping[str, Any]
    path: Path
    line: int


def release_of(path: Path, data: Mapping[str, Any] | None = None) -> Release:
    """Return the release that a record states, else that which a folder ``hami-X.Y.Z`` in the path names, else the newest.

    >>> str(release_of(Path("evidence/hami-2.9.0/random.jsonl.gz")))
    '2.9.0'
    """
    if data and "release" in data:
        return Release.parse(data["release"])
    for part in reversed(path.parts):
        match = _FOLDER.fullmatch(part)
        if match:
            return Release.parse(match[1])
    return Release.parse(NEWEST)


def kind_of(data: Mapping[str, Any]) -> Kind | None:
    """Return what kind of record an object is, None for none."""
    keys = data.keys()
    if "ev" in keys:
        return Kind.LIFECYCLE
    if "steps" in keys:
        return Kind.SCHEDULER
    if "case" not in keys:
        return None
    if "calls" in keys:
        return Kind.ALLOCATE
    if "requests" in keys:
        return Kind.PREFERRED
    return Kind.REGISTER if "fleet" in keys else Kind.FULL_CHAIN


def files_in(path: Path) -> list[Path]:
    """Return the files of evidence in a folder and below it, in order of their paths; a file gives itself.

    Raises RecordError for a folder without any.
    """
    if not path.is_dir():
        return [path]
    found = sorted({*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")})
    if not found:
        raise RecordError(f"{path}: expected files *.jsonl or *.jsonl.gz in this folder, seen none")
    return found


def read(path: Path) -> list[Record]:
    """Return the records of a file in its order. Raises RecordError."""
    records: list[Record] = []
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for number, line in _lines(path):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}:{number}: expected a JSON object on one line, seen {error}") from None
        kind = kind_of(data) if isinstance(data, dict) else None
        if kind is None:
            raise RecordError(
                f"{path}:{number}: expected a record with steps, case or ev, seen {_outline(data)}; "
                "the format is described in fixtures/evidence/README.md"
            )
        try:
            check(kind, data)
            release_of(path, data)
        except (SchemaError, ReleaseError) as error:
            raise RecordError(f"{path}:{number}: {error}") from None
        if kind is Kind.LIFECYCLE:
            if data["run"] not in runs:
                runs[data["run"]] = []
                whole = {"run": data["run"], "events": runs[data["run"]]}
                records.append(Record(kind, data["run"], whole, path, number))
            runs[data["run"]].append(data)
        else:
            if kind is Kind.ALLOCATE and _cuts_cards(data):
                earlier = records[-1].data if records and records[-1].kind is kind else {}
                if earlier.get("fleet") == data["fleet"]:
                    before = {key: value for key, value in earlier.items() if key != "earlier"}
                    data["earlier"] = [*(earlier.get("earlier") or ()), before]
            records.append(Record(kind, data["id" if kind is Kind.SCHEDULER else "case"], data, path, number))
    if not records:
        raise RecordError(f"{path}: expected records, one on each line, seen an empty file")
    return records


def read_inputs(path: Path) -> list[Record]:
    """Return the scenarios of a file, whether they hold observations or not. Raises RecordError."""
    records = []
    for number, line in _lines(path):
        try:
            data = json.loads(line)
            scenario.must(data, "", {})
            scenario.check_inputs(data)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}:{number}: {error}") from None
        records.append(Record(Kind.SCHEDULER, data["id"], data, path, number))
    if not records:
        raise RecordError(f"{path}: expected scenarios, one on each line, seen an empty file")
    return records


def _cuts_cards(data: Mapping[str, Any]) -> bool:
    configs = data["fleet"].get("node_config") or []
    return any(isinstance(config, dict) and config.get("operatingmode") == "mig" for config in configs)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    try:
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"{path}: expected a whole gzip file, seen {error}") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: expected UTF-8, seen {error.reason} at byte {error.start}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _outline(data: object) -> str:
    return (
        f"an object with {', '.join(sorted(data)[:6]) or 'nothing'}" if isinstance(data, dict) else type(data).__name__
    )
