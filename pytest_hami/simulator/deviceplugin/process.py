"""The life of a plugin's process: starts, restarts within it, scan loops that outlive them, bad news about cards.

Source: HAMi 2.10.0, cmd/device-plugin/nvidia/main.go, pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go
(WatchAndRegister) and rm/health.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_hami.contract.register import Device
from pytest_hami.simulator.deviceplugin.machine import Machine
from pytest_hami.simulator.deviceplugin.objects import Objects
from pytest_hami.simulator.deviceplugin.plugin import DevicePlugin, PluginDied
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings

SCAN = 30.0
"""Seconds between the end of a scan and the next."""
# A loop begins with the registration, and each scan takes a moment that delays all later ones of its loop.
_BEGIN, _DELAY = 0.6, 0.15
_XID_EVENT = 8


@dataclass(frozen=True)
class Scan:
    """A look of one loop at the cards, between two moments in seconds."""

    loop: int
    earliest: float
    latest: float


class PluginProcess:
    """A process whose plugin is started again when kubelet's socket comes anew or a hangup signal is sent.

    The loop of an older start goes on with that start's knowledge of which cards are healthy. ``lists`` are the device
    lists that the newest start sent.
    """

    def __init__(self, settings: Settings, machine: Machine, objects: Objects, rules: NodeRules, at: float) -> None:
        self._settings, self._machine, self._objects, self._rules = settings, machine, objects, rules
        self.loops: list[DevicePlugin] = []
        self.starts = 0
        self.lists = 0
        self._begun: list[float] = []
        self.restart(at)

    def restart(self, at: float) -> None:
        """Start the plugin anew, with all cards healthy."""
        if not self._rules.scans_after_restart():
            self.loops, self._begun = [], []
        self.loops.append(DevicePlugin(self._settings, self._machine, self._objects, self._rules))
        self._begun.append(at)
        self.starts += 1
        self.lists = 1

    @property
    def plugin(self) -> DevicePlugin:
        """The newest start, which is the one that kubelet knows."""
        return self.loops[-1]

    def event(self, index: int, mask: int, data: int) -> None:
        """Hear of an event of a card; all but XIDs are passed over."""
        if mask == _XID_EVENT and self.plugin.hear(index, data):
            self.lists += 1

    def deaf(self) -> None:
        """Fail to wait for events: every card counts as unhealthy."""
        for uuid in self.plugin.healthy:
            self.plugin.healthy[uuid] = False
            self.lists += 1

    def edit(self, machine: Machine) -> None:
        """Let the machine be another one; cards that came are not seen before a new process."""
        self._machine = machine
        for plugin in self.loops:
            plugin.see(machine)

    def scans(self, until: float) -> Iterator[Scan]:
        """Give the scans that may have begun by a moment, in the order of their loops."""
        for loop, begun in enumerate(self._begun):
            count = 0
            while begun + SCAN * count <= until:
                earliest = begun + SCAN * count
                yield Scan(loop, earliest, earliest + _BEGIN + _DELAY * count)
                count += 1

    def content(self, scan: Scan) -> frozenset[Device] | None:
        """Return what a scan's loop would register now, None where the scan ends the process."""
        try:
            return frozenset(self.loops[scan.loop].devices())
        except PluginDied:
            return None
