"""The journal neither loses nor invents an observation, whatever happens to its watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from pytest_hami.kube.client import KubeClient
from pytest_hami.kube.errors import ClusterLost
from pytest_hami.kube.journal import Journal, Observation
from pytest_hami.kube.wait import WaitTimeout, wait_until

LIMIT = 10.0


@pytest.fixture
def journal(kube: KubeClient) -> Iterator[Journal]:
    made = Journal(kube, lost_after=0.5)
    made.start()
    yield made
    made.stop()


def await_(journal: Journal, ready: Any, missing: str) -> Any:
    return wait_until(journal, ready, timeout=LIMIT, missing=lambda: missing)


def label(kube: KubeClient, value: int) -> None:
    kube.patch("Pod", "p1", {"metadata": {"labels": {"step": str(value)}}}, "default")


def steps(history: tuple[Observation, ...]) -> list[tuple[str, str]]:
    return [(seen.type, seen.object["metadata"]["labels"].get("step", "")) for seen in history]


def line(event: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(event).encode() + b"\n", content_type="application/json")


def drop_watches(api: Any) -> None:
    """Close every open watch from the server's side, as an API server does that rolls or times out."""

    async def close() -> None:
        for _, table in api.server.store.tables():
            for watcher in list(table.watchers):
                watcher.put_nowait(None)

    api.run(close())


def test_history_of_one_uid(kube: KubeClient, journal: Journal, pod: dict[str, Any]) -> None:
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    for value in (1, 2):
        label(kube, value)
    kube.delete("Pod", "p1", "default", grace_seconds=0)
    await_(journal, lambda: journal.history(uid) and journal.latest(uid) is None, "the deletion")
    seen = steps(journal.history(uid))
    assert seen[0] == ("ADDED", "")
    assert ("MODIFIED", "1") in seen
    assert seen[-1] == ("DELETED", "2")
    assert not any(observation.synthetic for observation in journal.history(uid))
    again = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(again), "the second pod")
    assert journal.find("Pod", "default", "p1")["metadata"]["uid"] == again  # type: ignore[index]
    assert journal.latest(uid) is None


def test_a_dropped_watch_goes_on_where_it_was(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    for value in range(1, 30):
        label(kube, value)
        if value % 5 == 0:
            drop_watches(api)
    await_(journal, lambda: steps(journal.history(uid))[-1:] == [("MODIFIED", "29")], "step 29")
    assert steps(journal.history(uid)) == [("ADDED", ""), *(("MODIFIED", str(value)) for value in range(1, 30))]
    assert not any(observation.synthetic for observation in journal.history(uid))


def test_a_reset_connection_goes_on_where_it_was(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(uid), "the pod")
    resets = iter([True, True, True])
    api.server.faults.append(lambda request: "reset" if "watch" in request.query and next(resets, False) else None)
    drop_watches(api)
    for value in range(1, 6):
        label(kube, value)
    await_(journal, lambda: steps(journal.history(uid))[-1:] == [("MODIFIED", "5")], "step 5")
    assert steps(journal.history(uid)) == [("ADDED", ""), *(("MODIFIED", str(value)) for value in range(1, 6))]


@pytest.mark.parametrize("code", [429, 500])
def test_a_watch_that_is_refused_for_a_while_goes_on(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any], code: int
) -> None:
    refused: list[str] = []

    def fault(request: web.Request) -> Any:
        if "watch" in request.query and len(refused) < 6:
            refused.append(request.path)
            return web.json_response({"kind": "Status", "code": code, "message": "later"}, status=code)
        return None

    api.server.faults.append(fault)
    drop_watches(api)
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(uid), "the pod")
    assert len(refused) == 6


def test_410_gone_is_followed_by_a_list_that_shows_deletions(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    gone = kube.create("Pod", pod)["metadata"]["uid"]
    kept = kube.create("Pod", {**pod, "metadata": {**pod["metadata"], "name": "p2"}})["metadata"]["uid"]
    await_(journal, lambda: journal.latest(gone) and journal.latest(kept), "both pods")
    blind = threading.Event()

    def fault(request: web.Request) -> Any:
        if "watch" in request.query and not blind.is_set():
            return web.json_response({"kind": "Status", "code": 503, "message": "later"}, status=503)
        return None

    api.server.faults.append(fault)
    drop_watches(api)
    kube.delete("Pod", "p1", "default", grace_seconds=0)
    kube.patch("Pod", "p2", {"metadata": {"labels": {"step": "9"}}}, "default")

    async def forget() -> None:
        for _, table in api.server.store.tables():
            table.forgotten = api.server.store.version
            table.log.clear()

    api.run(forget())
    blind.set()
    await_(journal, lambda: journal.latest(gone) is None, "the deletion of p1")
    await_(journal, lambda: steps(journal.history(kept))[-1] == ("MODIFIED", "9"), "step 9 of p2")
    assert journal.history(gone)[-1].synthetic
    assert journal.history(kept)[-1].synthetic
    assert [seen.type for seen in journal.history(gone)] == ["ADDED", "DELETED"]


def test_410_inside_a_stream_is_followed_by_a_list(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    sent: list[str] = []

    def fault(request: web.Request) -> Any:
        if "watch" in request.query and request.path.endswith("/pods") and not sent:
            sent.append(request.path)
            return line(
                {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
            )
        return None

    api.server.faults.append(fault)
    drop_watches(api)
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(uid), "the pod")
    assert sent


def test_a_conflict_is_the_callers_business(kube: KubeClient, journal: Journal, pod: dict[str, Any]) -> None:
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    from pytest_hami.kube.errors import ApiError

    with pytest.raises(ApiError) as caught:
        kube.create("Pod", pod)
    assert caught.value.code == 409
    label(kube, 1)
    await_(journal, lambda: len(journal.history(uid)) == 2, "the label")
    assert steps(journal.history(uid)) == [("ADDED", ""), ("MODIFIED", "1")]


@pytest.mark.parametrize(
    "hostile",
    [
        {"metadata": {"uid": "e", "name": "e"}, "involvedObject": ["x"]},
        {"metadata": ["x"]},
        {"metadata": {"uid": 1, "name": None}},
        {"metadata": {"uid": "e", "name": "e", "annotations": {"a": 1}}},
        {"metadata": {"uid": "e", "name": "e"}, "status": {"conditions": [None]}},
    ],
)
def test_a_hostile_object_is_passed_over_and_named(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any], hostile: dict[str, Any]
) -> None:
    sent: list[str] = []

    def fault(request: web.Request) -> Any:
        if "watch" in request.query and request.path.endswith("/pods") and not sent:
            sent.append(request.path)
            return line({"type": "ADDED", "object": hostile})
        return None

    api.server.faults.append(fault)
    drop_watches(api)
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(uid), "the pod")
    assert [text for text in journal.oddities if text.startswith("Pod: ")]


def test_null_is_absent(kube: KubeClient, journal: Journal) -> None:
    from pytest_hami.kube.journal import sound

    found = sound(
        {"metadata": {"uid": "u", "name": "n", "labels": None}, "status": None, "source": {"component": None}}
    )
    assert found == {"metadata": {"uid": "u", "name": "n"}, "source": {}}


def test_torn_json_in_a_watch_is_followed_by_a_list(
    api: Any, kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    sent: list[str] = []

    def fault(request: web.Request) -> Any:
        if "watch" in request.query and request.path.endswith("/pods") and not sent:
            sent.append(request.path)
            return web.Response(body=b'{"type":"ADD\n', content_type="application/json")
        return None

    api.server.faults.append(fault)
    drop_watches(api)
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    await_(journal, lambda: journal.latest(uid), "the pod")
    assert "not usable JSON" in journal.oddities[0]


def test_a_server_that_is_gone_ends_every_wait(api: Any, kube: KubeClient, journal: Journal) -> None:
    threading.Timer(0.2, api.stop).start()
    started = time.monotonic()
    with pytest.raises(ClusterLost, match=r"the API server is gone for 0\.5 s") as caught:
        wait_until(journal, lambda: False, timeout=LIMIT, missing=lambda: "nothing")
    assert time.monotonic() - started < LIMIT / 2
    assert "\n" not in str(caught.value)


def test_a_timeout_names_the_missing_thing_and_the_history(
    kube: KubeClient, journal: Journal, pod: dict[str, Any]
) -> None:
    kube.create("Pod", pod)
    with pytest.raises(WaitTimeout, match=r"not seen within 0\.05 s: phase Running; history:\n  it was created"):
        wait_until(
            journal, lambda: False, timeout=0.05, missing=lambda: "phase Running", history=lambda: ["it was created"]
        )


def test_events_are_found_by_the_uid_they_are_about(kube: KubeClient, journal: Journal, pod: dict[str, Any]) -> None:
    uid = kube.create("Pod", pod)["metadata"]["uid"]
    about = {"kind": "Pod", "namespace": "default", "name": "p1", "uid": uid}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": about, "reason": "Tested", "message": "yes", "type": "Normal",
    }  # fmt: skip
    kube.create("Event", event)
    kube.create(
        "Event", event | {"metadata": {"name": "e2", "namespace": "default"}, "involvedObject": about | {"uid": "x"}}
    )
    await_(journal, lambda: journal.events_of(uid) and journal.events_of("x"), "both events")
    assert [found["metadata"]["name"] for found in journal.events_of(uid)] == ["e1"]
    kube.delete("Event", "e1", "default")
    assert journal.events_of(uid)
