"""Commands in containers, over the websocket channel protocol: exit code, deadline, byte limit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from pytest_hami.kube.client import path
from pytest_hami.kube.errors import ApiError, HostileInput, Unreachable

if TYPE_CHECKING:
    from pytest_hami.kube.client import KubeClient

LIMIT = 1 << 20
# Every API server hands version 4 on to the kubelet as it is, while some translate version 5 to SPDY; what version 5
# adds, the end of standard input, is not needed here.
PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3


@dataclass(frozen=True)
class ExecResult:
    """What a command wrote and how it ended; ``truncated`` when it wrote more than the limit."""

    stdout: str
    stderr: str
    code: int
    truncated: bool = False


def exec_in(
    client: KubeClient,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    *,
    timeout: float = 10.0,
    limit: int = LIMIT,
) -> ExecResult:
    """Run a command in a container. Raises ApiError, Unreachable, HostileInput, or TimeoutError at the deadline."""
    import websocket

    configuration = client.api.configuration
    parts = urlsplit(configuration.host)
    query = urlencode([("container", container), ("stdout", "1"), ("stderr", "1"), *(("command", a) for a in argv)])
    url = f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}{path('Pod', namespace, pod)}/exec?{query}"
    token = configuration.auth_settings().get("BearerToken")
    options: dict[str, Any] = {}
    if parts.scheme == "https":
        options["sslopt"] = {
            "ca_certs": configuration.ssl_ca_cert, "certfile": configuration.cert_file, "keyfile": configuration.key_file,
        }  # fmt: skip
    try:
        socket = websocket.create_connection(
            url, timeout=timeout, subprotocols=[PROTOCOL],
            header=[f"authorization: {token['value']}"] if token and token.get("value") else [],
            skip_utf8_validation=True, suppress_origin=True, **options,
        )  # fmt: skip
    except websocket.WebSocketBadStatusException as error:
        body = getattr(error, "resp_body", None) or b""
        raise ApiError(error.status_code, "", body[:500].decode("utf-8", "replace"), f"exec {argv[0]}") from None
    except (websocket.WebSocketException, OSError) as error:
        raise Unreachable(f"exec {argv[0]} in {namespace}/{pod}: {error}") from None
    try:
        return _collect(socket, argv, timeout, limit)
    except websocket.WebSocketTimeoutException:
        raise TimeoutError(f"exec {argv[0]} in {namespace}/{pod}: no end within {timeout:g} s") from None
    except (websocket.WebSocketException, OSError) as error:
        raise Unreachable(f"exec {argv[0]} in {namespace}/{pod}: {error}") from None
    finally:
        socket.close(timeout=0)


def _collect(socket: Any, argv: Sequence[str], timeout: float, limit: int) -> ExecResult:
    import websocket

    output = {STDOUT: b"", STDERR: b""}
    truncated = False
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise websocket.WebSocketTimeoutException
        socket.settimeout(left)
        opcode, data = socket.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE or not data:
            raise Unreachable(f"exec {argv[0]}: the stream ended without a status")
        channel, payload = data[0], data[1:]
        if channel == STATUS:
            return ExecResult(
                output[STDOUT].decode("utf-8", "replace"), output[STDERR].decode("utf-8", "replace"),
                _exit_code(payload), truncated,
            )  # fmt: skip
        if channel in output:
            room = limit - len(output[channel])
            truncated = truncated or len(payload) > room
            output[channel] += payload[:room]


def _exit_code(payload: bytes) -> int:
    try:
        status = json.loads(payload)
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    except (ValueError, KeyError, AttributeError, RecursionError):
        raise HostileInput(f"exec: no usable status: {payload[:200]!r}") from None
    raise ApiError(
        int(status.get("code") or 500), str(status.get("reason", "")), str(status.get("message", "")), "exec"
    )
