"""Rows: creating, reading, changing and deleting objects."""

from __future__ import annotations

import copy

from api_table import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, Table, config_map, pod

TABLE = Table()
row = TABLE.row


@row(
    "create answers 201 and fills in identity, version and time",
    code=201,
    filled=True,
    status={"phase": "Pending", "qosClass": "BestEffort"},
)
def _(api: Api):
    made = api.ask("POST", api.pods, pod())
    keys = ("uid", "resourceVersion", "creationTimestamp", "namespace")
    return {"code": made.code, "filled": all(made.at("metadata", key) for key in keys), "status": made.at("status")}


@row(
    "a pod gets its defaults",
    spec=["Always", 30, "ClusterFirst", True, {}],
    container=["/dev/termination-log", "File", "IfNotPresent"],
)
def _(api: Api):
    spec = api.make(api.pods, pod()).body["spec"]
    keys = ("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "enableServiceLinks", "securityContext")
    first = spec["containers"][0]
    return {
        "spec": [spec.get(key) for key in keys],
        "container": [
            first.get(key) for key in ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy")
        ],
    }


@row(
    "requests default to limits, also of extended resources",
    requests={"cpu": "1", "example.com/thing": "2"},
    qos="Burstable",
)
def _(api: Api):
    body = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "example.com/thing": "2"}}
    made = api.make(api.pods, body)
    return {"requests": made.at("spec", "containers", 0, "resources", "requests"), "qos": made.at("status", "qosClass")}


@row("a pod's status in its creation is dropped, a node's is kept", pod="Pending", node="7")
def _(api: Api):
    made = api.make(api.pods, {**pod(), "status": {"phase": "Running"}})
    name = f"{api.ns}-kept"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "7"}},
            "spec": {"unschedulable": True}}  # fmt: skip
    node = api.make("/api/v1/nodes", body)
    api.ask("DELETE", f"/api/v1/nodes/{name}")
    return {"pod": made.at("status", "phase"), "node": node.at("status", "allocatable", "cpu")}


@row("a second create is refused", code=409, reason="AlreadyExists", message='pods "p" already exists')
def _(api: Api):
    api.make(api.pods, pod())
    again = api.ask("POST", api.pods, pod())
    return {"code": again.code, "reason": again.reason, "message": again.message}


@row(
    "what is not there is told by name",
    code=404,
    reason="NotFound",
    message='pods "nope" not found',
    details={"name": "nope", "kind": "pods"},
)
def _(api: Api):
    seen = api.get(f"{api.pods}/nope")
    return {"code": seen.code, "reason": seen.reason, "message": seen.message, "details": seen.body.get("details")}


@row("a namespace that is not there", code=404, message='namespaces "nowhere-at-all" not found')
def _(api: Api):
    seen = api.ask("POST", "/api/v1/namespaces/nowhere-at-all/pods", pod())
    return {"code": seen.code, "message": seen.message}


@row("a list in a namespace that is not there is empty", code=200, items=[])
def _(api: Api):
    seen = api.get("/api/v1/namespaces/nowhere-at-all/pods")
    return {"code": seen.code, "items": seen.body.get("items")}


@row("paths and kinds that are not there", codes=[404, 404, 404])
def _(api: Api):
    paths = ("/nope", "/api/v1/nopes", "/apis/nope.example.com/v1/things")
    return {"codes": [api.get(path).code for path in paths]}


@row("a body that is no JSON", code=400, reason="BadRequest")
def _(api: Api):
    seen = api.ask("POST", api.pods, "{no json")
    return {"code": seen.code, "reason": seen.reason}


@row("webhooks are asked before an object is validated", code=403, by_webhook=True)
def _(api: Api):
    body = pod()
    body["spec"]["containers"] = []
    seen = api.ask("POST", api.pods, body)
    return {"code": seen.code, "by_webhook": seen.message.startswith("admission webhook")}


INVALID = {
    "a name with capitals": lambda body: body["metadata"].update(name="Not_A_Name"),
    "no name": lambda body: body["metadata"].pop("name"),
    "a label value with blanks": lambda body: body["metadata"].update(labels={"a": "b c"}),
    "an annotation key of two slashes": lambda body: body["metadata"].update(annotations={"a/b/c": ""}),
    "two containers of one name": lambda body: body["spec"]["containers"][1].update(name="a"),
    "a container without a name": lambda body: body["spec"]["containers"][0].update(name=""),
    "a restart policy that nobody knows": lambda body: body["spec"].update(restartPolicy="Perhaps"),
    "a request above its limit": lambda body: body["spec"]["containers"][0].update(
        resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
    "a fraction of an extended resource": lambda body: body["spec"]["containers"][0].update(
        resources={"limits": {"example.com/thing": "1.5"}}),
    "a request of an extended resource below its limit": lambda body: body["spec"]["containers"][0].update(
        resources={"limits": {"example.com/thing": "2"}, "requests": {"example.com/thing": "1"}}),
    "a negative limit": lambda body: body["spec"]["containers"][0].update(resources={"limits": {"cpu": "-1"}}),
}  # fmt: skip


def _invalid(change):
    def observe(api: Api):
        body = copy.deepcopy(pod())
        change(body)
        seen = api.ask("POST", api.pods, body)
        return {"code": seen.code, "reason": seen.reason}

    return observe


for _what, _change in INVALID.items():
    row(f"refused as invalid: {_what}", code=422, reason="Invalid")(_invalid(_change))


@row("a quantity that nobody can read is a bad request", code=400, reason="BadRequest")
def _(api: Api):
    body = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    seen = api.ask("POST", api.pods, body)
    return {"code": seen.code, "reason": seen.reason}


@row("kind, name and namespace must fit the path", codes=[400, 400, 400])
def _(api: Api):
    api.make(api.pods, pod())
    other = pod()
    other["metadata"]["namespace"] = "default"
    answers = (
        api.ask("POST", api.pods, {**pod("q"), "kind": "Node"}),
        api.ask("POST", api.pods, other),
        api.ask("PUT", f"{api.pods}/p", pod("q")),
    )
    return {"codes": [seen.code for seen in answers]}


@row("generateName", code=201, begins=True, longer=True)
def _(api: Api):
    body = pod()
    body["metadata"] = {"generateName": "gen-"}
    made = api.ask("POST", api.pods, body)
    name = str(made.at("metadata", "name"))
    return {"code": made.code, "begins": name.startswith("gen-"), "longer": len(name) == 9}


@row("a PUT with an old version is refused", code=409, reason="Conflict")
def _(api: Api):
    old = dict(api.make(api.maps, config_map()).body)
    api.ask("PATCH", f"{api.maps}/m", {"data": {"k": "2"}}, type=MERGE)
    seen = api.ask("PUT", f"{api.maps}/m", {**old, "data": {"k": "3"}})
    return {"code": seen.code, "reason": seen.reason}


@row("a PUT without a version replaces", code=200, data={"n": "1"}, grown=True)
def _(api: Api):
    old = api.make(api.maps, config_map())
    seen = api.ask("PUT", f"{api.maps}/m", config_map(data={"n": "1"}))
    grown = int(seen.at("metadata", "resourceVersion")) > int(old.at("metadata", "resourceVersion"))
    return {"code": seen.code, "data": seen.body.get("data"), "grown": grown}


@row("a change that changes nothing keeps the version", merge=True, put=True)
def _(api: Api):
    made = api.make(api.maps, config_map())
    version = made.at("metadata", "resourceVersion")
    merged = api.ask("PATCH", f"{api.maps}/m", {"data": {"k": "1"}}, type=MERGE)
    put = api.ask("PUT", f"{api.maps}/m", dict(made.body))
    return {
        "merge": merged.at("metadata", "resourceVersion") == version,
        "put": put.at("metadata", "resourceVersion") == version,
    }


@row("merge patch: adds, replaces and, with null, removes", code=200, data={"b": "2"})
def _(api: Api):
    api.make(api.maps, config_map(data={"a": "1", "b": "1"}))
    seen = api.ask("PATCH", f"{api.maps}/m", {"data": {"a": None, "b": "2"}}, type=MERGE)
    return {"code": seen.code, "data": seen.body.get("data")}


@row("merge patch: a version in it is a precondition", old=[409, "Conflict"], current=200)
def _(api: Api):
    first = api.make(api.maps, config_map()).at("metadata", "resourceVersion")
    second = api.ask("PATCH", f"{api.maps}/m", {"data": {"k": "2"}}, type=MERGE).at("metadata", "resourceVersion")
    old = api.ask("PATCH", f"{api.maps}/m", {"metadata": {"resourceVersion": first}, "data": {"k": "3"}}, type=MERGE)
    new = api.ask("PATCH", f"{api.maps}/m", {"metadata": {"resourceVersion": second}, "data": {"k": "4"}}, type=MERGE)
    return {"old": [old.code, old.reason], "current": new.code}


@row("a patch of what is not there", codes=[404, 404, 404])
def _(api: Api):
    types = {MERGE: {}, STRATEGIC: {}, JSON_PATCH: []}
    return {"codes": [api.ask("PATCH", f"{api.maps}/m", body, type=type).code for type, body in types.items()]}


@row("json patch: add, replace, remove, test", code=200, data={"b": "2"})
def _(api: Api):
    api.make(api.maps, config_map(data={"a": "1"}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "1"},
        {"op": "replace", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/a"},
    ]  # fmt: skip
    seen = api.ask("PATCH", f"{api.maps}/m", operations, type=JSON_PATCH)
    return {"code": seen.code, "data": seen.body.get("data")}


@row("json patch: what cannot be done changes nothing", test=422, remove=422, data={"k": "1"})
def _(api: Api):
    api.make(api.maps, config_map())
    tested = [{"op": "replace", "path": "/data/k", "value": "2"}, {"op": "test", "path": "/data/k", "value": "9"}]
    test = api.ask("PATCH", f"{api.maps}/m", tested, type=JSON_PATCH)
    remove = api.ask("PATCH", f"{api.maps}/m", [{"op": "remove", "path": "/data/x"}], type=JSON_PATCH)
    return {"test": test.code, "remove": remove.code, "data": api.get(f"{api.maps}/m").body.get("data")}


@row("json patch: a slash in a key", code=200, annotations={"a/b": "2"})
def _(api: Api):
    api.make(api.maps, config_map(annotations={"a/b": "1"}))
    operation = {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "2"}
    seen = api.ask("PATCH", f"{api.maps}/m", [operation], type=JSON_PATCH)
    return {"code": seen.code, "annotations": seen.at("metadata", "annotations")}


@row("strategic patch: containers are merged by name", images=["new", "i:2"])
def _(api: Api):
    api.make(api.pods, pod())
    seen = api.ask("PATCH", f"{api.pods}/p", {"spec": {"containers": [{"name": "a", "image": "new"}]}}, type=STRATEGIC)
    return {"images": [container["image"] for container in seen.at("spec", "containers") or ()]}


@row("strategic patch: conditions are merged by type", types=["Ready", "PodScheduled"], phase="Running")
def _(api: Api):
    api.make(api.pods, pod())
    status = f"{api.pods}/p/status"
    for type in ("PodScheduled", "Ready"):
        change = {"status": {"phase": "Running", "conditions": [{"type": type, "status": "True"}]}}
        seen = api.ask("PATCH", status, change, type=STRATEGIC)
    return {
        "types": [one["type"] for one in seen.at("status", "conditions") or ()],
        "phase": seen.at("status", "phase"),
    }


@row("a patch of a type that nobody knows", code=415)
def _(api: Api):
    api.make(api.maps, config_map())
    return {"code": api.ask("PATCH", f"{api.maps}/m", {}, type="application/json").code}


@row(
    "server-side apply creates, owns, and refuses what another owns",
    made=201,
    managers=["one"],
    conflict=[409, "Conflict"],
    forced="2",
)
def _(api: Api):
    made = api.ask("PATCH", f"{api.maps}/m?fieldManager=one", config_map(), type=APPLY)
    managers = [entry["manager"] for entry in made.at("metadata", "managedFields") or ()]
    other = config_map(data={"k": "2"})
    conflict = api.ask("PATCH", f"{api.maps}/m?fieldManager=two", other, type=APPLY)
    forced = api.ask("PATCH", f"{api.maps}/m?fieldManager=two&force=true", other, type=APPLY)
    return {
        "made": made.code,
        "managers": managers,
        "conflict": [conflict.code, conflict.reason],
        "forced": forced.at("data", "k"),
    }


@row("server-side apply removes what its manager no longer names", data={"b": "1"})
def _(api: Api):
    path = f"{api.maps}/m?fieldManager=one"
    api.ask("PATCH", path, config_map(data={"a": "1", "b": "1"}), type=APPLY)
    return {"data": api.ask("PATCH", path, config_map(data={"b": "1"}), type=APPLY).body.get("data")}


@row("server-side apply needs a field manager", code=422)
def _(api: Api):
    return {"code": api.ask("PATCH", f"{api.maps}/m", config_map(), type=APPLY).code}


@row("a dry run changes nothing", create=[201, 404], patch=[200, "1"], delete=[200, 200])
def _(api: Api):
    made = api.ask("POST", f"{api.maps}?dryRun=All", config_map("dry"))
    missing = api.get(f"{api.maps}/dry")
    api.make(api.maps, config_map())
    patched = api.ask("PATCH", f"{api.maps}/m?dryRun=All", {"data": {"k": "2"}}, type=MERGE)
    kept = api.get(f"{api.maps}/m").at("data", "k")
    deleted = api.ask("DELETE", f"{api.maps}/m?dryRun=All")
    return {
        "create": [made.code, missing.code],
        "patch": [patched.code, kept],
        "delete": [deleted.code, api.get(f"{api.maps}/m").code],
    }


@row("deletion: 200, then gone", code=200, after=404)
def _(api: Api):
    api.make(api.maps, config_map())
    return {"code": api.ask("DELETE", f"{api.maps}/m").code, "after": api.get(f"{api.maps}/m").code}


@row("deletion with another's UID is refused", code=409, reason="Conflict")
def _(api: Api):
    api.make(api.maps, config_map())
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}}
    seen = api.ask("DELETE", f"{api.maps}/m", options)
    return {"code": seen.code, "reason": seen.reason}


@row("a finalizer keeps what is deleted until it is taken off", kept=True, again=200, after=404)
def _(api: Api):
    api.make(api.maps, config_map(finalizers=["example.com/keep"]))
    api.ask("DELETE", f"{api.maps}/m")
    kept = bool(api.get(f"{api.maps}/m").at("metadata", "deletionTimestamp"))
    again = api.ask("PATCH", f"{api.maps}/m", {"metadata": {"finalizers": None}}, type=MERGE)
    return {"kept": kept, "again": again.code, "after": api.get(f"{api.maps}/m").code}


@row("a collection is deleted by selector", code=200, left=["b"])
def _(api: Api):
    api.make(api.maps, config_map("a", labels={"d": "1"}))
    api.make(api.maps, config_map("b"))
    code = api.ask("DELETE", f"{api.maps}?labelSelector=d%3D1").code
    left = [item["metadata"]["name"] for item in api.get(api.maps).body["items"]]
    return {"code": code, "left": [name for name in left if name != "kube-root-ca.crt"]}


SELECTORS = {
    "app=x": ["a"], "app==x": ["a"], "app!=x": ["b", "c"], "app in (x,y)": ["a", "b"], "app notin (x)": ["b", "c"],
    "app": ["a", "b"], "!app": ["c"], "app=x,tier": [], "app,!tier": ["a", "b"],
}  # fmt: skip


@row("label selectors", **SELECTORS)
def _(api: Api):
    from urllib.parse import quote

    for name, labels in {"a": {"app": "x"}, "b": {"app": "y"}, "c": {"tier": "1"}}.items():
        api.make(api.pods, pod(name, **labels))
    found = {text: api.get(f"{api.pods}?labelSelector={quote(text)}") for text in SELECTORS}
    return {
        text: sorted(item["metadata"]["name"] for item in seen.body.get("items", ())) for text, seen in found.items()
    }


@row("a selector that nobody can read", labels=400, fields=400)
def _(api: Api):
    return {
        "labels": api.get(f"{api.pods}?labelSelector=a%20b").code,
        "fields": api.get(f"{api.pods}?fieldSelector=spec.image%3Dx").code,
    }


@row("field selectors", by_name=["b"], by_phase=["a", "b"], by_node=[], not_name=["a"])
def _(api: Api):
    for name in ("a", "b"):
        api.make(api.pods, pod(name))

    def named(text: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get(f"{api.pods}?fieldSelector={text}").body["items"]]

    return {
        "by_name": named("metadata.name%3Db"),
        "by_phase": named("status.phase%3DPending"),
        "by_node": named("spec.nodeName%3Dn"),
        "not_name": named("metadata.name!%3Db"),
    }


@row("a list in pages", pages=[["a", "b"], ["c"]], kind="PodList", remaining=1, broken=400)
def _(api: Api):
    for name in ("a", "b", "c"):
        api.make(api.pods, pod(name))
    first = api.get(f"{api.pods}?limit=2")
    second = api.get(f"{api.pods}?limit=2&continue={first.at('metadata', 'continue')}")
    pages = [[item["metadata"]["name"] for item in page.body["items"]] for page in (first, second)]
    broken = api.get(f"{api.pods}?limit=2&continue=nonsense")
    return {
        "pages": pages,
        "kind": first.body["kind"],
        "remaining": first.at("metadata", "remainingItemCount"),
        "broken": broken.code,
    }


@row("items of a list carry no kind of their own", kinds=[None], version=True)
def _(api: Api):
    api.make(api.pods, pod())
    seen = api.get(api.pods)
    return {
        "kinds": [item.get("kind") for item in seen.body["items"]],
        "version": str(seen.at("metadata", "resourceVersion")).isdigit(),
    }


AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AS_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
ONE_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"


@row(
    "tables and metadata alone are given where asked for",
    table=["Table", "Name", "p"],
    list="PartialObjectMetadataList",
    one=["PartialObjectMetadata", None],
)
def _(api: Api):
    api.make(api.pods, pod())
    table = api.get(api.pods, accept=AS_TABLE)
    one = api.get(f"{api.pods}/p", accept=ONE_METADATA)
    return {
        "table": [table.body.get("kind"), table.at("columnDefinitions", 0, "name"), table.at("rows", 0, "cells", 0)],
        "list": api.get(api.pods, accept=AS_METADATA).body.get("kind"),
        "one": [one.body.get("kind"), one.body.get("spec")],
    }


@row("protobuf beside JSON is no trouble", code=200)
def _(api: Api):
    return {"code": api.get(api.pods, accept="application/vnd.kubernetes.protobuf;q=0.1, application/json").code}


@row(
    "no name at all",
    code=422,
    message='Pod "" is invalid: metadata.name: Required value: name or generateName is required',
)
def _(api: Api):
    seen = api.ask("POST", api.pods, {**pod(), "metadata": {}})
    return {"code": seen.code, "message": seen.message}


@row(
    "another namespace or name in the body than in the path",
    namespace=[400, "the namespace of the provided object does not match the namespace sent on the request"],
    name=[400, "the name of the object (other) does not match the name on the URL (c)"],
)
def _(api: Api):
    made = api.ask("POST", api.pods, {**pod(), "metadata": {"name": "p", "namespace": "other"}})
    api.make(api.maps, config_map("c"))
    put = api.ask("PUT", f"{api.maps}/c", config_map("other"))
    return {"namespace": [made.code, made.message], "name": [put.code, put.message]}


@row("a label or annotation that is no text", labels=[400, True], annotations=[400, True])
def _(api: Api):
    def seen(field: str, value: object) -> list[object]:
        answer = api.ask("POST", api.pods, {**pod(), "metadata": {"name": "p", field: {"a": value}}})
        return [answer.code, f"Go struct field ObjectMeta.metadata.{field} of type string" in answer.message]

    return {"labels": seen("labels", 1), "annotations": seen("annotations", True)}


@row("a priority class that is not there", code=403, told=True)
def _(api: Api):
    body = pod()
    body["spec"]["priorityClassName"] = "none"
    seen = api.ask("POST", api.pods, body)
    return {"code": seen.code, "told": "no PriorityClass with name none was found" in seen.message}


@row("the plain text of a secret is encoded", data={"a": "MQ=="}, plain=None, type="Opaque")
def _(api: Api):
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}}
    made = api.make(f"/api/v1/namespaces/{api.ns}/secrets", body)
    return {"data": made.at("data"), "plain": made.at("stringData"), "type": made.at("type")}


@row("a lease is replaced with its version only", code=422, told=True)
def _(api: Api):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.ns}/leases"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    api.make(path, body)
    seen = api.ask("PUT", f"{path}/l", body)
    return {"code": seen.code, "told": "metadata.resourceVersion: Invalid value" in seen.message}


@row("the namespace default stays", code=403, told=True)
def _(api: Api):
    seen = api.ask("DELETE", "/api/v1/namespaces/default")
    return {"code": seen.code, "told": "this namespace may not be deleted" in seen.message}
