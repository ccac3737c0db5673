"""The simulated API server: raw HTTP from one client, the server in a process of its own."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

CREATES, GETS, WATCHERS, PODS = 2000, 4000, 10, 500
LISTED = 10_000
NAMESPACE = "/api/v1/namespaces/default"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
}


class Client:
    """One connection."""

    def __init__(self, host: str) -> None:
        self._connection = http.client.HTTPConnection(host)

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the answer to a request. Raises RuntimeError for an error."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content

    def create(self, kind: str, plural: str, name: str, **more: Any) -> None:
        """Create a small object."""
        base = POD if kind == "Pod" else {"apiVersion": "v1", "kind": kind}
        self.call("POST", f"{NAMESPACE}/{plural}", {**base, "metadata": {"name": name, **more}})


def main() -> None:
    """Start a server, print its figures, end it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_hami.simulator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"parts": ["apiserver"]}) + "\n")
        process.stdin.flush()
        host = urlsplit(json.loads(process.stdout.readline())["api_url"]).netloc
        _requests(Client(host))
        _watches(host)
        _selectors(Client(host))
    finally:
        process.stdin.close()
        process.wait(timeout=20)


def _requests(client: Client) -> None:
    started = time.perf_counter()
    for number in range(CREATES):
        client.create("ConfigMap", "configmaps", f"c{number}")
    creates = CREATES / (time.perf_counter() - started)
    started = time.perf_counter()
    for number in range(GETS):
        client.call("GET", f"{NAMESPACE}/configmaps/c{number % CREATES}")
    gets = GETS / (time.perf_counter() - started)
    print(f"API server: {creates:.0f} creates/s (target 800), {gets:.0f} gets/s (target 1500), one client")


def _watches(host: str) -> None:
    client = Client(host)
    version = json.loads(client.call("GET", f"{NAMESPACE}/pods"))["metadata"]["resourceVersion"]
    seen: list[float] = []
    threads = [threading.Thread(target=_watch, args=(host, version, seen)) for _ in range(WATCHERS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    for number in range(PODS):
        client.create("Pod", "pods", f"p{number}")
    last = time.perf_counter()
    for thread in threads:
        thread.join(timeout=30)
    late = max(seen) - last
    print(
        f"API server: {len(seen)} watchers had {PODS} pods {max(late, 0) * 1000:.1f} ms after the last create (target 20 ms)"
    )


def _watch(host: str, version: str, seen: list[float]) -> None:
    connection = http.client.HTTPConnection(host)
    connection.request("GET", f"{NAMESPACE}/pods?watch=1&resourceVersion={version}")
    answer = connection.getresponse()
    for _ in range(PODS):
        answer.readline()
    seen.append(time.perf_counter())
    connection.close()


def _selectors(client: Client) -> None:
    for number in range(LISTED - PODS):
        client.create("Pod", "pods", f"q{number}", labels={"app": f"a{number % 1000}"})
    narrow, wide = [], []
    for number in range(50):
        started = time.perf_counter()
        client.call("GET", f"{NAMESPACE}/pods?labelSelector=app%3Da{number}")
        narrow.append(time.perf_counter() - started)
    for _ in range(3):
        started = time.perf_counter()
        client.call("GET", f"{NAMESPACE}/pods")
        wide.append(time.perf_counter() - started)
    print(
        f"API server: list by label among {LISTED} pods {statistics.median(narrow) * 1000:.2f} ms, "
        f"of all {statistics.median(wide) * 1000:.0f} ms"
    )
