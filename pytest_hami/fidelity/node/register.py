"""Replays a start of the device plugin: what it registered with kubelet and wrote on its node, or how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_hami.contract.register import Device, RegisterError, encode, parse
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.node.findings import Findings
from pytest_hami.fidelity.node.fleet import NODE, machine_of, settings_of
from pytest_hami.fidelity.node.memory import Memory
from pytest_hami.fidelity.outcome import Replayed
from pytest_hami.simulator.deviceplugin.plugin import DevicePlugin
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Unmodelled

KIND = "register"
_HEADER = re.compile(r"^[EIWF]\d{4} \S+\s+\d+ \S+\] ")
_WAITS = "No devices found. Waiting indefinitely."


def replay(data: Mapping[str, Any], release: Release, rules: type[NodeRules] = NodeRules) -> Replayed:
    """Return what the model makes of a record ``register``."""
    found = Findings(data["case"], KIND)
    env = data["fleet"].get("env") or {}
    node = env.get("NODE_NAME", data["fleet"].get("node") or _node(data))
    missing = str(data.get("no_registration") or "")
    try:
        settings = settings_of(data, node)
        machine = machine_of(data, release, started="registration" in data or "devices" in data)
        plugin = DevicePlugin(settings, machine, Memory(node), rules())
    except Unmodelled as error:
        found.disagree("settings", f"a rule for {error}", "none")
        return found.result()
    # The recorder waits for one resource; of another one it hears nothing.
    if not missing or missing.startswith(f"{settings.resource}:"):
        found.same("registered with kubelet", plugin.registered, not missing or "no device list" in missing)
    died = plugin.exit is not None and plugin.exit.code == 2
    if "registration" in data:
        found.same("registration", _registration(plugin), data["registration"])
    if "options_rpc" in data:
        found.same("options", {"get_preferred_allocation_available": True}, data["options_rpc"])
    if "devices" in data:
        _same_list(found, plugin, data["devices"])
    elif plugin.registered and not missing and not died:
        found.disagree("device list", "none", f"{len(plugin.shares())} shares")
    _same_annotations(found, plugin, data, written="NODE_NAME" not in env and "KUBECONFIG" not in env)
    if "alive" in data:
        found.same("alive", plugin.alive, data["alive"])
        found.same("exit code", plugin.exit and plugin.exit.code, data.get("rc"))
    words = plugin.exit.words if plugin.exit else _WAITS if not plugin.advertises else None
    if words is not None and "log_tail" in data:
        found.same("last words", words, _last_words(data["log_tail"]))
    return found.result()


def _node(data: Mapping[str, Any]) -> str:
    return NODE if data else ""


def _registration(plugin: DevicePlugin) -> dict[str, Any]:
    resource = plugin.settings.resource
    return {
        "version": "v1beta1",
        "endpoint": f"nvidia-{resource.rpartition('/')[2]}.sock",
        "resource_name": resource,
        "options": {"get_preferred_allocation_available": True} if plugin.settings.prefers else {},
    }


def _same_list(found: Findings, plugin: DevicePlugin, recorded: Mapping[str, Any]) -> None:
    shares = {share.id: share for share in plugin.shares()}
    ids = sorted(shares)
    seen: dict[str, Any] = {"count": len(ids)}
    if ids:
        first = shares[ids[0]]
        sample = {"health": "Healthy" if first.healthy else "Unhealthy", "numa": list(first.numa)}
        seen |= {"first": ids[0], "last": ids[-1], "sample": sample}
    found.same("device list", {key: value for key, value in seen.items() if key in recorded}, dict(recorded))


def _same_annotations(found: Findings, plugin: DevicePlugin, data: Mapping[str, Any], *, written: bool) -> None:
    recorded = data.get("register")
    if plugin.exit is not None or not plugin.advertises or not written:
        found.same("register annotation", None, recorded)
        found.same("score annotation", None, data.get("score"))
        return
    devices = in_order_of(recorded, plugin.devices())
    found.same("register annotation", encode(devices), recorded)
    found.placements += len(devices)
    if "score" in data:
        found.same("score annotation", plugin.scores(devices), data["score"])


def in_order_of(text: str | None, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the cards in the order of a recorded annotation, which is chance."""
    try:
        order = [device.id for device in parse(text or "[]")]
    except RegisterError:
        return devices
    return tuple(sorted(devices, key=lambda one: order.index(one.id) if one.id in order else len(order)))


def _last_words(tail: list[str]) -> str:
    return _HEADER.sub("", next((line for line in reversed(tail) if line.strip()), ""))
