"""What a record says of a plugin's settings and machine.

What it does not hold as data is read from ``what``, the sentence about the case, or from what was observed: NUMA nodes, links,
and whether CDI found a driver. Everything else must then follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_hami.contract.register import Placement, RegisterError, parse, parse_scores
from pytest_hami.contract.releases import Release
from pytest_hami.simulator.deviceplugin.machine import Card, Link, Machine, Profile
from pytest_hami.simulator.deviceplugin.settings import Settings, settings

NODE = "dp-node"
"""The node of the recordings where they name none."""
# NVML's numbers of GPU instance profiles, by the slices that names begin with.
_PROFILES = {0: "1g", 1: "2g", 2: "3g", 3: "4g", 4: "7g", 5: "8g", 6: "6g"}
_FAILURE = re.compile(r"(nvml\w+) fails with (\d+)")
_RESOURCE = re.compile(r"resourceCountName (\S+/\S+)")
_MOST_NVLINKS = 18


def settings_of(data: Mapping[str, Any], node: str) -> Settings:
    """Return what the plugin was started with. Raises StartError, Unmodelled."""
    fleet = data["fleet"]
    config = dict(fleet.get("device_config") or {})
    named = _RESOURCE.search(data.get("what", ""))
    if named:
        config.setdefault("resourceCountName", named[1])
    missing = fleet.get("node_config") is False or "no /config/config.json" in data.get("what", "")
    configs = None if missing else fleet.get("node_config") or []
    return settings(node, config, configs, fleet.get("flags") or (), fleet.get("env"))


def machine_of(data: Mapping[str, Any], release: Release, *, started: bool) -> Machine:
    """Return the plugin's machine; ``started`` tells that the plugin found what it needs for CDI."""
    fleet, what = data["fleet"], data.get("what", "")
    env = fleet.get("env") or {}
    lines = [line.split() for line in fleet.get("gpus") or ()]
    numa = _numa(data)
    cards = tuple(
        _card(number, line, raw, numa)
        for number, (line, raw) in enumerate(
            (line, raw) for line, raw in zip(lines, fleet.get("gpus") or (), strict=True) if line[0] == "gpu"
        )
    )
    failures = {line[1]: int(line[2]) for line in lines if line[0] == "fail"}
    failures |= {name: int(code) for name, code in _FAILURE.findall(what)}
    profiles = dict(_profile(line) for line in lines if line[0] == "migprofile")
    hooks = f"{env.get('HOOK_PATH', '/usr/local')}/vgpu"
    files = set(fleet.get("files") or ())
    if "license file" in what:
        files.add(f"{hooks}/license")
    if "versioned libvgpu.so" in what:
        files.add(f"{hooks}/libvgpu.so.v{release}")
    driver = next((line[1] for line in lines if line[0] == "driver"), "550.163.01")
    if started:
        files.add(f"libcuda.so.{driver}")
    told = {frozenset({int(line[1]), int(line[2])}): _link(line[3:]) for line in lines if line[0] == "link"}
    return Machine(
        cards,
        links=told or dict(_links(data, cards)),
        failures=failures,
        files=frozenset(files),
        nvml=env.get("LD_LIBRARY_PATH") != "",
        driver=driver,
        version=f"v{release}",
        **({"profiles": profiles} if profiles else {}),
    )


def _card(number: int, line: list[str], raw: str, numa: Mapping[str, int]) -> Card:
    head, _, name = raw.partition(" name=")
    told = dict(word.split("=", 1) for word in head.split()[2:])
    return Card(
        line[1],
        number,
        name or "NVIDIA Stub",
        int(told.get("mem", 16384)),
        numa.get(line[1]),
        int(told["minor"]) if "minor" in told else None,
        bool(int(told["mig"])) if "mig" in told else None,
    )


def _numa(data: Mapping[str, Any]) -> dict[str, int]:
    """Return the NUMA node of each card: none is known where no card and no hint has one."""
    given = data["fleet"].get("numa")
    if given is not None:
        return dict(given)
    try:
        found = {device.id: device.numa for device in parse(data.get("register") or "[]")}
    except RegisterError:
        return {}
    hinted = (data.get("devices") or {}).get("sample", {}).get("numa")
    return found if hinted or any(found.values()) else {}


def _profile(line: list[str]) -> tuple[str, Profile]:
    told = dict(word.split("=", 1) for word in line[2:])
    places = (place.split(":") for place in told.get("at", "").split(",") if place)
    return _PROFILES.get(int(line[1]), line[1]), Profile(
        int(told.get("mem", 4864)), int(told.get("slices", 1)), int(told.get("instances", 1)), int(told.get("sm", 14)),
        tuple(Placement(int(start), int(size)) for start, size in places),
    )  # fmt: skip


def _link(words: list[str]) -> Link:
    told = dict(word.split("=", 1) for word in words)
    return Link(int(told.get("level", 50)), int(told.get("nvlink", 0)), told.get("switch", "0") != "0")


def _links(data: Mapping[str, Any], cards: tuple[Card, ...]) -> Iterator[tuple[frozenset[int], Link]]:
    """Give the links that lead to the recorded scores, as far as links can."""
    try:
        scores = parse_scores(data.get("score") or "[]")
    except RegisterError:
        return
    levels = {60: 0, 50: 10, 40: 20, 30: 30, 20: 40, 10: 50}
    index = {card.uuid: card.index for card in cards}
    for uuid, peers in scores.items():
        for peer, score in peers.items():
            nvlinks, level = divmod(score, 100)
            if level in levels and nvlinks <= _MOST_NVLINKS and {uuid, peer} <= index.keys():
                yield frozenset({index[uuid], index[peer]}), Link(levels[level], nvlinks)
