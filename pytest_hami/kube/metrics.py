"""Reading a metrics endpoint."""

from __future__ import annotations

import functools
from typing import Any

from pytest_hami.kube.errors import BadStatus, HostileInput, Unreachable

LIMIT = 16 << 20


@functools.cache
def _pool() -> Any:
    import urllib3

    return urllib3.PoolManager(maxsize=2)


def scrape(url: str, *, timeout: float = 5.0, limit: int = LIMIT) -> str:
    """Return the text of a metrics endpoint. Raises Unreachable, BadStatus, or HostileInput for too much text."""
    import urllib3

    try:
        response = _pool().request("GET", url, retries=False, timeout=timeout, preload_content=False)
        data = response.read(limit + 1)
        response.release_conn()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"GET {url}: {' '.join(str(error).split())[:300]}") from None
    if response.status != 200:
        raise BadStatus(response.status, f"GET {url}: status {response.status}: {data[:200]!r}")
    if len(data) > limit:
        raise HostileInput(f"GET {url}: {len(data)} bytes, expected up to {limit}: {data[:200]!r}")
    return str(data.decode("utf-8", "replace"))
