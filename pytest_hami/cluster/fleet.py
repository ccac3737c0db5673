"""Fleets: nodes and cards as data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_hami import resources

MAX_BYTES = 1 << 20
MAX_COUNT = 1000
_NODE_KEYS = {"name", "count", "cards", "labels", "annotations", "taints"}
MODES = ("hami-core", "mig", "mps")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# A node is called <fleet>-<node>, with a generation once a fleet was renewed; 63 characters are a label's limit.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,24}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_CARD_KEYS = {"count", "model", "memory", "cores", "split", "numa", "mode", "uuids"}


class FleetError(ValueError):
    """A fleet name or file that cannot be used; the text is one line with file and line."""


@dataclass(frozen=True)
class Card:
    """One GPU: memory in MiB, cores in percent of a card, ``split`` shares."""

    uuid: str
    index: int
    type: str
    memory: int
    cores: int = 100
    split: int = 10
    numa: int = 0
    mode: str = "hami-core"


@dataclass(frozen=True)
class FleetNode:
    """One node of a fleet; ``taints`` as ``key=value:Effect``."""

    name: str
    cards: tuple[Card, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    def to_create(self, name: str, fleet: str) -> dict[str, Any]:
        """Return this node as the simulator creates it, under ``name`` and with the label of its ``fleet``."""
        taints = []
        for text in self.taints:
            pair, _, effect = text.rpartition(":")
            key, _, value = pair.partition("=")
            taints.append({"key": key, "effect": effect, **({"value": value} if value else {})})
        return {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "pytest-hami.io/fleet": fleet,
                **({"gpu": "on"} if self.cards else {}),
                **self.labels,
            },
            "annotations": self.annotations,
            "taints": taints,
            "devices": [
                {
                    "id": card.uuid, "index": card.index, "count": card.split, "devmem": card.memory,
                    "devcore": card.cores, "type": card.type, "numa": card.numa, "mode": card.mode, "health": True,
                }
                for card in self.cards
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """A named set of nodes."""

    name: str
    nodes: tuple[FleetNode, ...]

    def shape(self) -> tuple[tuple[tuple[str, int, int, int], ...], ...]:
        """Return what a check can rely on: per node the type, MiB, cores and shares of each card."""
        return tuple(tuple((c.type, c.memory, c.cores, c.split) for c in node.cards) for node in self.nodes)

    def copies(self, count: int) -> tuple[Fleet, ...]:
        """Return this fleet and equal ones, ``count`` in all, with names and card UUIDs of their own."""
        return self, *(self._copy(f"{self.name}-{number}") for number in range(2, count + 1))

    def _copy(self, name: str) -> Fleet:
        nodes = (
            replace(n, cards=tuple(replace(c, uuid=stable_uuid(name, n.name, c.index)) for c in n.cards))
            for n in self.nodes
        )
        return Fleet(name, tuple(nodes))


def stable_uuid(*parts: object) -> str:
    """Return a GPU UUID made of ``parts``: the same parts give the same card.

    >>> stable_uuid("seed-002", "w1", 0)
    'GPU-dc3fb44e-0b84-cfb6-3f7f-a992ecc3179e'
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def load(name_or_path: str) -> Fleet:
    """Return a shipped fleet by name, or the fleet in a YAML file. Raises FleetError."""
    shipped = resources.fleet_files()
    if name_or_path in shipped:
        return parse(shipped[name_or_path].read_bytes(), name_or_path, str(shipped[name_or_path]))
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or "/" in name_or_path:
        try:
            with path.open("rb") as file:
                return parse(file.read(MAX_BYTES + 1), path.stem, name_or_path)
        except OSError as error:
            raise FleetError(f"{name_or_path}: cannot be read: {error.strerror}") from None
    raise FleetError(f"unknown fleet {name_or_path!r}; shipped are {', '.join(shipped)}; a file needs a .yaml ending")


def parse(data: bytes, name: str, source: str) -> Fleet:
    """Return the fleet in ``data``; ``source`` names it in errors. Raises FleetError with the line."""
    import yaml

    if len(data) > MAX_BYTES:
        raise FleetError(f"{source}: a fleet file has at most {MAX_BYTES} bytes, this one has more")
    if not _NAME.fullmatch(name):
        raise FleetError(
            f"{source}: a fleet is called after its file: up to 26 lower-case letters, digits and dashes, got {name[:80]!r}"
        )
    try:
        loader = yaml.SafeLoader(data)
        try:
            root = loader.get_single_node()
            for event in yaml.parse(data, Loader=yaml.SafeLoader):
                if isinstance(event, yaml.AliasEvent):
                    number = event.start_mark.line + 1 if event.start_mark else 1
                    raise FleetError(f"{source}:{number}: YAML aliases are not allowed in a fleet file")
            _refuse_repeated_keys(root, source)
            document = loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise FleetError(f"{source}{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, FleetError):
            raise
        raise FleetError(f"{source}: not YAML: {str(error).splitlines()[0]}") from None
    lines = _node_lines(root)
    if not isinstance(document, dict) or set(document) != {"nodes"} or not isinstance(document["nodes"], list):
        raise FleetError(f"{source}:1: expected one key 'nodes' with a list of nodes")
    groups = [
        _nodes(raw, name, f"{source}:{lines[i] if i < len(lines) else 1}") for i, raw in enumerate(document["nodes"])
    ]
    nodes = [(node, place) for place, group in enumerate(groups) for node in group]
    names = [(node.name, place) for node, place in nodes]
    uuids = [(card.uuid, place) for node, place in nodes for card in node.cards]
    for what, values in (("node name", names), ("card UUID", uuids)):
        seen: set[str] = set()
        for value, place in values:
            if value in seen:
                raise FleetError(f"{source}:{lines[place]}: {what} {value!r} occurs twice; HAMi keys everything by it")
            seen.add(value)
    if not uuids:
        raise FleetError(f"{source}: no node has cards")
    return Fleet(name, tuple(node for node, _ in nodes))


def _refuse_repeated_keys(node: Any, source: str) -> None:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, source)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen if isinstance(key, yaml.ScalarNode) else False:
                raise FleetError(f"{source}:{key.start_mark.line + 1}: key {key.value!r} occurs twice")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
            _refuse_repeated_keys(value, source)


def _node_lines(root: Any) -> list[int]:
    if root is None or not hasattr(root, "value") or not isinstance(root.value, list):
        return []
    for pair in root.value:
        if isinstance(pair, tuple) and getattr(pair[0], "value", None) == "nodes":
            return [item.start_mark.line + 1 for item in getattr(pair[1], "value", []) if hasattr(item, "start_mark")]
    return []


def _nodes(raw: Any, fleet: str, where: str) -> list[FleetNode]:
    """Return the node of an entry, or ``count`` nodes whose names end in a number."""
    if not isinstance(raw, dict) or "count" not in raw:
        return [_node(raw, fleet, where)]
    count = _integer(raw, "count", None, 1, MAX_COUNT, where)
    rest = {key: value for key, value in raw.items() if key != "count"}
    return [_node({**rest, "name": f"{raw.get('name', '')}{number}"}, fleet, where) for number in range(1, count + 1)]


def _node(raw: Any, fleet: str, where: str) -> FleetNode:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise FleetError(f"{where}: expected a node with a name")
    if not _NAME.fullmatch(raw["name"]):
        raise FleetError(
            f"{where}: a node name has up to 26 lower-case letters, digits and dashes, got {raw['name'][:80]!r}"
        )
    unknown = sorted(map(str, set(raw) - _NODE_KEYS))
    if unknown:
        raise FleetError(f"{where}: unknown key {unknown[0]!r} in a node; known are {', '.join(sorted(_NODE_KEYS))}")
    cards: list[Card] = []
    groups = raw.get("cards") or []
    for group in groups if isinstance(groups, list) else [groups]:
        cards.extend(_cards(group, fleet, raw["name"], len(cards), where))
    maps = {key: raw.get(key) or {} for key in ("labels", "annotations")}
    for key, value in maps.items():
        if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
            raise FleetError(f"{where}: {key} must map text to text")
        for k, v in value.items():
            if not _LABEL_KEY.fullmatch(k) or (key == "labels" and not _LABEL_VALUE.fullmatch(v)):
                raise FleetError(f"{where}: {key}: Kubernetes takes no {k[:80]!r}: {v[:80]!r}")
    taints = raw.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(t, str) and ":" in t for t in taints):
        raise FleetError(f"{where}: taints must be a list of key=value:Effect")
    for taint in taints:
        pair, _, effect = taint.rpartition(":")
        if effect not in EFFECTS or not _LABEL_KEY.fullmatch(pair.partition("=")[0]):
            raise FleetError(
                f"{where}: taint {taint[:80]!r}: expected key=value:Effect, an effect of {', '.join(EFFECTS)}"
            )
    return FleetNode(raw["name"], tuple(cards), maps["labels"], maps["annotations"], tuple(taints))


def _cards(group: Any, fleet: str, node: str, start: int, where: str) -> list[Card]:
    if not isinstance(group, dict):
        raise FleetError(f"{where}: cards must be a mapping or a list of mappings")
    unknown = sorted(map(str, set(group) - _CARD_KEYS))
    if unknown:
        raise FleetError(f"{where}: unknown key {unknown[0]!r} in cards; known are {', '.join(sorted(_CARD_KEYS))}")
    model = group.get("model")
    if not isinstance(model, str) or "nvidia" not in model.lower():
        raise FleetError(f"{where}: cards need a model whose name contains NVIDIA, got {model!r}")
    count = _integer(group, "count", 1, 1, 64, where)
    memory = _integer(group, "memory", None, 1, (1 << 31) - 1, where)
    numa = group.get("numa", 0)
    numas = numa if isinstance(numa, list) else [numa] * count
    uuids = group.get("uuids") or [stable_uuid(fleet, node, start + i) for i in range(count)]
    if not isinstance(uuids, list) or len(numas) != count or len(uuids) != count:
        raise FleetError(f"{where}: numa and uuids need one entry for each of the {count} cards")
    for number in numas:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 255:
            raise FleetError(f"{where}: numa must be a whole number from 0 to 255, got {number!r}")
    mode = group.get("mode", "hami-core")
    if mode not in MODES:
        raise FleetError(f"{where}: mode must be one of {', '.join(MODES)}, got {mode!r}")
    for uuid in uuids:
        if not isinstance(uuid, str) or not uuid or any(c in uuid for c in ",:; "):
            raise FleetError(f"{where}: card UUID {uuid!r} must be text without comma, colon, semicolon and blank")
    return [
        Card(
            uuid=uuids[i], index=start + i, type=model, memory=memory, numa=numas[i],
            cores=_integer(group, "cores", 100, 0, 10_000, where), split=_integer(group, "split", 10, 1, 1000, where),
            mode=mode,
        )
        for i in range(count)
    ]  # fmt: skip


def _integer(group: dict[str, Any], key: str, default: int | None, low: int, high: int, where: str) -> int:
    value = group.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FleetError(f"{where}: {key} must be a whole number from {low} to {high}, got {value!r}")
    return value
