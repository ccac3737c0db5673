"""Rows: watches, as client-go and the Python client make them."""

from __future__ import annotations

from api_table import MERGE, Api, Table, config_map, pod

TABLE = Table()
row = TABLE.row


def first(events, count: int, kind: str = "") -> list[tuple[str, str]]:
    """Return type and name of the first events, bookmarks by type alone."""
    seen: list[tuple[str, str]] = []
    for type, found in events:
        if kind and found.get("kind") not in {kind, None} and type not in {"BOOKMARK", "ERROR"}:
            continue
        seen.append((type, found["metadata"].get("name", "")) if type != "BOOKMARK" else (type, ""))
        # A kubelet, a scheduler or the way to a deletion may write in between.
        if seen[-2:-1] == seen[-1:] and seen[-1][0] == "MODIFIED":
            seen.pop()
        if len(seen) == count:
            break
    return seen


def version(api: Api, path: str) -> str:
    return str(api.get(path).at("metadata", "resourceVersion"))


@row("creation, change and deletion are told in order", events=[("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")])
def _(api: Api):
    with api.watch(api.pods, f"resourceVersion={version(api, api.pods)}") as events:
        api.make(api.pods, pod())
        api.ask("PATCH", f"{api.pods}/p", {"metadata": {"labels": {"a": "1"}}}, type=MERGE)
        api.ask("DELETE", f"{api.pods}/p?gracePeriodSeconds=0")
        return {"events": first(events, 3)}


@row("without a version what is there comes first", events=[("ADDED", "p"), ("ADDED", "q")])
def _(api: Api):
    api.make(api.pods, pod("p"))
    with api.watch(api.pods) as events:
        api.make(api.pods, pod("q"))
        return {"events": first(events, 2)}


@row("version 0 means any state, and begins with what is there", events=[("ADDED", "p")])
def _(api: Api):
    api.make(api.pods, pod("p"))
    with api.watch(api.pods, "resourceVersion=0") as events:
        return {"events": first(events, 1)}


@row("from a version on nothing older comes", events=[("ADDED", "q")])
def _(api: Api):
    api.make(api.pods, pod("p"))
    with api.watch(api.pods, f"resourceVersion={version(api, api.pods)}") as events:
        api.make(api.pods, pod("q"))
        return {"events": first(events, 1)}


@row("what happened since a version comes again", events=[("ADDED", "p"), ("DELETED", "p")])
def _(api: Api):
    before = version(api, api.maps)
    api.make(api.maps, config_map("p"))
    api.ask("DELETE", f"{api.maps}/p")
    with api.watch(api.maps, f"resourceVersion={before}") as events:
        return {"events": first(events, 2)}


@row("a version that nobody has reached yet ends in an error or waits, and tells no object", told=[])
def _(api: Api):
    api.make(api.pods, pod("p"))
    with api.watch(api.pods, f"resourceVersion={int(version(api, api.pods)) + 100_000}", seconds=1) as events:
        return {"told": [type for type, _ in events if type not in {"ERROR", "STATUS"}]}


@row("timeoutSeconds ends a watch in order", events=[])
def _(api: Api):
    with api.watch(api.pods, seconds=1) as events:
        return {"events": list(events)}


@row("watch is true as 1 and True as well", one=["ADDED"], capital=["ADDED"])
def _(api: Api):
    api.make(api.pods, pod())
    seen = {}
    for name, value in (("one", "1"), ("capital", "True")):
        with api.watch(api.pods, seconds=1, flag=value) as events:
            seen[name] = [type for type, _ in first(events, 1)]
    return seen


@row(
    "an object that leaves the selection is deleted for its watcher",
    events=[("ADDED", "p"), ("DELETED", "p"), ("ADDED", "p")],
)
def _(api: Api):
    with api.watch(api.pods, f"labelSelector=app%3Dx&resourceVersion={version(api, api.pods)}") as events:
        api.make(api.pods, pod("p", app="x"))
        api.make(api.pods, pod("q", app="y"))
        for value in ("y", "x"):
            api.ask("PATCH", f"{api.pods}/p", {"metadata": {"labels": {"app": value}}}, type=MERGE)
        return {"events": first(events, 3)}


@row("a watch of one object by its name", events=[("ADDED", "q")])
def _(api: Api):
    with api.watch(api.maps, f"fieldSelector=metadata.name%3Dq&resourceVersion={version(api, api.maps)}") as events:
        for name in ("p", "q"):
            api.make(api.maps, config_map(name))
        return {"events": first(events, 1)}


@row(
    "a streamed list: what is there, then a bookmark that says so, then what happens",
    events=[("ADDED", "p"), ("BOOKMARK", ""), ("ADDED", "q")],
    marked="true",
)
def _(api: Api):
    api.make(api.pods, pod("p"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    seen, marked = [], None
    with api.watch(api.pods, query) as events:
        for type, found in events:
            seen.append((type, found["metadata"].get("name", "") if type != "BOOKMARK" else ""))
            if type == "BOOKMARK":
                marked = (found["metadata"].get("annotations") or {}).get("k8s.io/initial-events-end")
                api.make(api.pods, pod("q"))
            if len(seen) == 3:
                break
    return {"events": seen, "marked": marked}


@row("a streamed list of nothing is a bookmark alone", events=[("BOOKMARK", "")])
def _(api: Api):
    query = (
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=none%3Dnone"
    )
    with api.watch(api.pods, query) as events:
        return {"events": first(events, 1)}


@row("a streamed list needs its version match, and that needs a streamed list", without=422, alone=422)
def _(api: Api):
    return {
        "without": api.get(f"{api.pods}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true").code,
        "alone": api.get(f"{api.pods}?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=0").code,
    }


@row("a deletion is told with a version of its own", later=True)
def _(api: Api):
    made = api.make(api.maps, config_map("p"))
    with api.watch(api.maps, f"resourceVersion={made.at('metadata', 'resourceVersion')}") as events:
        api.ask("DELETE", f"{api.maps}/p")
        for type, found in events:
            if type == "DELETED":
                return {
                    "later": int(found["metadata"]["resourceVersion"]) > int(made.at("metadata", "resourceVersion"))
                }
    return {"later": None}


@row("a watch over all namespaces tells the namespace", seen=True)
def _(api: Api):
    with api.watch("/api/v1/pods", f"resourceVersion={version(api, '/api/v1/pods')}") as events:
        api.make(api.pods, pod("p"))
        return {"seen": any(found["metadata"]["namespace"] == api.ns for _, found in events)}
