"""Admission: mutating webhooks over TLS, and Kubernetes' own quota on ``requests.*``."""

from __future__ import annotations

import base64
import json
import ssl
import uuid
from collections.abc import Mapping
from typing import Any

import aiohttp

from pytest_hami.contract.quantities import parse_quantity
from pytest_hami.simulator.apiserver import patches, selectors
from pytest_hami.simulator.apiserver.errors import StatusError
from pytest_hami.simulator.apiserver.kinds import Kind
from pytest_hami.simulator.apiserver.store import Store


class Admission:
    """Calls the registered webhooks and enforces quotas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close the connections to webhooks."""
        if self._session is not None:
            await self._session.close()

    async def mutate(self, kind: Kind, object_: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        """Return the object after all mutating webhooks for its creation. Raises StatusError for a denial."""
        table = self._store.table("admissionregistration.k8s.io/mutatingwebhookconfigurations")
        for _, entry in sorted(table.by_key.items()):
            for webhook in entry.object.get("webhooks") or []:
                if self._concerns(webhook, kind, object_):
                    object_ = await self._call(webhook, kind, object_, dry_run)
        return object_

    def _concerns(self, webhook: Mapping[str, Any], kind: Kind, object_: Mapping[str, Any]) -> bool:
        def listed(rule: Mapping[str, Any], field: str, value: str) -> bool:
            return value in (rule.get(field) or []) or "*" in (rule.get(field) or [])

        if not any(
            listed(rule, "operations", "CREATE") and listed(rule, "apiGroups", kind.group)
            and listed(rule, "apiVersions", kind.version) and listed(rule, "resources", kind.plural)
            for rule in webhook.get("rules") or []
        ):  # fmt: skip
            return False
        labels = object_["metadata"].get("labels") or {}
        if not all(term.matches(labels) for term in selectors.from_object(webhook.get("objectSelector"))):
            return False
        namespace = object_["metadata"].get("namespace")
        if namespace:
            found = self._store.get("/namespaces", "", namespace) or {"metadata": {}}
            labels = found["metadata"].get("labels") or {}
            return all(term.matches(labels) for term in selectors.from_object(webhook.get("namespaceSelector")))
        return True

    async def _call(
        self, webhook: Mapping[str, Any], kind: Kind, object_: dict[str, Any], dry_run: bool
    ) -> dict[str, Any]:
        config = webhook["clientConfig"]
        if "url" not in config:
            raise StatusError(501, f"the simulator calls webhooks by url only; {webhook['name']} names a service")
        versions = webhook.get("admissionReviewVersions") or ["v1"]
        version = "v1" if "v1" in versions else versions[0]
        uid = str(uuid.uuid4())
        group = {"group": kind.group, "version": kind.version}
        review = {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{version}",
            "request": {
                "uid": uid, "kind": {**group, "kind": kind.kind}, "resource": {**group, "resource": kind.plural},
                "name": object_["metadata"].get("name", ""), "namespace": object_["metadata"].get("namespace", ""),
                "operation": "CREATE", "userInfo": {"username": "simulated-admin"}, "object": object_, "oldObject": None,
                "dryRun": dry_run, "options": None,
            },
        }  # fmt: skip
        try:
            answer = await self._post(config, review, float(webhook.get("timeoutSeconds") or 10))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return object_
            text = f'Internal error occurred: failed calling webhook "{webhook["name"]}": {error}'
            raise StatusError(500, text) from None
        response = answer.get("response") or {}
        if not response.get("allowed"):
            status = response.get("status") or {}
            code = int(status.get("code") or 403)
            text = f'admission webhook "{webhook["name"]}" denied the request: {status.get("message") or "no reason given"}'
            raise StatusError(code, text, reason=status.get("reason") or ("Forbidden" if code == 403 else ""))
        if response.get("patch"):
            return dict(patches.apply_json(object_, json.loads(base64.b64decode(response["patch"]))))
        return object_

    async def _post(self, config: Mapping[str, Any], review: dict[str, Any], timeout: float) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        bundle = str(config.get("caBundle", ""))
        context = self._contexts.get(bundle)
        if context is None:
            context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode() if bundle else None)
            self._contexts[bundle] = context
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self._session.post(config["url"], json=review, ssl=context, timeout=limit) as response:
            answer = await response.json(content_type=None)
        if not isinstance(answer, dict):
            raise ValueError(f"webhook {config['url']} answered no AdmissionReview")
        return answer

    def require_quota(self, pod: Mapping[str, Any]) -> None:
        """Raise StatusError 403 when a pod exceeds a ``requests.*`` or ``pods`` quota, as Kubernetes does."""
        namespace = pod["metadata"]["namespace"]
        for (_, name), entry in sorted(self._store.table("/resourcequotas").namespaces.get(namespace, {}).items()):
            hard = (entry.object.get("spec") or {}).get("hard") or {}
            used = self.used(namespace)
            asked = pod_requests(pod)
            over = [
                key
                for key in sorted(hard)
                if key in asked and used.get(key, 0) + asked[key] > (parse_quantity(hard[key]) or 0)
            ]
            if over:

                def text(values: Mapping[str, Any], keys: list[str] = over) -> str:
                    return ",".join(f"{key}={values.get(key, 0)}" for key in keys)

                message = (
                    f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: {name}, requested: {text(asked)}, '
                    f"used: {text(used)}, limited: {text(hard)}"
                )
                raise StatusError(403, message)

    def used(self, namespace: str) -> dict[str, int]:
        """Return what the living pods of a namespace use."""
        used: dict[str, int] = {}
        for entry in self._store.table("/pods").namespaces.get(namespace, {}).values():
            if (entry.object.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
                for key, value in pod_requests(entry.object).items():
                    used[key] = used.get(key, 0) + value
        return used


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod counts against ``requests.*`` and ``pods`` of a quota."""
    found: dict[str, int] = {"pods": 1}
    for container in pod["spec"].get("containers") or []:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            found[f"requests.{name}"] = found.get(f"requests.{name}", 0) + (parse_quantity(value) or 0)
    return found
