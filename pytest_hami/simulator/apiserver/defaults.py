"""Defaulting and validation of what the checks create."""

from __future__ import annotations

import base64
import re
from typing import Any

from pytest_hami.contract.quantities import canonical_quantity, exact_quantity, parse_quantity
from pytest_hami.simulator.apiserver.errors import StatusError, invalid

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NATIVE = {"cpu", "memory", "ephemeral-storage"}
JSON_NAMES = {bool: "bool", int: "number", float: "number", list: "array"}
ANNOTATION_LIMIT = 256 << 10
RESTART_POLICIES = ("Always", "OnFailure", "Never")


def default(kind: str, object_: dict[str, Any]) -> None:
    """Fill in what the API server would; in place."""
    if kind == "Pod":
        _default_pod(object_)
    elif kind == "Namespace":
        object_.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        object_.setdefault("status", {}).setdefault("phase", "Active")
        object_["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = object_["metadata"]["name"]
    elif kind == "Secret":
        object_.setdefault("type", "Opaque")
        for key, text in (object_.pop("stringData", None) or {}).items():
            object_.setdefault("data", {})[key] = base64.b64encode(str(text).encode()).decode()
    elif kind == "Service":
        spec = object_.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))


def _default_pod(pod: dict[str, Any]) -> None:
    spec = pod.setdefault("spec", {})
    for key, value in (
        ("restartPolicy", "Always"), ("terminationGracePeriodSeconds", 30), ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"), ("enableServiceLinks", True), ("preemptionPolicy", "PreemptLowerPriority"),
    ):  # fmt: skip
        spec.setdefault(key, value)
    spec.setdefault("priority", 0)
    spec.setdefault("securityContext", {})
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        image = str(container.get("image", ""))
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        _require_quantities(resources)
        for name, value in list((resources.get("limits") or {}).items()):
            resources["limits"][name] = canonical_quantity(value)
            resources.setdefault("requests", {}).setdefault(name, resources["limits"][name])
        for name, value in list((resources.get("requests") or {}).items()):
            resources["requests"][name] = canonical_quantity(value)
    status = pod.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", _qos(spec))


def _require_quantities(resources: dict[str, Any]) -> None:
    for values in (resources.get("limits") or {}, resources.get("requests") or {}):
        for value in values.values():
            if exact_quantity(value) is None:
                text = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                raise StatusError(400, f'Pod in version "v1" cannot be handled as a Pod: {text}')


def _qos(spec: dict[str, Any]) -> str:
    seen = [
        {name: value for name, value in ((c.get("resources") or {}).get("requests") or {}).items() if name in _NATIVE}
        for c in spec.get("containers") or []
    ]
    return "Burstable" if any(seen) else "BestEffort"


def validate_metadata(kind: str, object_: dict[str, Any]) -> None:
    """Raise StatusError 422 for names, labels and annotations that Kubernetes refuses."""
    metadata = object_["metadata"]
    for field in ("labels", "annotations"):
        for value in (metadata.get(field) or {}).values():
            if not isinstance(value, str):
                seen = JSON_NAMES.get(type(value), "object")
                text = f"json: cannot unmarshal {seen} into Go struct field ObjectMeta.metadata.{field} of type string"
                version = object_.get("apiVersion", "v1").rsplit("/", 1)[-1]
                raise StatusError(400, f'{kind} in version "{version}" cannot be handled as a {kind}: {text}')
    name = metadata.get("name", "")
    causes = []
    if not _NAME.fullmatch(name) or len(name) > 253:
        causes.append(("metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of '
                       "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
                       f"(e.g. 'example.com', regex used for validation is '{_NAME.pattern}')"))  # fmt: skip
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            long = isinstance(value, str) and len(value) > 63
            text = "must be no more than 63 bytes" if long else f"a valid label must be (label {key})"
            causes.append(("metadata.labels", f'Invalid value: "{value}": {text}'))
    notes = metadata.get("annotations") or {}
    for field, keys in (("labels", metadata.get("labels") or {}), ("annotations", notes)):
        for key in keys:
            if not _KEY.fullmatch(str(key).lower() if field == "annotations" else str(key)):
                text = "name part must consist of alphanumeric characters, '-', '_' or '.'"
                causes.append((f"metadata.{field}", f'Invalid value: "{key}": {text}'))
    if sum(len(key) + len(value.encode("utf-8", "replace")) for key, value in notes.items()) > ANNOTATION_LIMIT:
        causes.append(("metadata.annotations", f"Too long: may not be more than {ANNOTATION_LIMIT} bytes"))
    if causes:
        raise invalid(kind, name, *causes)


def validate_pod(pod: dict[str, Any]) -> None:
    """Raise StatusError 422 for a pod that Kubernetes refuses: containers, extended resources."""
    spec = pod["spec"]
    causes: list[tuple[str, str]] = []
    if not spec.get("containers"):
        causes.append(("spec.containers", "Required value"))
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        supported = ", ".join(f'"{name}"' for name in RESTART_POLICIES)
        causes.append(
            ("spec.restartPolicy", f'Unsupported value: "{spec.get("restartPolicy")}": supported values: {supported}')
        )
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            where = f"spec.{group}[{index}]"
            name = container.get("name", "")
            if not name or name in seen:
                causes.append((f"{where}.name", f'Duplicate value: "{name}"' if name else "Required value"))
            seen.add(name)
            if not container.get("image"):
                causes.append((f"{where}.image", "Required value"))
            causes.extend(_resource_causes(container.get("resources") or {}, f"{where}.resources"))
    if causes:
        raise invalid("Pod", pod["metadata"].get("name", ""), *causes)


def _resource_causes(resources: dict[str, Any], where: str) -> list[tuple[str, str]]:
    causes = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for source, values in (("limits", limits), ("requests", requests)):
        for name, value in values.items():
            place = f"{where}.{source}[{name}]"
            if name in _NATIVE or name.startswith("hugepages-"):
                if (exact_quantity(value) or 0) < 0:
                    causes.append((place, f'Invalid value: "{value}": must be greater than or equal to 0'))
                continue
            number = parse_quantity(value)
            if number is None:
                causes.append((place, f'Invalid value: "{value}": must be an integer'))
            elif number < 0:
                causes.append((place, f'Invalid value: "{value}": must be greater than or equal to 0'))
    for name, value in requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            if name in limits and (exact_quantity(value) or 0) > (exact_quantity(limits[name]) or 0):
                text = f'Invalid value: "{value}": must be less than or equal to {name} limit of {limits[name]}'
                causes.append((f"{where}.requests", text))
            continue
        if name not in limits:
            causes.append((f"{where}.limits", "Required value: Limit must be set for non overcommitable resources"))
        elif parse_quantity(limits[name]) != parse_quantity(value):
            text = f'Invalid value: "{value}": must be equal to {name} limit of {limits[name]}'
            causes.append((f"{where}.requests", text))
    return causes


def validate_event(event: dict[str, Any]) -> None:
    """Raise StatusError 422 for an event in another namespace than that of its object."""
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    namespace = event["metadata"]["namespace"]
    if about != namespace and (about or namespace != "default"):
        text = f'Invalid value: "{about}": does not match event.namespace'
        raise invalid("Event", event["metadata"]["name"], ("involvedObject.namespace", text))


def validate_pod_update(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise StatusError 422 for a change of a pod's spec that Kubernetes does not allow.

    Source: Kubernetes 1.36, pkg/apis/core/validation/validation.go (ValidatePodUpdate).
    """
    if _fixed(old["spec"]) != _fixed(new["spec"]):
        text = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        raise invalid("Pod", old["metadata"]["name"], ("spec", text))


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    free = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates", "priority"}
    rest = {key: value for key, value in spec.items() if key not in free}
    for group in ("containers", "initContainers"):
        if group in rest:
            rest[group] = [
                {key: v for key, v in one.items() if key not in {"image", "imagePullPolicy"}} for one in rest[group]
            ]
    return rest
