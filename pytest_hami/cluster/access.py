"""How a local API server is reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ApiAccess:
    """The URL of an API server, and for one over TLS the file of its authority and the token of an administrator."""

    url: str
    token: str = ""
    authority: Path | None = None

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig with one context, ``hami``; paths in it are absolute."""
        # Named, not embedded: the official client writes embedded data to files of its own.
        trust = {"certificate-authority": str(self.authority)} if self.authority else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hami", "cluster": {"server": self.url, **trust}}],
            "users": [{"name": "hami", "user": {"token": self.token} if self.token else {}}],
            "contexts": [{"name": "hami", "context": {"cluster": "hami", "user": "hami", "namespace": "default"}}],
            "current-context": "hami",
        }
