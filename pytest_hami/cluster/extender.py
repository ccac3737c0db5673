"""One call of a HAMi scheduler's extender, as kube-scheduler would make it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any

LIMIT = 1 << 20


def call(url: str, ca_bundle: str, arguments: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
    """POST ``arguments`` to a verb of the extender and return its answer, None when the connection ends without one.

    ``ca_bundle`` is base64 of a PEM text, ``timeout`` is in seconds. Raises Unreachable when nobody listens or no answer
    comes in time, BadStatus, and HostileInput for an answer that is no JSON object.
    """
    import urllib3

    from pytest_hami.kube.errors import BadStatus, HostileInput, Unreachable

    trusted = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode())
    with urllib3.PoolManager(retries=False, timeout=timeout, ssl_context=trusted) as pool:
        try:
            response = pool.request("POST", url, json=dict(arguments))
        except urllib3.exceptions.ProtocolError:
            return None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"POST {url}: {' '.join(str(error).split())[:300]}") from None
        if response.status != 200:
            raise BadStatus(response.status, f"POST {url}: status {response.status}: {response.data[:200]!r}")
        try:
            answer = json.loads(response.data[:LIMIT])
        except ValueError:
            answer = None
    if not isinstance(answer, dict):
        raise HostileInput(f"POST {url}: expected a JSON object, got {response.data[:200]!r}")
    return answer
