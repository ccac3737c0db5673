"""Typed errors of the kube layer."""

from __future__ import annotations


class ApiError(Exception):
    """The API server answered with an error: HTTP code, Kubernetes reason and message."""

    def __init__(self, code: int, reason: str, message: str, target: str = "") -> None:
        super().__init__(f"{target}: {code} {reason}: {message}" if target else f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.target = target


class Unreachable(Exception):
    """The API server cannot be reached; the text is one line."""


class ClusterLost(Exception):
    """The API server was there and is gone; the text is one line."""


class HostileInput(Exception):
    """The cluster sent what no well-behaved cluster sends: too large, too deep, or no text."""


class BadStatus(HostileInput):
    """A page that must answer 200 answered something else."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
