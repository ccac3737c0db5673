"""Replays a case of Allocate: what each call was answered, and what it left on pods and node."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_hami.contract.releases import Release
from pytest_hami.fidelity.node.findings import Findings
from pytest_hami.fidelity.node.fleet import NODE, machine_of, settings_of
from pytest_hami.fidelity.node.memory import LOCK, Memory, run
from pytest_hami.fidelity.outcome import Replayed
from pytest_hami.kubelet.plugin import AllocateError, Answer
from pytest_hami.simulator.deviceplugin import mig
from pytest_hami.simulator.deviceplugin.answer import VISIBLE
from pytest_hami.simulator.deviceplugin.mig import ALLOCATIONS, Instance, Key, MigError
from pytest_hami.simulator.deviceplugin.objects import PodKey
from pytest_hami.simulator.deviceplugin.plugin import DevicePlugin
from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.deviceplugin.settings import Settings, Unmodelled

KIND = "allocate"
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
_NODE_IN_ERROR = re.compile(r"no binding pod found on node (\S+)")
_ADDRESS = re.compile(r'Get "https://([^/"]+)/')
_CACHE_FILE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.cache")
_CDI_KEY = re.compile(r"_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def replay(data: Mapping[str, Any], release: Release, rules: type[NodeRules] = NodeRules) -> Replayed:
    """Return what the model makes of a record ``allocate``.

    A record does not name its node, and calls made at the same time are served in any order: there must be a node among those
    that are mentioned, and an order, that lead to everything recorded.
    """
    courses = (_Course(data, release, rules, node, order).result() for node in _nodes(data) for order in _orders(data))
    return _best(courses)


def _best(courses: Iterator[Replayed]) -> Replayed:
    """Return the first course without a disagreement, else the one with the fewest."""
    tried = []
    for course in courses:
        if not course.disagreements:
            return course
        tried.append(course)
    return min(tried, key=lambda one: len(one.disagreements))


def _nodes(data: Mapping[str, Any]) -> list[str]:
    fleet = data["fleet"]
    told = fleet.get("node", (fleet.get("env") or {}).get("NODE_NAME"))
    if told is not None:
        return [str(told)]
    errors = [_NODE_IN_ERROR.search(call.get("error", {}).get("details", "")) for call in data["calls"]]
    named = Counter(
        pod["annotations"]["hami.io/vgpu-node"]
        for pod in data["before"]["pods"].values()
        if "hami.io/vgpu-node" in pod["annotations"]
    )
    return list(
        dict.fromkeys([*(found[1] for found in errors if found), NODE, *(name for name, _ in named.most_common())])
    )


def concurrent(data: Mapping[str, Any]) -> bool:
    """Return whether the calls of a case were made at the same time; the state after each is then that after all."""
    told = f"{data['case']} {data.get('what', '')} {data.get('note', '')}"
    return "concurrent" in told or "at the same time" in told or "completion order" in told


def _orders(data: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    numbers = tuple(range(len(data["calls"])))
    return itertools.permutations(numbers) if concurrent(data) else iter([numbers])


class _Course:
    """The calls of a case on one node, served in one order."""

    def __init__(
        self, data: Mapping[str, Any], release: Release, rules: type[NodeRules], node: str, order: Sequence[int]
    ) -> None:
        self._data, self._order = data, order
        self._found = Findings(data["case"], KIND)
        self._objects = Memory(node, data["before"].get("lock"))
        self._objects.unbound = "without spec.nodeName" in data.get("what", "")
        self._recorded: dict[Key, Instance] = {}
        try:
            settings = settings_of(data, node)
            machine = machine_of(data, release, started=True)
            self._plugin = DevicePlugin(settings, machine, self._objects, rules(), self._identify)
            for earlier in data.get("earlier") or ():
                self._add_pods(earlier, after=True)
                self._plugin.mig.adopt(self._objects.stored.values())
            self._add_pods(data, after=False)
            self._play()
        except Unmodelled as error:
            self._found.disagree("settings", f"a rule for {error}", "none")

    def result(self) -> Replayed:
        """Return what was found."""
        return self._found.result()

    def _add_pods(self, data: Mapping[str, Any], *, after: bool) -> None:
        """Store the pods of a case as they were before or after its calls."""
        for name, pod in data["before"]["pods"].items():
            notes = data["calls"][-1]["after"]["pods"].get(name) if after and data["calls"] else pod["annotations"]
            self._objects.add(key_of(name), stored(name, pod["spec"], notes or {}))

    def _identify(self, key: Key) -> Instance:
        """Return what the driver called a new instance, as the record tells it."""
        return self._recorded.get(key, Instance("an instance that the record does not hold", 0, 0))

    def _play(self) -> None:
        calls = self._data["calls"]
        for number in self._order:
            call = calls[number]
            self._found.step, self._found.where = number + 1, f"call {number + 1}"
            self._learn(call)
            self._call(call)
            if not concurrent(self._data):
                self._same_state(call["after"])
        if concurrent(self._data) and calls:
            self._same_state(calls[-1]["after"])
        self._found.where = ""
        # The look at the process may come before it is gone.
        if "plugin_alive" in self._data and self._plugin.alive:
            self._found.same("plugin alive", True, self._data["plugin_alive"])
        caches = [file for call in calls for file in _caches(call.get("response") or {})]
        self._found.same("caches", len(set(caches)), len(caches))

    def _learn(self, call: Mapping[str, Any]) -> None:
        for notes in call["after"]["pods"].values():
            try:
                held = mig.read(notes.get(ALLOCATIONS, ""))
            except MigError:
                continue
            for one in held:
                key = one.key(self._plugin.machine)
                if key and one.instance:
                    self._recorded[key] = one.instance

    def _call(self, call: Mapping[str, Any]) -> None:
        recorded = call.get("error")
        if recorded and (told := _ADDRESS.match(recorded.get("details", ""))):
            self._objects.refusal = told[1] if "API server refuses" in self._data.get("what", "") else ""
        if not self._plugin.alive:
            self._found.same("answer", {"code": "UNAVAILABLE"}, _error(recorded))
            return
        try:
            answers = run(self._plugin.allocate(call["request"]))
        except AllocateError as error:
            self._found.same("answer", _error({"code": error.code.upper(), "details": str(error)}), _error(recorded))
            return
        if recorded:
            self._found.same("answer", [content(answer, self._plugin.settings) for answer in answers], _error(recorded))
            return
        told_answers = call["response"].get("container_responses") or []
        self._found.same("number of answers", len(answers), len(told_answers))
        for index, (answer, told_answer) in enumerate(zip(answers, told_answers, strict=False)):
            same_answer(self._found, f"answer {index + 1}", answer, told_answer, self._plugin.settings)

    def _same_state(self, after: Mapping[str, Any]) -> None:
        for name, notes in after["pods"].items():
            pod = self._objects.stored.get(key_of(name))
            self._found.same(f"annotations of {name}", pod and pod["metadata"]["annotations"], notes)
        self._found.same("lock", self._objects.notes.get(LOCK), after.get("lock"))


def key_of(name: str) -> PodKey:
    """Return namespace and name of a pod in a record, which names the former only where it is another one."""
    namespace, _, pod = name.rpartition("/")
    return namespace or "default", pod


def stored(name: str, spec: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
    """Return the Pod of a record."""
    namespace, pod = key_of(name)
    return {
        "metadata": {"namespace": namespace, "name": pod, "uid": spec["uid"], "annotations": dict(notes)},
        "spec": {kind: [_container(one) for one in spec.get(kind) or []] for kind in ("initContainers", "containers")},
        "status": {"phase": spec["phase"]},
    }


def _container(told: Mapping[str, Any]) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in (told.get("env") or {}).items()]
    return {"name": told["name"], "env": env, "resources": {"limits": told.get("limits") or {}}}


def same_answer(found: Findings, where: str, answer: Answer, recorded: Mapping[str, Any], settings: Settings) -> None:
    """Compare the answer for one container, each part by itself."""
    found.placements += 1
    seen, expected = content(answer, settings), _recorded_content(recorded, settings)
    for part in sorted({*seen, *expected}):
        found.same(f"{where} {part}", seen.get(part), expected.get(part))


def content(answer: Answer, settings: Settings) -> dict[str, Any]:
    """Return an answer in the form of a record, with what is random made equal."""
    mounted = [
        {"container_path": one.container_path, "host_path": one.host_path}
        | ({"read_only": True} if one.read_only else {})
        for one in answer.mounts
    ]
    nodes = [
        {"container_path": one.container_path, "host_path": one.host_path, "permissions": one.permissions}
        for one in answer.devices
    ]
    whole = {
        "envs": dict(answer.env), "mounts": mounted, "devices": nodes, "annotations": dict(answer.annotations),
        "cdi_devices": [{"name": name} for name in answer.cdi_devices],
    }  # fmt: skip
    return _recorded_content({key: value for key, value in whole.items() if value}, settings)


def _recorded_content(recorded: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    result = dict(recorded)
    if "envs" in result:
        result["envs"] = {name: _variable(name, text, settings) for name, text in result["envs"].items()}
    if "annotations" in result:
        result["annotations"] = {
            _CDI_KEY.sub("_<uuid>", key): _chance(text, settings) for key, text in result["annotations"].items()
        }
    if settings.id_strategy == "index" and "cdi_devices" in result:
        result["cdi_devices"] = sorted(result["cdi_devices"], key=lambda one: str(one["name"]))
    if "devices" in result:
        # Cards come in the order of a Go map.
        result["devices"] = sorted(result["devices"], key=lambda one: str(one["container_path"]))
    if settings.id_strategy == "index" and "mounts" in result:
        result["mounts"] = sorted(result["mounts"], key=lambda one: str(one["container_path"]))
    return result


def _variable(name: str, text: str, settings: Settings) -> str:
    if name == CACHE:
        return _CACHE_FILE.sub("<uuid>.cache", text)
    return _chance(text, settings) if name == VISIBLE else text


def _chance(text: str, settings: Settings) -> str:
    return ",".join(sorted(text.split(","))) if settings.id_strategy == "index" else text


def _caches(response: Mapping[str, Any]) -> list[str]:
    return [one["envs"][CACHE] for one in response.get("container_responses") or [] if CACHE in (one.get("envs") or {})]


def _error(told: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an error; of a call that ended with the process the words are those of the transport."""
    if told is None:
        return {}
    return {"code": told["code"]} if told["code"] == "UNAVAILABLE" else dict(told)
