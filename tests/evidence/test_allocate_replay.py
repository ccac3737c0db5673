"""The model of the device plugin answers Allocate as the real one of HAMi 2.10.0 did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract.env import CACHE_PATTERN
from pytest_hami.kubelet.plugin import AllocateError
from pytest_hami.simulator.allocate import NodeConfig, NodeRules, allocate

PATH = Path(__file__).resolve().parents[2] / "fixtures" / "evidence" / "hami-2.10.0" / "allocate.jsonl"
CASES = {case["case"]: case for case in map(json.loads, PATH.read_text().splitlines())}
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
# What the model does not play; the 33 checks ask none of it.
OTHER_TOPIC = {
    "A06": "two containers in one call; a kubelet sends one", "F07": "the words about a malformed annotation",
    "F08": "the words about a malformed annotation", "A24": "a call without containers; a kubelet sends none",
    "A25": "another vendor's annotation",
    "C02": "disableCoreLimit", "C04": "the plugin ends itself", "C08": "device specs", "C09": "volume mounts",
    "C10": "index strategy", "C13": "GDS", "C14": "mps and core scaling of a share", "C20": "licence files",
    "C26": "no hook path", "C33": "no API server", "C41": "CDI", "C42": "CDI", "C43": "CDI", "C44": "CDI",
    "F01": "which pod is meant", "F10": "which pod is meant", "F11": "which pod is meant", "F12": "which pod is meant",
    "F13": "which pod is meant", "F14": "which pod is meant", "F15": "which pod is meant", "F16": "which pod is meant",
    "F17": "which pod is meant", "F18": "which pod is meant", "F19": "which pod is meant", "F21": "which pod is meant",
    "F22": "which pod is meant", "F20": "the plugin ends itself",
    "M": "MIG", "P": "preferred allocation", "R": "rootless",
}  # fmt: skip


def topic(name: str) -> str:
    return OTHER_TOPIC.get(name[:3], OTHER_TOPIC.get(name[0], ""))


def config(case: dict[str, Any]) -> NodeConfig:
    values = case["fleet"]["device_config"]
    return NodeConfig(memory_scaling=values.get("deviceMemoryScaling", 1), log_level=str(values["libCudaLogLevel"]))


def mounts(found: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    return [(mount["container_path"], mount["host_path"], mount.get("read_only", False)) for mount in found]


@pytest.mark.parametrize("name", [name for name in CASES if not topic(name)])
def test_answers_and_what_is_left_to_allocate(name: str) -> None:
    case = CASES[name]
    ((pod_name, before),) = case["before"]["pods"].items()
    spec = before["spec"]

    def container(stored: dict[str, Any]) -> dict[str, Any]:
        env = [{"name": key, "value": value} for key, value in stored["env"].items()]
        return {"name": stored["name"], "env": env, "resources": {"limits": stored["limits"]}}

    pod = {
        "metadata": {"name": pod_name, "uid": spec["uid"]},
        "spec": {key: [container(stored) for stored in spec[key]] for key in ("initContainers", "containers")},
    }
    rest = before["annotations"].get(TO_ALLOCATE)
    caches: set[str] = set()
    lock = case["before"]["lock"]
    for call in case["calls"]:
        answers = []
        error = ""
        for ids in call["request"]:
            try:
                answer, rest = allocate(pod, rest, len(ids), config(case), NodeRules())
            except AllocateError as found:
                error = str(found)
                break
            answers.append(answer)
        assert error == call.get("error", {}).get("details", "")
        if not error:
            recorded = call["response"]["container_responses"]
            for answer, seen in zip(answers, recorded, strict=True):
                # The file name is random on both sides; its shape and its presence are not.
                assert CACHE_PATTERN.fullmatch(answer.env[CACHE])
                assert CACHE_PATTERN.fullmatch(seen["envs"][CACHE])
                assert answer.env[CACHE] not in caches
                caches.add(answer.env[CACHE])
                assert {**answer.env, CACHE: ""} == {**seen["envs"], CACHE: ""}
            assert [
                [(mount.container_path, mount.host_path, mount.read_only) for mount in answer.mounts]
                for answer in answers
            ] == [mounts(seen["mounts"]) for seen in recorded]
        after = call["after"]["pods"][pod_name]
        assert rest == after.get(TO_ALLOCATE)
        phase = "failed" if error else NodeRules().phase_after(rest or "") or "allocating"
        assert phase == after.get("hami.io/bind-phase")
        served = bool(error) or phase == "success"
        if served and lock is not None and NodeRules().releases_lock(lock, "default", pod_name):
            lock = None
        assert lock == call["after"]["lock"]


def test_most_cases_are_replayed() -> None:
    assert len([name for name in CASES if not topic(name)]) >= 40
