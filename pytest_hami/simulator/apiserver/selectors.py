"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.simulator.apiserver.errors import StatusError

_SET = re.compile(r"\s*([^\s,!=()]+)\s+(in|notin)\s+\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s,!=()]+)\s*(==|=|!=)\s*([^\s,=()]*)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s,!=()]+)\s*")
MISSING = object()
# Kubernetes 1.36: pkg/registry/core and pkg/apis/core/v1/conversion.go.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    "nodes": ("spec.unschedulable",), "namespaces": ("status.phase",), "secrets": ("type",),
    "replicasets": ("status.replicas",), "replicationcontrollers": ("status.replicas",), "jobs": ("status.successful",),
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One requirement: ``In`` or ``NotIn`` values, ``Exists`` or ``DoesNotExist``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirement."""
        present = self.key in labels
        if self.operator == "In":
            return present and labels[self.key] in self.values
        if self.operator == "NotIn":
            return not present or labels[self.key] not in self.values
        return present is (self.operator == "Exists")


def parse_labels(text: str) -> tuple[Term, ...]:
    """Return the terms of a label selector. Raises StatusError 400."""
    terms: list[Term] = []
    rest = text
    while rest.strip():
        if match := _SET.match(rest):
            values = frozenset(value.strip() for value in match[3].split(","))
            terms.append(Term(match[1], "In" if match[2] == "in" else "NotIn", values))
        elif match := _EQUAL.match(rest):
            terms.append(Term(match[1], "NotIn" if match[2] == "!=" else "In", frozenset({match[3]})))
        elif match := _EXISTS.match(rest):
            terms.append(Term(match[2], "DoesNotExist" if match[1] else "Exists"))
        else:
            raise StatusError(400, f"unable to parse label selector {text!r}")
        rest = rest[match.end() :]
        if rest and not rest.startswith(","):
            raise StatusError(400, f"unable to parse label selector {text!r}")
        rest = rest[1:]
    return tuple(terms)


def from_object(selector: Mapping[str, Any] | None) -> tuple[Term, ...]:
    """Return the terms of a LabelSelector object; nothing matches everything."""
    selector = selector or {}
    terms = [Term(key, "In", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    for entry in selector.get("matchExpressions") or []:
        terms.append(Term(entry["key"], entry["operator"], frozenset(entry.get("values") or ())))
    return tuple(terms)


def parse_fields(text: str, plural: str = "") -> Callable[[Mapping[str, Any]], bool]:
    """Return a test for a field selector; each kind knows few fields beside name and namespace. Raises StatusError 400."""
    terms: list[tuple[tuple[str, ...], bool, str]] = []
    for piece in text.split(","):
        if not piece.strip():
            continue
        key, operator, value = piece.partition("!=") if "!=" in piece else piece.partition("=")
        if not operator:
            raise StatusError(400, f"invalid field selector {text!r}")
        if key.strip() not in {"metadata.name", "metadata.namespace", *FIELDS.get(plural, ())}:
            raise StatusError(400, f"field label not supported: {key.strip()}")
        terms.append((tuple(key.strip().split(".")), operator == "=", value.strip().removeprefix("=")))

    def matches(object_: Mapping[str, Any]) -> bool:
        for path, equal, wanted in terms:
            value: Any = object_
            for step in path:
                value = value.get(step) if isinstance(value, Mapping) else None
            if (("" if value is None else str(value)) == wanted) is not equal:
                return False
        return True

    return matches
