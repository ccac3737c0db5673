"""Errors of the API server as Status objects."""

from __future__ import annotations

from typing import Any

REASONS = {
    400: "BadRequest", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 409: "Conflict", 410: "Expired",
    415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 501: "NotImplemented",
}  # fmt: skip


class StatusError(Exception):
    """An error answer: HTTP code, reason and message."""

    def __init__(
        self, code: int, message: str, reason: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.details = details

    def to_dict(self) -> dict[str, Any]:
        """Return the Status object."""
        status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
        }  # fmt: skip
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return status | {"code": self.code}


def not_found(plural: str, name: str) -> StatusError:
    """Return the error for a missing object."""
    return StatusError(404, f'{plural} "{name}" not found', details={"name": name, "kind": plural})


def conflict(plural: str, name: str) -> StatusError:
    """Return the error for a stale resourceVersion."""
    text = "the object has been modified; please apply your changes to the latest version and try again"
    return StatusError(409, f'Operation cannot be fulfilled on {plural} "{name}": {text}')


def invalid(kind: str, name: str, *causes: tuple[str, str]) -> StatusError:
    """Return the error for an invalid object, from ``(field, message)`` pairs."""
    # Kubernetes tells equal errors once (apimachinery, pkg/util/validation/field, ToAggregate).
    listed = list(dict.fromkeys(f"{field}: {message}" for field, message in causes))
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details = {"name": name, "kind": kind, "causes": [{"field": f, "message": m} for f, m in causes]}
    return StatusError(422, f'{kind} "{name}" is invalid: {text}', details=details)
