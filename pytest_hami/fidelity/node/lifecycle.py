"""Replays one run of a device plugin: its scans, what it heard of cards, its restarts, and its end.

A scan writes the cards in a random order, and only what differs from the text that its own loop wrote last. So an observed change
must be one that a scan of that moment may have made, and a change that a scan had to make must have been observed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_hami.contract.register import Device, encode, parse
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.node.findings import Findings
from pytest_hami.fidelity.node.memory import Memory
from pytest_hami.fidelity.outcome import Replayed
from pytest_hami.simulator.deviceplugin.machine import Card, Machine
from pytest_hami.simulator.deviceplugin.process import PluginProcess, Scan
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings

KIND = "lifecycle"
Content = frozenset[Any]
"""What an annotation says of its cards, whatever their order."""
Event = Mapping[str, Any]


def replay(data: Mapping[str, Any], release: Release, rules: type[NodeRules] = NodeRules) -> Replayed:
    """Return what the model makes of a run ``{"run": name, "events": [line, …]}``."""
    run = _Run(data, rules())
    run.play()
    return run.found.result()


class _Fleet:
    """The cards of a run as its own first events tell them."""

    def __init__(self, events: Sequence[Event]) -> None:
        texts = [event["text"] for event in events if event.get("text")]
        lists = [event["devs"] for event in events if event.get("devs")]
        self.devices = parse(texts[0]) if texts else self._labelled(events)
        self.shares = len(lists[0]) // max(len(self.devices), 1) if lists else 1

    @staticmethod
    def _labelled(events: Sequence[Event]) -> tuple[Device, ...]:
        """Return cards of a run that tells only a short name of each; the names follow the indexes."""
        labels = next((sorted(event["order"]) for event in events if event.get("order")), [])
        return tuple(
            Device(f"GPU-{label}", index, 1, 1, 100, "NVIDIA", health=True) for index, label in enumerate(labels)
        )

    @property
    def settings(self) -> Settings:
        """What the plugin was started with, as far as it shows."""
        first = self.devices[0] if self.devices else Device(devcore=100)
        return Settings("node", first.mode, self.shares, 1.0, first.devcore / 100)

    @property
    def machine(self) -> Machine:
        """The cards at the start."""
        return Machine(tuple(Card(one.id, one.index, one.type, one.devmem, one.numa) for one in self.devices))


class _Run:
    def __init__(self, data: Mapping[str, Any], rules: NodeRules) -> None:
        self.found = Findings(data["run"], KIND)
        self._events: Sequence[Event] = data["events"]
        self._fleet = _Fleet(self._events)
        self._machine = self._fleet.machine
        self._labelled = not any(event.get("text") for event in self._events)
        first = self._events[0]["t"]
        self._process = PluginProcess(self._fleet.settings, self._machine, Memory("node"), rules, max(first - 0.2, 0.0))
        self._written: dict[int, Content] = {}
        self._done: set[tuple[int, float]] = set()
        self._annotation: Content | None = None
        self._had_to = 0
        self._dying: Scan | None = None

    def play(self) -> None:
        """Go through the events."""
        for number, event in enumerate(self._events, 1):
            self.found.step, self.found.where = number, f"event {number} at {event['t']} s"
            if self._dying is None:
                self._scan(event, number)
            handler = next((handler for form, handler in _EVENTS if form.fullmatch(event["ev"])), None)
            if handler is None:
                self.found.disagree("kind", f"a rule for the event {event['ev']!r}", "none")
            else:
                handler(self, event)

    def _scan(self, event: Event, number: int) -> None:
        """Let the scans come that must be over by now, and see that what they had to write was seen."""
        for scan in sorted(self._process.scans(event["t"]), key=lambda one: one.earliest):
            if (scan.loop, scan.earliest) in self._done or scan.latest > event["t"]:
                continue
            self._over(scan, number)

    def _over(self, scan: Scan, number: int) -> None:
        self._done.add((scan.loop, scan.earliest))
        devices = self._process.content(scan)
        if devices is None:
            self._dying = scan
            return
        content = self._content(devices)
        if self._written.get(scan.loop) == content:
            return
        self._written[scan.loop] = content
        self._had_to += 1
        if content != self._annotation and not self._seen(scan, content, number):
            self.found.disagree(
                "annotation", "unchanged", f"changed to {_shown(content)} between {scan.earliest} and {scan.latest} s"
            )

    def _seen(self, scan: Scan, content: Content, number: int) -> bool:
        """Return whether the run has such a change at the time of a scan, or another loop's that covers it."""
        near = [one for one in self._events if scan.earliest <= one["t"] <= scan.latest + 1 and _changes(one)]
        others = [
            one for one in self._process.scans(scan.latest + 1) if one.loop != scan.loop and one.latest >= scan.earliest
        ]
        return any(self._told(one) == content for one in near) or bool(others)

    def _content(self, devices: frozenset[Device]) -> Content:
        if self._labelled:
            return frozenset((device.id.removeprefix("GPU-"), device.health) for device in devices)
        return frozenset(encode([device]) for device in devices)

    def _told(self, event: Event) -> Content | None:
        """Return what an observed change says."""
        if self._labelled:
            return frozenset((label, label in event["healthy"]) for label in event["order"])
        return None if event.get("text") is None else frozenset(encode([device]) for device in parse(event["text"]))

    def changed(self, event: Event) -> None:
        """Take an observed change of the annotation."""
        told = self._told(event)
        if told is None:
            self.found.same("annotation", None if self._annotation is None else _shown(self._annotation), None)
            return
        if not self._labelled:
            devices = parse(event["text"])
            self.found.same("text", encode(devices), event["text"])
            self._short_forms(event, devices)
        scans = [scan for scan in self._process.scans(event["t"]) if event["t"] <= scan.latest + 1]
        able = [
            scan for scan in scans if (made := self._process.content(scan)) is not None and self._content(made) == told
        ]
        contents = [self._content(made) for scan in scans if (made := self._process.content(scan)) is not None]
        self.found.comparisons += 1
        self.found.placements += len(told)
        if not able:
            self.found.disagree("annotation", _shown(told), " or ".join(map(_shown, contents)) or "unchanged")
        for scan in able[:1]:
            if (scan.loop, scan.earliest) not in self._done:
                self._done.add((scan.loop, scan.earliest))
                self._had_to += self._written.get(scan.loop) != told
                self._written[scan.loop] = told
        self._annotation = told

    def _short_forms(self, event: Event, devices: Sequence[Device]) -> None:
        order = event.get("order")
        if order:
            width = len(order[0])
            self.found.same("order", [device.id[4 : 4 + width] for device in devices], order)
        if event.get("health") is not None:
            self.found.same("health", [device.health for device in devices], event["health"])

    def deleted(self, event: Event) -> None:
        """Take away the annotation, as the recorder did."""
        self._annotation = None

    def listed(self, event: Event) -> None:
        """Compare a device list."""
        shares = {share.id: "Healthy" if share.healthy else "Unhealthy" for share in self._process.plugin.shares()}
        self.found.same("device list", shares, event["devs"])

    def restarted(self, event: Event) -> None:
        """Start the plugin anew; what kubelet then knows is compared."""
        self._process.restart(event["t"])
        if "devs" in event:
            self.listed(event)
        self.unhealthy(event)

    def emitted(self, event: Event) -> None:
        """Deliver a line of the stand-in for NVML."""
        words = event["line"].split()
        numbers = [int(word) for word in words[1:]]
        if words[0] == "xid":
            self._process.event(numbers[0], 8, numbers[1])
        elif words[0] == "event":
            self._process.event(*numbers)
        elif words[0] == "error":
            self._process.deaf()
        else:
            self.found.disagree("kind", f"a rule for the line {event['line']!r}", "none")

    def xid(self, event: Event) -> None:
        """Deliver an XID that the event itself tells, of a card by its short name."""
        match = re.fullmatch(r"xid (\d+) on card (\w+)", event["ev"])
        assert match is not None
        card = next((one for one in self._fleet.devices if one.id.startswith(f"GPU-{match[2]}")), None)
        self._process.event(card.index if card else -1, 8, int(match[1]))

    def unhealthy(self, event: Event) -> None:
        """Compare which shares kubelet knows to be unhealthy, and how many lists it got."""
        bad = sorted(share.id for share in self._process.plugin.shares() if not share.healthy)
        for name in ("bad", "kubelet_unhealthy"):
            if name in event:
                told = event[name]
                self.found.same(name, len(bad) if isinstance(told, int) else bad, told)
        if "updates" in event and "bad" in event:
            self.found.same("device lists", self._process.lists, event["updates"])

    def counted(self, event: Event) -> None:
        """Compare how many scans there were and how many of them wrote: as many as had to at least, all at most."""
        window = re.search(r"in (\d+) s", event["ev"])
        since = event["t"] - float(window[1]) if window else 0.0
        scans = [scan for scan in self._process.scans(event["t"]) if scan.latest >= since]
        most = len(scans)
        least = sum(scan.latest <= event["t"] and scan.earliest >= since for scan in scans)
        counts = list(range(least, most + 1))
        self.found.same("scans", event["n"] if event["n"] in counts else counts, event["n"])
        if "updates" in event:
            writes = list(range(0 if window else self._had_to, event["n"] + 1))
            self.found.same("writes", event["updates"] if event["updates"] in writes else writes, event["updates"])
        self.unhealthy({key: value for key, value in event.items() if key == "kubelet_unhealthy"})

    def all_healthy(self, event: Event) -> None:
        """Compare that the annotation has healthy cards only."""
        self.found.same("unhealthy cards in the annotation", self._sick(), 0)

    def some_unhealthy(self, event: Event) -> None:
        """Compare that the annotation has unhealthy cards."""
        self.found.same("unhealthy cards in the annotation", self._sick() > 0, True)

    def _sick(self) -> int:
        told = self._annotation or frozenset()
        return sum(not one[1] if self._labelled else not parse(one)[0].health for one in told)

    def edited(self, event: Event) -> None:
        """Change the machine as the event says."""
        cards = self._machine.cards
        for edit in event["ev"].removeprefix("fleet edited: ").split(", "):
            if edit == "memory doubled":
                cards = tuple(replace(card, memory=card.memory * 2) for card in cards)
            elif match := re.fullmatch(r"card (\w+) removed", edit):
                gone = _card(match[1], self._fleet.devices)
                cards = tuple(card for card in cards if card.uuid != gone)
            elif not edit.endswith("card added"):
                self.found.disagree("kind", f"a rule for the edit {edit!r}", "none")
        self._machine = Machine(cards)
        self._process.edit(self._machine)

    def after_edit(self, event: Event) -> None:
        """Compare the number of shares and of registered cards."""
        self.found.same("shares", len(self._process.plugin.shares()), event["devices"])
        self.found.same("registered cards", len(self._annotation or ()), event["n"])

    def died(self, event: Event) -> None:
        """Compare that the process ended with a scan after a card had gone."""
        scans = [scan for scan in self._process.scans(event["t"]) if event["t"] <= scan.latest + 1]
        fatal = self._dying or next((scan for scan in scans if self._process.content(scan) is None), None)
        self._dying = fatal
        self.found.same("exit code", self._code(), event["rc"])
        words = [line for line in event.get("tail") or [] if line.strip()]
        if words and fatal is not None:
            end = self._process.loops[fatal.loop].exit
            self.found.same("last words", end and end.words, words[-1])

    def stopped(self, event: Event) -> None:
        """Compare the exit code after the recorder's signal."""
        self.found.same("exit code", self._code(), event["rc"])

    def started(self, event: Event) -> None:
        """Compare how many loops were begun."""
        self.found.same("loops", self._process.starts, event["n"])
        if "rc" in event:
            self.stopped(event)

    def _code(self) -> int:
        return 0 if self._dying is None else 2

    def nothing(self, event: Event) -> None:
        """Take an event that tells only what the recorder did."""


def _card(name: str, devices: Sequence[Device]) -> str:
    """Return the UUID of a card by letter (A is index 0), index, or the beginning of its UUID."""
    for device in devices:
        if name in (chr(ord("A") + device.index), device.id) or device.id.startswith(f"GPU-{name}"):
            return device.id
    return ""


def _changes(event: Event) -> bool:
    return event["ev"] in ("register annotation changed", "annotation") and event.get("order") is not None


def _shown(content: Content) -> str:
    return ", ".join(sorted(str(one) for one in content))


Handler = Callable[[_Run, Event], None]
_EVENTS: Sequence[tuple[re.Pattern[str], Handler]] = [
    (re.compile(form), handler)
    for form, handler in {
        "first list": _Run.listed,
        "register annotation changed|annotation": _Run.changed,
        "annotation deleted by test": _Run.deleted,
        "scans so far|scans|scans in \\d+ s": _Run.counted,
        "emit": _Run.emitted,
        "xid \\d+ on card \\w+": _Run.xid,
        "after xid \\d+|.* event on card \\d+|event wait error: all unhealthy": _Run.unhealthy,
        "health gone from annotation": _Run.some_unhealthy,
        "annotation healthy again": _Run.all_healthy,
        "kubelet stopped": _Run.nothing,
        "kubelet restarted; plugin registered again|SIGHUP: registered again|kubelet restart": _Run.restarted,
        "fleet edited: .*": _Run.edited,
        "after fleet edit": _Run.after_edit,
        "after card removal": _Run.died,
        "WatchAndRegister started": _Run.started,
        "stop": _Run.stopped,
    }.items()
]
