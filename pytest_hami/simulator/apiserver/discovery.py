"""Discovery documents, versions, OpenAPI and tables: what clients ask before and beside the objects."""

from __future__ import annotations

import datetime
from typing import Any

from pytest_hami.simulator.apiserver.kinds import Kind, Registry

VERSION = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.3+pytest-hami-simulated", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "linux/amd64",
}  # fmt: skip
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# What kubectl get all shows.
IN_ALL = {("", "pods"), ("", "services"), ("", "replicationcontrollers"), ("apps", "daemonsets"), ("apps", "deployments"),
          ("apps", "replicasets"), ("apps", "statefulsets"), ("batch", "jobs"), ("batch", "cronjobs")}  # fmt: skip
SUBRESOURCES = {
    "pods": ("status", "binding", "eviction", "log", "exec"),
    "nodes": ("status",),
    "namespaces": ("status",),
    "resourcequotas": ("status",),
}


def api_versions() -> dict[str, Any]:
    """Return ``/api``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(registry: Registry) -> dict[str, Any]:
    """Return ``/apis``."""
    listed = []
    for name, versions in sorted(registry.groups().items()):
        entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
        listed.append({"name": name, "versions": entries, "preferredVersion": entries[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def resources(registry: Registry, group: str, version: str) -> dict[str, Any] | None:
    """Return the resources of a group version, None when it is not served."""
    kinds = registry.of(group, version)
    if not kinds:
        return None
    listed: list[dict[str, Any]] = []
    for kind in kinds:
        entry: dict[str, Any] = {
            "name": kind.plural, "singularName": kind.kind.lower(), "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": VERBS,
        }  # fmt: skip
        if (kind.group, kind.plural) in IN_ALL:
            entry["categories"] = ["all"]
        if kind.short:
            entry["shortNames"] = list(kind.short)
        listed.append(entry)
        for sub in SUBRESOURCES.get(kind.plural, ()) if not kind.group else ():
            verbs = ["get", "patch", "update"] if sub == "status" else ["create", "get"]
            listed.append(
                {"name": f"{kind.plural}/{sub}", "singularName": "", "namespaced": kind.namespaced,
                 "kind": {"binding": "Binding", "eviction": "Eviction"}.get(sub, kind.kind), "verbs": verbs}
            )  # fmt: skip
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def openapi_v2() -> dict[str, Any]:
    """Return a document without models: enough for clients that only look for it."""
    return {"swagger": "2.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": {}}


def openapi_v3(registry: Registry) -> dict[str, Any]:
    """Return the index of OpenAPI v3 documents."""
    names = ["api/v1", *(f"apis/{g}/{v}" for g, versions in registry.groups().items() for v in versions)]
    return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in names}}


def openapi_v3_group(registry: Registry, group: str, version: str) -> dict[str, Any]:
    """Return a document with an open schema for each kind, so that kubectl validates nothing away."""
    schemas = {}
    paths: dict[str, Any] = {}
    for kind in registry.of(group, version):
        schemas[f"sim.{kind.kind}"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": kind.kind}],
        }
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        middle = "/namespaces/{namespace}" if kind.namespaced else ""
        gvk = {"group": group, "version": version, "kind": kind.kind}
        query = [{"name": name, "in": "query", "schema": {"type": "string"}}
                 for name in ("dryRun", "fieldManager", "fieldValidation", "force")]  # fmt: skip
        paths[f"{root}{middle}/{kind.plural}/{{name}}"] = {
            "patch": {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk, "parameters": query,
                      "responses": {"200": {"description": "OK"}}}
        }  # fmt: skip
    return {
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": paths,
        "components": {"schemas": schemas},
    }  # fmt: skip


def table(
    kind: Kind, objects: list[dict[str, Any]], metadata: dict[str, Any], now: datetime.datetime
) -> dict[str, Any]:
    """Return objects as a Table, with kubectl's usual columns for pods, nodes and events."""
    columns = {"pods": ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"),
               "nodes": ("Name", "Status", "Roles", "Age", "Version"),
               "events": ("Last Seen", "Type", "Reason", "Object", "Message")}.get(kind.plural, ("Name", "Age"))  # fmt: skip
    wide = {"IP", "Node"}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "",
             "priority": 1 if name in wide else 0}
            for name in columns
        ],
        "rows": [
            {
                "cells": [_cell(kind, column, object_, now) for column in columns],
                "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object_["metadata"]},
            }
            for object_ in objects
        ],
    }  # fmt: skip


def _cell(kind: Kind, column: str, object_: dict[str, Any], now: datetime.datetime) -> str:
    metadata, status = object_["metadata"], object_.get("status") or {}
    statuses = status.get("containerStatuses") or []
    if column == "Name":
        return str(metadata["name"])
    if column in {"Age", "Last Seen"}:
        return age(str(object_.get("lastTimestamp") or metadata.get("creationTimestamp", "")), now)
    if column == "Ready":
        total = len((object_.get("spec") or {}).get("containers") or [])
        return f"{sum(bool(entry.get('ready')) for entry in statuses)}/{total}"
    if column == "Restarts":
        return str(sum(int(entry.get("restartCount", 0)) for entry in statuses))
    if column == "Status" and kind.plural == "pods":
        return (
            "Terminating" if metadata.get("deletionTimestamp") else str(status.get("reason") or status.get("phase", ""))
        )
    if column == "Status":
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
        cordoned = ",SchedulingDisabled" if (object_.get("spec") or {}).get("unschedulable") else ""
        return ("Ready" if ready else "NotReady") + cordoned
    if column == "IP":
        return str(status.get("podIP") or "<none>")
    if column == "Node":
        return str((object_.get("spec") or {}).get("nodeName") or "<none>")
    if column == "Version":
        return str((status.get("nodeInfo") or {}).get("kubeletVersion", ""))
    if column == "Object":
        about = object_.get("involvedObject") or {}
        return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    return str(object_.get(column.lower(), "<none>"))


def age(timestamp: str, now: datetime.datetime) -> str:
    """Return a short age such as ``5m``."""
    try:
        seconds = int((now - datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00"))).total_seconds())
    except ValueError:
        return "<unknown>"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"
