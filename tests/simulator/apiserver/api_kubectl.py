"""Rows: kubectl 1.36, as a person uses it."""

from __future__ import annotations

import json

from api_pods import bound
from api_table import Api, Table, config_map, pod

TABLE = Table()
row = TABLE.row


def lines(answer: tuple[int, str]) -> list[object]:
    code, text = answer
    return [code, text.strip()]


@row("kubectl version", code=0, server=True)
def _(api: Api):
    code, text = api.kubectl("version")
    return {"code": code, "server": "Server Version: v1." in text}


@row("kubectl api-resources", code=0, pods=True)
def _(api: Api):
    code, text = api.kubectl("api-resources")
    return {"code": code, "pods": any(line.split()[:3] == ["pods", "po", "v1"] for line in text.splitlines())}


@row(
    "kubectl create, get by name, label and output, delete",
    made=[0, "pod/p created"],
    row=["p", "0/2", "Pending", "0"],
    names=[0, "pod/p"],
    none=[0, ""],
    json="p",
    gone=[0, True],
)
def _(api: Api):
    made = lines(api.kubectl("create", "-f", "-", text=pod(app="x")))
    table = api.kubectl("get", "pods")[1].splitlines()[-1].split()[:4]
    names = lines(api.kubectl("get", "pods", "-l", "app=x", "-o", "name"))
    none = lines(api.kubectl("get", "pods", "-l", "app=y", "-o", "name"))
    found = json.loads(api.kubectl("get", "pods", "-o", "json")[1])["items"][0]["metadata"]["name"]
    code, text = api.kubectl("delete", "pod", "p", "--timeout=8s")
    return {
        "made": made,
        "row": table,
        "names": names,
        "none": none,
        "json": found,
        "gone": [code, 'pod "p" deleted' in text],
    }


@row(
    "kubectl apply: created, unchanged, configured",
    said=["configmap/m created", "configmap/m unchanged", "configmap/m configured"],
)
def _(api: Api):
    bodies = (config_map(), config_map(), config_map(data={"k": "2"}))
    return {"said": [api.kubectl("apply", "-f", "-", text=body)[1].strip() for body in bodies]}


@row("kubectl apply --server-side", said=[0, "configmap/m serverside-applied"], conflict=[1, True])
def _(api: Api):
    said = lines(api.kubectl("apply", "--server-side", "-f", "-", text=config_map()))
    code, text = api.kubectl(
        "apply", "--server-side", "--field-manager=other", "-f", "-", text=config_map(data={"k": "2"})
    )
    return {"said": said, "conflict": [code, "conflict" in text]}


@row(
    "kubectl label, annotate and patch",
    said=["pod/p labeled", "pod/p annotated", "pod/p patched", "pod/p patched (no change)"],
)
def _(api: Api):
    api.make(api.pods, pod())
    patch = ("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"b":"1"}}}')
    commands = (("label", "pod", "p", "a=1"), ("annotate", "pod", "p", "a=1"), patch, patch)
    return {"said": [api.kubectl(*command)[1].strip() for command in commands]}


@row("kubectl describe shows containers and events", code=0, containers=True, events=True)
def _(api: Api):
    uid = api.make(api.pods, pod()).at("metadata", "uid")
    api.make(f"/api/v1/namespaces/{api.ns}/events", {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "FilteringFailed",
        "message": "no card", "type": "Warning",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": api.ns, "uid": uid},
        "source": {"component": "hami-scheduler"},
    })  # fmt: skip
    code, text = api.kubectl("describe", "pod", "p")
    return {
        "code": code,
        "containers": "Containers:" in text,
        "events": "FilteringFailed" in text and "no card" in text,
    }


@row("kubectl describe node", code=0, allocatable=True)
def _(api: Api):
    code, text = api.kubectl("describe", "node", api.node)
    return {"code": code, "allocatable": "Allocatable:" in text and "nvidia.com/gpu" in text}


@row("kubectl logs and exec where nobody placed the pod", logs=[0, ""], exec=[1, True])
def _(api: Api):
    api.make(api.pods, pod())
    code, text = api.kubectl("exec", "p", "-c", "a", "--", "true")
    return {"logs": lines(api.kubectl("logs", "p", "-c", "a")), "exec": [code, "does not have a host assigned" in text]}


@row("kubectl exec in a pod that runs: output and exit code", said=[0, "hello"], code=3, logs=0)
def _(api: Api):
    bound(api)
    said = lines(api.kubectl("exec", "p", "-c", "a", "--", "echo", "hello"))
    return {
        "said": said,
        "code": api.kubectl("exec", "p", "-c", "a", "--", "sh", "-c", "exit 3")[0],
        "logs": api.kubectl("logs", "p", "-c", "a")[0],
    }


@row("kubectl wait for a condition and for deletion", ready=0, gone=0, never=1)
def _(api: Api):
    bound(api)
    ready = api.kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=8s")[0]
    never = api.kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Failed", "--timeout=1s")[0]
    api.ask("DELETE", f"{api.pods}/p?gracePeriodSeconds=1")
    return {"ready": ready, "gone": api.kubectl("wait", "pod/p", "--for=delete", "--timeout=8s")[0], "never": never}


@row("kubectl get events, deployments and all", events=0, deployments=0, all=0)
def _(api: Api):
    return {
        "events": api.kubectl("get", "events")[0],
        "deployments": api.kubectl("get", "deploy")[0],
        "all": api.kubectl("get", "all")[0],
    }


@row("kubectl auth can-i", said=[0, "yes"])
def _(api: Api):
    return {"said": lines(api.kubectl("auth", "can-i", "create", "pods"))}


@row("kubectl of what is not there", said=[1, 'Error from server (NotFound): pods "nope" not found'])
def _(api: Api):
    return {"said": lines(api.kubectl("get", "pod", "nope"))}


@row("kubectl taint and cordon of a node", taint=0, cordon=0, after=[["example.com/t"], True], back=0)
def _(api: Api):
    taint = api.kubectl("taint", "node", api.node, "example.com/t=1:PreferNoSchedule")[0]
    cordon = api.kubectl("cordon", api.node)[0]
    spec = api.get(f"/api/v1/nodes/{api.node}").at("spec")
    keys = [one["key"] for one in spec.get("taints", ()) if one["key"].startswith("example.com")]
    back = api.kubectl("uncordon", api.node)[0] + api.kubectl("taint", "node", api.node, "example.com/t-")[0]
    return {"taint": taint, "cordon": cordon, "after": [keys, spec.get("unschedulable")], "back": back}
