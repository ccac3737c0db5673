"""A scenario being played: the world as far as it got, and what was found on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_hami.contract import metrics
from pytest_hami.contract.reasons import parse_failed_scheduling
from pytest_hami.contract.releases import Release
from pytest_hami.fidelity import observed as seen_as
from pytest_hami.fidelity.attempt import Attempt, attempt
from pytest_hami.fidelity.outcome import Disagreement, Replayed
from pytest_hami.fidelity.world import PodKey, World

Usage = dict[str, dict[str, list[int]]]
_SERIES = metrics.ACCOUNTING_SERIES | metrics.QUOTA_SERIES


class Play:
    """One course of a scenario. Forks are independent, so that several courses can be tried."""

    def __init__(self, scenario: Mapping[str, Any], release: Release, world: World) -> None:
        self.world = world
        self.comparisons = 0
        self.placements = 0
        self.disagreements: list[Disagreement] = []
        self.diverged = False
        self._id, self._kind = str(scenario["id"]), str(scenario["kind"])
        self._release = release
        self._step, self._where = 0, "start"
        # What the record told of each pod's events, and what the model did that no look has shown yet.
        self._told: dict[PodKey, set[seen_as.EventKey]] = {}
        self._owed: dict[PodKey, set[seen_as.EventKey]] = {}
        self._made: dict[PodKey, set[seen_as.EventKey]] = {}
        self._last: dict[PodKey, Attempt] = {}
        self._overviews: list[Usage] = []

    def fork(self) -> Play:
        """Return an independent course from here."""
        other = object.__new__(Play)
        other.__dict__.update(self.__dict__)
        other.world = self.world.fork()
        other.disagreements = list(self.disagreements)
        other._told, other._owed, other._made = dict(self._told), dict(self._owed), dict(self._made)
        other._last = dict(self._last)
        other._overviews = list(self._overviews)
        return other

    def begin(self, number: int, op: str) -> None:
        """Enter a step."""
        self._step, self._where = number, f"step {number} {op}" if number else op
        self._made = {}
        self._overviews = []

    def result(self) -> Replayed:
        """Return what was found."""
        return Replayed(self._id, self._kind, self.placements, self.comparisons, tuple(self.disagreements))

    def same(self, what: str, seen: Any, expected: Any) -> None:
        """Compare something that later decisions rest on."""
        if not self.same_words(what, seen, expected):
            self.diverged = True

    def same_words(self, what: str, seen: Any, expected: Any) -> bool:
        """Compare something that only tells what was decided."""
        self.comparisons += 1
        if seen == expected:
            return True
        self.disagree(what, _text(expected), _text(seen))
        return False

    def disagree(self, what: str, expected: str, seen: str) -> None:
        """Note a disagreement of this step."""
        steps = max(self._step, 1)
        self.disagreements.append(Disagreement(self._id, self._kind, f"{self._where} {what}", expected, seen, steps))

    def register(self) -> None:
        """Make HAMi read the nodes, and keep what its metrics then say."""
        self.world.register()
        self.note_overview()

    def note_overview(self) -> None:
        """Keep what the metrics of cards say now; a look of this step may have seen it."""
        self._overviews.append(self.devices())

    def devices(self) -> Usage:
        """Return the use of each card as the metrics tell it."""
        return seen_as.device_usage(self.samples())

    def samples(self) -> tuple[metrics.Sample, ...]:
        """Return the metrics under the names of the newest release."""
        return metrics.read(self.world.hami.metrics(), _SERIES, self._release)

    def same_devices(self, recorded: Usage) -> None:
        """Compare the metrics of cards with a look at any time since HAMi read the nodes in this step."""
        if recorded in self._overviews:
            self.comparisons += 1
        else:
            self.same("devices", self.devices(), recorded)

    def same_usage(self, observed: Mapping[str, Any], namespace: str | None = None) -> None:
        """Compare the live metrics of pods and quotas, as far as they were looked at."""
        if not observed.keys() & {"vgpu", "quota"}:
            return
        samples = self.samples()
        if "vgpu" in observed:
            self.same("vgpu", seen_as.pod_usage(samples), observed["vgpu"])
        if "quota" in observed:
            quota = seen_as.quota_usage(samples, self.world.config.traits)
            told = observed["quota"] if namespace is None else {namespace: observed["quota"]}
            self.same("quota", {name: quota.get(name) for name in told}, told)

    def place(self, key: PodKey, observed: Mapping[str, Any]) -> None:
        """Try a new pod for the first time and compare everything that is told about it."""
        made = self._attempt(key, observed)
        self.same("scheduled", self.world.node_of(key), observed["scheduled"])
        self.same("annotations", seen_as.pod_annotations(self.world.pods[key]), observed["annotations"])
        recorded = seen_as.recorded_events(observed["events"])
        self.same_words("events", seen_as.made_events(made.events), recorded)
        self._told[key] = recorded
        self._same_condition("", made, observed)

    def try_again(self, key: PodKey, state: Mapping[str, Any], *, same_second: bool = False) -> None:
        """Try a waiting pod; what it was told must be among what the record has of it."""
        made = self._attempt(key, state, same_second)
        news = seen_as.made_events(made.events)
        self._made[key] = self._made.get(key, set()) | news
        known = self._told.get(key, set()) | seen_as.recorded_events(state["events"])
        late = {event for event in news if self.world.node_of(key) and event[1] == "BindingSucceed"}
        self.same_words(f"{_name(key)} new events", news - known - late, set())
        if late - known:
            self._owed[key] = late - known

    def same_waiting(self, key: PodKey, state: Mapping[str, Any]) -> None:
        """Compare a waiting pod with the look at the end of the step."""
        name = _name(key)
        made = self._made.get(key, set()) | self._owed.pop(key, set())
        recorded = seen_as.recorded_events(state["events"])
        self.same_words(f"{name} events", recorded - made, set())
        self._told[key] = self._told.get(key, set()) | recorded
        self.same(f"{name} scheduled", self.world.node_of(key), state.get("scheduled"))
        self.same(f"{name} annotations", seen_as.pod_annotations(self.world.pods[key]), state["annotations"])
        if key in self._last:
            self._same_condition(f"{name} ", self._last[key], state)

    def _attempt(self, key: PodKey, state: Mapping[str, Any], same_second: bool = False) -> Attempt:
        self.placements += 1
        late = self._lost_race(key, state)
        made = attempt(self.world, key, _choice(state), loses_race=late, same_second=same_second)
        self._last[key] = made
        return made

    def _lost_race(self, key: PodKey, state: Mapping[str, Any]) -> bool:
        """Whether the record tells that HAMi did not know the pod yet when it was to be bound."""
        told = (state.get("pod_condition"), state.get("pod_condition_message"))
        return self.world.rules.binds_from_cache() and told == ("SchedulerError", f'pod "{key[1]}" not found')

    def _same_condition(self, name: str, made: Attempt, state: Mapping[str, Any]) -> None:
        if made.condition is None or state.get("scheduled") is not None:
            return
        reason, message = made.condition
        if not self.same_words(f"{name}condition", reason, state.get("pod_condition")):
            return
        told = str(state.get("pod_condition_message"))
        if reason == "SchedulerError":
            self.same_words(f"{name}condition message", message, told)
        elif made.failed:
            expected = parse_failed_scheduling(told).reasons
            texts = list(made.failed.values())
            for text in sorted(set(texts)):
                self.same_words(f"{name}reason in {expected}", (texts.count(text), text) in expected, True)


def _choice(state: Mapping[str, Any]) -> str | None:
    """Return the node that the record tells: where the pod is, else where the filter put it."""
    node = state.get("scheduled") or (state.get("annotations") or {}).get("hami.io/vgpu-node")
    return str(node) if node else None


def _name(key: PodKey) -> str:
    return "/".join(key)


def _text(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, Iterable) and isinstance(value, set) else repr(value)
