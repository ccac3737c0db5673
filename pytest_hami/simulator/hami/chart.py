"""What HAMi's chart installs beside its programs: the webhook configuration, and how kube-scheduler knows the extender.

Source: HAMi 2.10.0, charts/hami/templates (scheduler/webhook.yaml, scheduler/configmap.yaml, device-plugin/runtime-class.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.simulator.client import Api, ApiError

NAMESPACE = "hami-system"
NAMESPACES = "/api/v1/namespaces"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
RUNTIME_CLASS = "nvidia"
OPT_OUT = {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}


@dataclass(frozen=True)
class Extender:
    """HAMi as kube-scheduler and the API server know it; ``ca_bundle`` is base64 of a PEM text."""

    url: str
    ca_bundle: str
    scheduler_name: str
    managed_resources: tuple[str, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Extender:
        """Return the extender in a JSON object. Raises ValueError."""
        known = {"url", "ca_bundle", "scheduler_name", "managed_resources"}
        if set(values) != known:
            raise ValueError(f"extender: expected {', '.join(sorted(known))}, seen {', '.join(sorted(values))}")
        return cls(**{**values, "managed_resources": tuple(values["managed_resources"])})

    @property
    def webhook_url(self) -> str:
        """The URL of the mutating webhook."""
        return f"{self.url}/webhook"


def managed_resources(devices: DeviceConfig) -> tuple[str, ...]:
    """Return the resources that kube-scheduler leaves to HAMi."""
    return (
        devices.count_name,
        devices.memory_name,
        devices.cores_name,
        devices.percentage_name,
        devices.priority_name,
    )


async def install(api: Api, extender: Extender) -> None:
    """Create or update HAMi's namespace, the runtime class that its webhook may set, and its webhook configuration.

    Raises ApiError.
    """
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    await _ensure(api, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace"}, NAMESPACE)
    await _ensure(api, RUNTIME_CLASSES, runtime, RUNTIME_CLASS)
    await _ensure(api, WEBHOOKS, webhook_configuration(extender.webhook_url, extender.ca_bundle), "hami-webhook")


def webhook_configuration(url: str, ca_bundle: str) -> dict[str, Any]:
    """Return the webhook configuration for a loopback URL; ``ca_bundle`` is base64 of a PEM text."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "webhooks": [
            {
                "name": "vgpu.hami.io",
                "admissionReviewVersions": ["v1beta1"],
                "clientConfig": {"url": url, "caBundle": ca_bundle},
                "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": [OPT_OUT]},
                "objectSelector": {"matchExpressions": [OPT_OUT]},
                "reinvocationPolicy": "Never",
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                        "scope": "*",
                    }
                ],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }


async def _ensure(api: Api, path: str, body: dict[str, Any], name: str) -> None:
    try:
        await api.create(path, body | {"metadata": {"name": name}})
    except ApiError as error:
        if error.code != 409:
            raise
        # An API server that outlived an earlier cluster still has the old address and authority.
        await api.merge_patch(f"{path}/{name}", body)
