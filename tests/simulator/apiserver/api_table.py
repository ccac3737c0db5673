"""Behaviours of the Kubernetes API as rows: what is asked, and what kube-apiserver 1.36 answers."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer; a body that is no JSON object is under ``text``."""

    code: int
    body: Mapping[str, Any]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    def at(self, *keys: str | int) -> Any:
        """Return what is at a place in the body, None where something is missing."""
        found: Any = self.body
        for key in keys:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError):
                return None
        return found


class Api:
    """One API server, and a namespace of the row's own: ``{ns}`` in a path stands for it."""

    def __init__(self, kubeconfig: Mapping[str, Any], kubectl: Path, home: Path, node: str) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        self.url: str = cluster["server"]
        token = kubeconfig["users"][0]["user"].get("token")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        authority = cluster.get("certificate-authority")
        context = ssl.create_default_context(cafile=authority) if authority else None
        self._pool = urllib3.PoolManager(retries=False, timeout=10, ssl_context=context, maxsize=4)
        self._kubectl = kubectl
        self._home = home
        (home / "config").write_text(json.dumps(kubeconfig))
        self.node = node
        self.ns = ""

    def close(self) -> None:
        self._pool.clear()

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.ns}/pods"

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.ns}/configmaps"

    def ask(
        self, method: str, path: str, body: object = None, *, type: str = "application/json", accept: str = "*/*"
    ) -> Answer:
        """Send one request; ``body`` is data, or a text as it is."""
        data = None if body is None else body if isinstance(body, str) else json.dumps(body)
        headers = {"Content-Type": type, "Accept": accept, **self._headers}
        answer = self._pool.request(method, self.url + path.replace("{ns}", self.ns), body=data, headers=headers)
        try:
            parsed = json.loads(answer.data)
        except ValueError:
            parsed = None
        return Answer(
            answer.status, parsed if isinstance(parsed, dict) else {"text": answer.data.decode("utf-8", "replace")}
        )

    def get(self, path: str, **how: Any) -> Answer:
        return self.ask("GET", path, **how)

    def make(self, path: str, body: object) -> Answer:
        """Create something that must be possible to create."""
        answer = self.ask("POST", path, body)
        assert answer.code == 201, f"{answer.code}: {answer.body}"
        return answer

    @contextmanager
    def watch(
        self, path: str, query: str = "", seconds: int = 5, flag: str = "true"
    ) -> Iterator[Iterator[tuple[str, Any]]]:
        """Open a watch and give its events as (type, object); it ends by itself after ``seconds``."""
        url = f"{self.url}{path.replace('{ns}', self.ns)}?watch={flag}&timeoutSeconds={seconds}{query and '&' + query}"
        answer = self._pool.request("GET", url, headers=self._headers, preload_content=False, timeout=seconds + 5)

        def events() -> Iterator[tuple[str, Any]]:
            rest = b""
            while chunk := answer.read1():
                *lines, rest = (rest + chunk).split(b"\n")
                for event in map(json.loads, filter(None, lines)):
                    # An error that is no event comes as a bare Status.
                    yield event.get("type", "STATUS"), event.get("object", event)

        try:
            yield events()
        finally:
            answer.close()

    def kubectl(self, *arguments: str, text: object = None) -> tuple[int, str]:
        """Run kubectl in the row's namespace; return its exit code and all that it wrote."""
        done = subprocess.run(
            [str(self._kubectl), "--kubeconfig", str(self._home / "config"), "-n", self.ns, "--request-timeout=10s", *arguments],
            input=None if text is None else json.dumps(text), capture_output=True, text=True, timeout=30, check=False,
            env={"HOME": str(self._home), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def eventually(self, seen: Callable[[], Any], wanted: Any, seconds: float = 10) -> Any:
        """Return what is seen as soon as it is as wanted, else what is seen in the end."""
        from pytest_hami.kube.wait import WaitTimeout, poll

        try:
            poll(lambda: seen() == wanted, timeout=seconds, missing=lambda: str(wanted))
        except WaitTimeout:
            return seen()
        return wanted


Observe = Callable[[Api], Mapping[str, Any]]


@dataclass(frozen=True)
class Behaviour:
    """One row. ``observe`` asks and returns what it saw under the keys of ``expected``."""

    name: str
    expected: Mapping[str, Any]
    observe: Observe


@dataclass
class Table:
    """Rows in the order in which they are written."""

    rows: list[Behaviour] = field(default_factory=list)

    def row(self, name: str, /, **expected: Any) -> Callable[[Observe], Observe]:
        """Add a function as a row."""

        def add(observe: Observe) -> Observe:
            self.rows.append(Behaviour(name, expected, observe))
            return observe

        return add


def pod(name: str = "p", **labels: str) -> dict[str, Any]:
    """Return a pod of two containers that nobody schedules."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}]},
    }  # fmt: skip


def config_map(name: str = "m", data: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": dict(data or {"k": "1"}),
    }


def binding(name: str, node: str) -> dict[str, Any]:
    """Return the binding of a pod to a node."""
    return {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node},
    }  # fmt: skip
