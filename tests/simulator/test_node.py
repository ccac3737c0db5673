"""The simulated kubelet: what it knows of its own containers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_hami.simulator.deviceplugin.rules import NodeRules
from pytest_hami.simulator.kubelet import NoContainer
from pytest_hami.simulator.node import NodeAgent

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default", "uid": "1"},
    "spec": {"nodeName": "w1", "containers": [{"name": "main"}]},
    "status": {"phase": "Pending"},
}


async def nothing(*_: object) -> None:
    pass


def test_a_container_that_was_started_answers_before_the_watch_tells_of_it() -> None:
    agent = NodeAgent("http://127.0.0.1:1", lambda api: SimpleNamespace(), NodeRules())  # type: ignore[arg-type, return-value]
    agent._cards["w1"] = ()
    agent._api = SimpleNamespace(merge_patch=nothing)  # type: ignore[assignment]
    agent._pods = SimpleNamespace(items={"1": POD})  # type: ignore[assignment]
    with pytest.raises(NoContainer, match="pod p is Pending"):
        agent.run("default", "p", "main", ["true"])
    asyncio.run(agent._set_status(POD, {"phase": "Running"}))
    assert agent.run("default", "p", "main", ["true"]).code == 0
