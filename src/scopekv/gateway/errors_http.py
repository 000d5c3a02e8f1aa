"""The one table from errors to HTTP, in OpenAI's shape (test: it names every error class).

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

Messages of the program's own trouble (5xx) are replaced: they name files and hosts, which are the
operator's to read in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scopekv import errors
from scopekv.gateway.http.messages import Failure


@dataclass(frozen=True, slots=True)
class HttpError:
    """How one error class looks outside. `message` replaces the error's own where it is set."""

    status: int
    kind: str
    code: str
    message: str = ""


_REQUEST = "invalid_request_error"
_FAULT = "the gateway could not complete the request; its operator finds the cause in the log"
TABLE: dict[type[errors.ScopeKVError], HttpError] = {
    errors.ScopeKVError: HttpError(500, "server_error", "internal_error", _FAULT),
    errors.ConfigError: HttpError(500, "server_error", "configuration_error", _FAULT),
    errors.Misuse: HttpError(400, _REQUEST, "invalid_request"),
    errors.NotFound: HttpError(404, _REQUEST, "not_found"),
    errors.UnknownModel: HttpError(404, _REQUEST, "model_not_found"),
    errors.Conflict: HttpError(409, _REQUEST, "conflict"),
    errors.TooLarge: HttpError(413, _REQUEST, "too_large"),
    errors.PromptTooLong: HttpError(400, _REQUEST, "context_length_exceeded"),
    errors.Refused: HttpError(403, "permission_error", "refused"),
    errors.Unauthenticated: HttpError(401, "authentication_error", "invalid_api_key"),
    errors.ScopeDenied: HttpError(403, "permission_error", "permission_denied"),
    errors.TicketInvalid: HttpError(403, "permission_error", "ticket_invalid"),
    errors.TicketExpired: HttpError(403, "permission_error", "ticket_expired"),
    errors.Corrupt: HttpError(500, "server_error", "corrupt", _FAULT),
    errors.Overloaded: HttpError(429, "rate_limit_error", "overloaded"),
    errors.Unavailable: HttpError(
        503,
        "server_error",
        "unavailable",
        "no engine, no registry or no identity provider is in reach: retry; GET /readyz says how "
        "the engines are",
    ),
}


def http_error(
    error: BaseException, *, param: str | None = None, code: str | None = None
) -> tuple[int, dict[str, Any]]:
    """Return status and body for an error; what is no `ScopeKVError` shows as an internal one.

    `param` names the field at fault; `code` replaces the table's (`model_not_found`, say).
    """
    row = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), None)
    if row is None:
        row = TABLE[errors.ScopeKVError]
    return row.status, error_body(
        row.message or str(error), kind=row.kind, code=code or row.code, param=param
    )


def error_body(message: str, *, kind: str, code: str, param: str | None) -> dict[str, Any]:
    """The body of an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def failure_of(error: BaseException) -> Failure:
    """An error as a server sends it."""
    status, body = http_error(error)
    detail = body["error"]
    wait = error.retry_after_seconds if isinstance(error, errors.Overloaded) else None
    return Failure(status, detail["message"], detail["type"], detail["code"], wait)
