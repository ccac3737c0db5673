"""A client with dicts in and out, over the official client's configuration, TLS and connection pool.

Not its DynamicClient: that asks for discovery first and keeps a cache file outside of our directory.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pytest_hami.kube.errors import ApiError, HostileInput, Unreachable
from pytest_hami.text import one_line

MAX_BYTES = 64 << 20
NONCE = "pytest-hami.io/nonce"
FIELD_MANAGER = "pytest-hami"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
RETRIED_CODES = frozenset({429, 500, 502, 503, 504})
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True)
class Kind:
    """Where a kind is served."""

    prefix: str
    plural: str
    namespaced: bool = True


# Discovery costs several requests and a cache file; these kinds never move.
KINDS = {
    "Pod": Kind("/api/v1", "pods"),
    "Event": Kind("/api/v1", "events"),
    "ConfigMap": Kind("/api/v1", "configmaps"),
    "Service": Kind("/api/v1", "services"),
    "ResourceQuota": Kind("/api/v1", "resourcequotas"),
    "Node": Kind("/api/v1", "nodes", namespaced=False),
    "Namespace": Kind("/api/v1", "namespaces", namespaced=False),
    "Deployment": Kind("/apis/apps/v1", "deployments"),
    "DaemonSet": Kind("/apis/apps/v1", "daemonsets"),
    "MutatingWebhookConfiguration": Kind(
        "/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False
    ),
}


class KubeClient:
    """Calls to one API server. Idempotent calls are retried on transport errors, 429 and 5xx; nothing else is."""

    def __init__(self, api: Any, *, timeout: float) -> None:
        self._api = api
        self._timeout = timeout

    @classmethod
    def connect(
        cls, kubeconfig: str | Mapping[str, Any], context: str | None = None, *, timeout: float = 30.0
    ) -> KubeClient:
        """Return a client for a kubeconfig, a path or a mapping. Raises Unreachable for one that cannot be used."""
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException

        configuration = client.Configuration()
        load: Any = config.load_kube_config if isinstance(kubeconfig, str) else config.load_kube_config_from_dict
        try:
            load(
                kubeconfig if isinstance(kubeconfig, str) else dict(kubeconfig),
                context=context,
                client_configuration=configuration,
            )
        except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            raise Unreachable(f"kubeconfig cannot be used: {one_line(error)}") from None
        if urlsplit(configuration.host).hostname in LOOPBACK:
            # The environment may name a proxy for the world outside.
            configuration.proxy = None
        api = client.ApiClient(configuration)
        return cls(api, timeout=timeout)

    @property
    def api(self) -> Any:
        """The official client's ApiClient."""
        return self._api

    def close(self) -> None:
        """Close all connections."""
        self._api.rest_client.pool_manager.clear()

    def create(
        self, kind: str, body: Mapping[str, Any], namespace: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object and return it as stored. Raises ApiError or Unreachable.

        A create whose answer was lost is not repeated blindly: a nonce tells whether the first one arrived.
        """
        metadata = dict(body.get("metadata") or {})
        where = namespace or metadata.get("namespace")
        if dry_run:
            return self._json("POST", path(kind, where), body, query={"dryRun": "All"})
        nonce = secrets.token_hex(8)
        metadata["labels"] = {**(metadata.get("labels") or {}), NONCE: nonce}
        marked = {**body, "metadata": metadata}
        try:
            return self._post(path(kind, where), marked)
        except Unreachable:
            if not metadata.get("name"):
                raise
        for attempt in self._attempts():
            with attempt:
                try:
                    found = self.get(kind, metadata["name"], where)
                except ApiError as error:
                    if error.code != 404:
                        raise
                    return self._post(path(kind, where), marked)
                if (found["metadata"].get("labels") or {}).get(NONCE) == nonce:
                    return found
                raise ApiError(409, "AlreadyExists", f"{kind} {metadata['name']} is somebody else's", "POST")
        raise AssertionError("unreachable")

    def _post(self, where: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # 429 says that nothing was done; after any other error that is not known.
        for attempt in self._attempts(frozenset({429}), transport=False):
            with attempt:
                return self._json("POST", where, body, retry=False)
        raise AssertionError("unreachable")

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return an object. Raises ApiError (404 when it does not exist)."""
        return self._json("GET", path(kind, namespace, name))

    def list(
        self, kind: str, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        return list(self.list_raw(kind, namespace, label_selector, field_selector).get("items") or [])

    def list_raw(
        self, kind: str, namespace: str | None = None, label_selector: str = "", field_selector: str = ""
    ) -> dict[str, Any]:
        """Return a list object with its resourceVersion."""
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return self._json("GET", path(kind, namespace), query={k: v for k, v in query.items() if v})

    def patch(
        self,
        kind: str,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        type: str = "merge",
        subresource: str = "",
    ) -> dict[str, Any]:
        """Patch an object with a ``merge``, ``json`` or ``strategic`` patch and return it."""
        where = path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return self._json("PATCH", where, body, content_type=PATCH_TYPES[type], retry=type == "merge")

    def apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Apply an object server-side with our field manager and return it."""
        metadata = body["metadata"]
        where = path(str(body["kind"]), metadata.get("namespace"), metadata["name"])
        return self._json(
            "PATCH",
            where,
            body,
            content_type=PATCH_TYPES["apply"],
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
        )

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        missing_ok: bool = True,
    ) -> None:
        """Delete an object. Raises ApiError; a missing object is no error unless asked."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self._json("DELETE", path(kind, namespace, name), body)
        except ApiError as error:
            if error.code != 404 or not missing_ok:
                raise

    def delete_all(
        self, kind: str, namespace: str | None, *, selector: str = "", grace_seconds: int | None = None
    ) -> None:
        """Delete every object of a kind, in a namespace or with these labels. Raises ApiError."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        self._json("DELETE", path(kind, namespace), body, query={"labelSelector": selector} if selector else None)

    def watch(self, kind: str, namespace: str | None, resource_version: str, *, timeout: int) -> WatchStream:
        """Open a watch from a resourceVersion. Raises ApiError or Unreachable."""
        query = {
            "watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout),
        }  # fmt: skip
        return WatchStream(
            self._send("GET", path(kind, namespace), None, query=query, stream=True, timeout=timeout + 10)
        )

    def _json(
        self,
        method: str,
        where: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        retry: bool = True,
    ) -> dict[str, Any]:
        def once() -> dict[str, Any]:
            response = self._send(method, where, body, query=query, content_type=content_type)
            return parse(response.data, where)

        if not retry:
            return once()
        for attempt in self._attempts():
            with attempt:
                return once()
        raise AssertionError("unreachable")

    def _attempts(self, codes: frozenset[int] = RETRIED_CODES, *, transport: bool = True) -> Any:
        import tenacity

        def worth(error: BaseException) -> bool:
            return (transport and isinstance(error, Unreachable)) or (
                isinstance(error, ApiError) and error.code in codes
            )

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(worth),
            stop=tenacity.stop_after_attempt(5),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )

    def _send(
        self,
        method: str,
        where: str,
        body: Any,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        stream: bool = False,
        timeout: float | None = None,
    ) -> Any:
        from urllib.parse import urlencode

        import urllib3

        configuration = self._api.configuration
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        token = configuration.auth_settings().get("BearerToken")
        if token and token.get("value"):
            headers["authorization"] = token["value"]
        url = configuration.host.rstrip("/") + where + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._api.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"),
                headers=headers,
                preload_content=not stream,
                retries=False,
                timeout=urllib3.Timeout(connect=5, read=timeout or self._timeout),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{method} {configuration.host}{where}: {' '.join(str(error).split())[:300]}") from None
        if response.status >= 400:
            data = response.data if not stream else response.read(1 << 20)
            if stream:
                response.release_conn()
            raise api_error(response.status, data, f"{method} {where}")
        return response


class WatchStream:
    """An open watch; iterate for events, ``close`` from another thread to end it."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import urllib3

        buffer = b""
        try:
            for chunk in self._response.stream(1 << 16, decode_content=False):
                buffer += chunk
                if len(buffer) > MAX_BYTES:
                    raise HostileInput(f"a watch event of more than {MAX_BYTES} bytes")
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.strip():
                        yield parse(line, "watch")
        except (urllib3.exceptions.HTTPError, OSError, AttributeError, ValueError) as error:
            # A closed or reset stream is how every watch ends sooner or later; the journal goes on from its version.
            raise Unreachable(f"watch ended: {error}") from None
        finally:
            self.close()

    def close(self) -> None:
        """End the stream, also while another thread reads it."""
        import socket

        connection = getattr(self._response, "connection", None) or getattr(self._response, "_connection", None)
        sock = getattr(connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._response.close()


def path(kind: str, namespace: str | None = None, name: str = "") -> str:
    """Return the URL path of a kind or object. Raises KeyError for a kind outside the table."""
    from urllib.parse import quote

    entry = KINDS[kind]
    middle = f"/namespaces/{quote(namespace, safe='')}" if namespace and entry.namespaced else ""
    return f"{entry.prefix}{middle}/{entry.plural}" + (f"/{quote(name, safe='')}" if name else "")


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Return a JSON object from the cluster. Raises HostileInput for what is too large, too deep or no object."""
    if len(data) > MAX_BYTES:
        raise HostileInput(f"{where}: {len(data)} bytes, more than {MAX_BYTES}")
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise HostileInput(f"{where}: not usable JSON: {type(error).__name__} {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise HostileInput(f"{where}: expected a JSON object, seen {type(value).__name__}")
    return value


def api_error(status: int, data: bytes, target: str) -> ApiError:
    """Return the error in a Status answer."""
    try:
        body = parse(data, target)
    except HostileInput:
        body = {}
    message = str(body.get("message") or data[:500].decode("utf-8", "replace"))
    return ApiError(status, str(body.get("reason") or ""), message, target)
