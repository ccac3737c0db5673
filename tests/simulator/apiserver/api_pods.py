"""Rows: subresources of pods, events, namespaces, nodes, quota, admission, and what clients ask before anything else."""

from __future__ import annotations

from api_table import JSON_PATCH, MERGE, STRATEGIC, Api, Table, binding, config_map, pod

TABLE = Table()
row = TABLE.row
CARDS = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}}


def bound(api: Api, name: str = "p") -> None:
    """Create a pod on a node with a kubelet, and wait until it runs."""
    body = pod(name)
    body["spec"]["nodeName"] = api.node
    api.make(api.pods, body)
    assert api.eventually(lambda: api.get(f"{api.pods}/{name}").at("status", "phase"), "Running") == "Running"


@row("an image may change, the rest of a pod's spec may not", image=200, node=422, resources=422, name=422)
def _(api: Api):
    api.make(api.pods, pod())
    path = f"{api.pods}/p"
    return {
        "image": api.ask("PATCH", path, {"spec": {"containers": [{"name": "a", "image": "new"}]}}, type=STRATEGIC).code,
        "node": api.ask("PATCH", path, {"spec": {"nodeName": "n"}}, type=MERGE).code,
        "resources": api.ask(
            "PATCH",
            path,
            [{"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"cpu": "1"}}}],
            type=JSON_PATCH,
        ).code,
        "name": api.ask(
            "PATCH", path, [{"op": "replace", "path": "/spec/containers/0/name", "value": "z"}], type=JSON_PATCH
        ).code,
    }


@row("status and the rest are written apart", status=["Running", "i:1"], rest=["Running", "new"])
def _(api: Api):
    api.make(api.pods, pod())
    both = {"status": {"phase": "Running"}, "spec": {"containers": [{"name": "a", "image": "new"}]}}
    first = api.ask("PATCH", f"{api.pods}/p/status", both, type=STRATEGIC)
    second = api.ask("PATCH", f"{api.pods}/p", {**both, "status": {"phase": "Failed"}}, type=STRATEGIC)
    return {
        name: [seen.at("status", "phase"), seen.at("spec", "containers", 0, "image")]
        for name, seen in (("status", first), ("rest", second))
    }


@row("the status subresource changes metadata such as annotations as well", annotations={"a": "1"})
def _(api: Api):
    api.make(api.pods, pod())
    change = {"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}}
    return {"annotations": api.ask("PATCH", f"{api.pods}/p/status", change, type=MERGE).at("metadata", "annotations")}


@row("a binding sets node, condition and annotations", code=201, node="n1", condition="True", annotations={"b": "1"})
def _(api: Api):
    api.make(api.pods, pod())
    body = binding("p", "n1")
    body["metadata"]["annotations"] = {"b": "1"}
    code = api.ask("POST", f"{api.pods}/p/binding", body).code
    seen = api.get(f"{api.pods}/p")
    conditions = {one["type"]: one["status"] for one in seen.at("status", "conditions") or ()}
    return {
        "code": code,
        "node": seen.at("spec", "nodeName"),
        "condition": conditions.get("PodScheduled"),
        "annotations": seen.at("metadata", "annotations"),
    }


@row("a second binding, one of another UID, and one of no pod", second=409, other=409, none=404)
def _(api: Api):
    api.make(api.pods, pod())
    other = binding("p", "n1")
    other["metadata"]["uid"] = "other"
    wrong = api.ask("POST", f"{api.pods}/p/binding", other).code
    api.make(f"{api.pods}/p/binding", binding("p", "n1"))
    return {
        "second": api.ask("POST", f"{api.pods}/p/binding", binding("p", "n2")).code,
        "other": wrong,
        "none": api.ask("POST", f"{api.pods}/nope/binding", binding("nope", "n1")).code,
    }


@row("a binding through the collection, as client-go of old made it", code=201, node="n1")
def _(api: Api):
    api.make(api.pods, pod())
    code = api.ask("POST", "/api/v1/namespaces/{ns}/bindings", binding("p", "n1")).code
    return {"code": code, "node": api.get(f"{api.pods}/p").at("spec", "nodeName")}


@row("an eviction deletes", code=201, after=404)
def _(api: Api):
    api.make(api.pods, pod())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    return {"code": api.ask("POST", f"{api.pods}/p/eviction", body).code, "after": api.get(f"{api.pods}/p").code}


@row(
    "a pod that nobody placed is gone at once, one on a node without kubelet stays, without grace it goes",
    unplaced=404,
    placed=[200, True],
    forced=404,
)
def _(api: Api):
    for name in ("p", "q"):
        api.make(api.pods, pod(name))
    api.make(f"{api.pods}/q/binding", binding("q", "nobody-there"))
    api.ask("DELETE", f"{api.pods}/p")
    api.ask("DELETE", f"{api.pods}/q")
    placed = api.get(f"{api.pods}/q")
    api.ask("DELETE", f"{api.pods}/q?gracePeriodSeconds=0")
    return {
        "unplaced": api.get(f"{api.pods}/p").code,
        "placed": [placed.code, bool(placed.at("metadata", "deletionTimestamp"))],
        "forced": api.get(f"{api.pods}/q").code,
    }


@row("a pod with a kubelet ends and goes", after=404)
def _(api: Api):
    bound(api)
    api.ask("DELETE", f"{api.pods}/p?gracePeriodSeconds=1")
    return {"after": api.eventually(lambda: api.get(f"{api.pods}/p").code, 404)}


@row("the log of a pod that nobody placed is empty", named=[204, ""], unnamed=[400, True], wrong=400)
def _(api: Api):
    api.make(api.pods, pod())
    named, unnamed = api.get(f"{api.pods}/p/log?container=a"), api.get(f"{api.pods}/p/log")
    return {
        "named": [named.code, named.at("text")],
        "unnamed": [unnamed.code, "choose one of: [a b]" in unnamed.message],
        "wrong": api.get(f"{api.pods}/p/log?container=z").code,
    }


@row("the log of a pod that runs is text", code=200, json=False)
def _(api: Api):
    bound(api)
    seen = api.get(f"{api.pods}/p/log?container=a")
    return {"code": seen.code, "json": "kind" in seen.body}


@row("exec in a pod that nobody placed", code=400, text=True)
def _(api: Api):
    api.make(api.pods, pod())
    seen = api.ask("POST", f"{api.pods}/p/exec?container=a&command=true&stdout=1")
    return {"code": seen.code, "text": "does not have a host assigned" in seen.message}


@row("a service that is not there has no proxy", code=404)
def _(api: Api):
    return {"code": api.get("/api/v1/namespaces/{ns}/services/s:80/proxy/metrics").code}


def event(name: str, about: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "FilteringFailed", "message": "m",
        "type": "Warning", "involvedObject": {"kind": "Pod", "name": about, "namespace": "{ns}"},
    }  # fmt: skip


EVENTS, NEW_EVENTS = "/api/v1/namespaces/{ns}/events", "/apis/events.k8s.io/v1/namespaces/{ns}/events"


@row("events are found by their object, reason and type", object=["e1"], reason=["e1", "e2"], type=[])
def _(api: Api):
    for name, about in (("e1", "p"), ("e2", "q")):
        body = event(name, about)
        body["involvedObject"]["namespace"] = api.ns  # type: ignore[index]
        api.make(EVENTS.replace("{ns}", api.ns), body)

    def named(text: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get(f"{EVENTS}?fieldSelector={text}").body.get("items", ())]

    return {
        "object": named("involvedObject.name%3Dp"),
        "reason": named("reason%3DFilteringFailed"),
        "type": named("type%3DNormal"),
    }


@row("core and events.k8s.io are one store", old=["note", "controller"], new="m")
def _(api: Api):
    body = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "new"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "controller", "reportingInstance": "i", "action": "Binding", "reason": "Scheduled",
        "note": "note", "type": "Normal", "regarding": {"kind": "Pod", "name": "p", "namespace": api.ns},
    }  # fmt: skip
    api.make(NEW_EVENTS.replace("{ns}", api.ns), body)
    old = event("old", "p")
    old["involvedObject"]["namespace"] = api.ns  # type: ignore[index]
    api.make(EVENTS.replace("{ns}", api.ns), old)
    seen = api.get(f"{EVENTS}/new")
    return {"old": [seen.at("message"), seen.at("reportingComponent")], "new": api.get(f"{NEW_EVENTS}/old").at("note")}


@row("an event about another namespace is refused", code=422)
def _(api: Api):
    body = event("e", "p")
    body["involvedObject"]["namespace"] = "default"  # type: ignore[index]
    return {"code": api.ask("POST", EVENTS, body).code}


@row(
    "a namespace is active, labelled with its name, and goes with what it holds",
    phase="Active",
    label=True,
    after=404,
    content=404,
)
def _(api: Api):
    name = f"{api.ns}-other"
    made = api.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.make(f"/api/v1/namespaces/{name}/configmaps", config_map())
    api.ask("DELETE", f"/api/v1/namespaces/{name}")
    after = api.eventually(lambda: api.get(f"/api/v1/namespaces/{name}").code, 404)
    return {
        "phase": made.at("status", "phase"),
        "label": made.at("metadata", "labels") == {"kubernetes.io/metadata.name": name},
        "after": after,
        "content": api.get(f"/api/v1/namespaces/{name}/configmaps/m").code,
    }


@row("a namespace that ends takes nothing new", phase="Terminating", code=403, reason="Forbidden", text=True)
def _(api: Api):
    name = f"{api.ns}-ends"
    api.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    maps = f"/api/v1/namespaces/{name}/configmaps"
    api.make(maps, config_map(finalizers=["example.com/keep"]))
    api.ask("DELETE", f"/api/v1/namespaces/{name}")
    phase = api.get(f"/api/v1/namespaces/{name}").at("status", "phase")
    seen = api.ask("POST", maps, config_map("late"))
    api.ask("PATCH", f"{maps}/m", {"metadata": {"finalizers": None}}, type=MERGE)
    return {
        "phase": phase,
        "code": seen.code,
        "reason": seen.reason,
        "text": "because it is being terminated" in seen.message,
    }


@row("a node is found by its label and changed without its namespace", patched="1", listed=True)
def _(api: Api):
    seen = api.ask(
        "PATCH", f"/api/v1/nodes/{api.node}", {"metadata": {"annotations": {"example.com/a": "1"}}}, type=MERGE
    )
    found = api.get(f"/api/v1/nodes?labelSelector=kubernetes.io/hostname%3D{api.node}")
    return {
        "patched": seen.at("metadata", "annotations", "example.com/a"),
        "listed": [n["metadata"]["name"] for n in found.body["items"]] == [api.node],
    }


@row("a lease is an optimistic lock", made=201, stale=409)
def _(api: Api):
    path = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "one"},
    }
    made = api.ask("POST", path, body)
    held = {**made.body, "spec": {"holderIdentity": "two"}}
    api.ask("PUT", f"{path}/l", held)
    return {"made": made.code, "stale": api.ask("PUT", f"{path}/l", {**held, "spec": {"holderIdentity": "three"}}).code}


@row("a quota of pods is kept", first=201, second=[403, "Forbidden"], text=True)
def _(api: Api):
    quotas = "/api/v1/namespaces/{ns}/resourcequotas"
    api.ask(
        "POST",
        quotas,
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}},
    )
    api.eventually(lambda: api.get(f"{quotas}/q").at("status", "hard", "pods"), "1")
    first, second = api.ask("POST", api.pods, pod("p")), api.ask("POST", api.pods, pod("q"))
    return {"first": first.code, "second": [second.code, second.reason], "text": "exceeded quota: q" in second.message}


@row("a runtime class must exist", code=403, text=True)
def _(api: Api):
    body = pod()
    body["spec"]["runtimeClassName"] = "nobody-has-it"
    seen = api.ask("POST", api.pods, body)
    return {"code": seen.code, "text": 'RuntimeClass "nobody-has-it" not found' in seen.message}


@row("a mutating webhook changes what is stored, and a dry run alike", stored="hami-scheduler", dry="hami-scheduler")
def _(api: Api):
    body = pod()
    del body["spec"]["schedulerName"]
    body["spec"]["containers"][0]["resources"] = CARDS
    dry = api.ask("POST", f"{api.pods}?dryRun=All", body)
    return {"stored": api.make(api.pods, body).at("spec", "schedulerName"), "dry": dry.at("spec", "schedulerName")}


@row("a webhook's refusal carries its own text", code=403, reason="Forbidden", begins=True)
def _(api: Api):
    body = pod()
    body["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "150"}
    }
    body["spec"].pop("schedulerName")
    api_quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "1"}},
    }
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}}
    api.make(f"/api/v1/namespaces/{api.ns}/resourcequotas", api_quota)

    def seen() -> int:
        return api.ask("POST", f"{api.pods}?dryRun=All", body).code

    api.eventually(seen, 403)
    refused = api.ask("POST", api.pods, body)
    return {
        "code": refused.code,
        "reason": refused.reason or "Forbidden",
        "begins": refused.message.startswith('admission webhook "vgpu.hami.io" denied the request: '),
    }


@row("a custom resource is served soon after its definition", served=200, made=201)
def _(api: Api):
    group = f"{api.ns}.example.com"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"foos.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos", "singular": "foo"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]},
    }  # fmt: skip
    api.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    served = api.eventually(lambda: api.get(f"/apis/{group}/v1").code, 200)
    body = {"apiVersion": f"{group}/v1", "kind": "Foo", "metadata": {"name": "f"}}
    made = api.eventually(lambda: api.ask("POST", f"/apis/{group}/v1/namespaces/{api.ns}/foos", body).code, 201)
    return {"served": served, "made": made}


@row("who may do what is answered", code=201, allowed=True)
def _(api: Api):
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": api.ns}},
    }
    seen = api.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return {"code": seen.code, "allowed": seen.at("status", "allowed")}


@row(
    "health, version and descriptions",
    **dict.fromkeys(("/readyz", "/livez", "/healthz", "/version", "/api", "/apis", "/openapi/v2", "/openapi/v3"), 200),
)
def _(api: Api):
    return {
        path: api.get(path).code
        for path in ("/readyz", "/livez", "/healthz", "/version", "/api", "/apis", "/openapi/v2", "/openapi/v3")
    }


@row(
    "discovery names each kind with its verbs",
    pods=["Pod", True, ["po"], True],
    nodes=["Node", False, ["no"], True],
    status=True,
)
def _(api: Api):
    found = {one["name"]: one for one in api.get("/api/v1").body["resources"]}
    return {
        **{
            name: [
                found[name]["kind"],
                found[name]["namespaced"],
                found[name].get("shortNames"),
                {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
                <= set(found[name]["verbs"]),
            ]
            for name in ("pods", "nodes")
        },
        "status": {"pods/status", "pods/binding", "pods/eviction", "pods/log", "pods/exec", "nodes/status"}
        <= set(found),
    }


# What the informers of kube-scheduler 1.36 and of HAMi read.
LISTED = {
    "/api/v1/pods": "PodList", "/api/v1/nodes": "NodeList", "/api/v1/namespaces": "NamespaceList",
    "/api/v1/services": "ServiceList", "/api/v1/replicationcontrollers": "ReplicationControllerList",
    "/api/v1/persistentvolumes": "PersistentVolumeList", "/api/v1/persistentvolumeclaims": "PersistentVolumeClaimList",
    "/api/v1/resourcequotas": "ResourceQuotaList", "/api/v1/configmaps": "ConfigMapList", "/api/v1/events": "EventList",
    "/apis/apps/v1/replicasets": "ReplicaSetList", "/apis/apps/v1/statefulsets": "StatefulSetList",
    "/apis/apps/v1/deployments": "DeploymentList", "/apis/apps/v1/daemonsets": "DaemonSetList",
    "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudgetList",
    "/apis/storage.k8s.io/v1/storageclasses": "StorageClassList", "/apis/storage.k8s.io/v1/csinodes": "CSINodeList",
    "/apis/storage.k8s.io/v1/csidrivers": "CSIDriverList",
    "/apis/storage.k8s.io/v1/csistoragecapacities": "CSIStorageCapacityList",
    "/apis/storage.k8s.io/v1/volumeattachments": "VolumeAttachmentList",
    "/apis/resource.k8s.io/v1/deviceclasses": "DeviceClassList",
    "/apis/resource.k8s.io/v1/resourceclaims": "ResourceClaimList",
    "/apis/resource.k8s.io/v1/resourceslices": "ResourceSliceList",
    "/apis/events.k8s.io/v1/events": "EventList", "/apis/coordination.k8s.io/v1/leases": "LeaseList",
    "/apis/node.k8s.io/v1/runtimeclasses": "RuntimeClassList",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": "MutatingWebhookConfigurationList",
}  # fmt: skip


@row("what the informers of HAMi and kube-scheduler list is there", **LISTED)
def _(api: Api):
    return {path: api.get(path).body.get("kind") for path in LISTED}
