"""`/admin/v1`: administration over HTTP, as a function from request to answer.

Routes are `admin_routes.ROUTES`; bodies and answers are JSON objects. Lists take `limit` (1 to
1000, default 100) and `after` (the `next` of the page before). Errors have OpenAI's shape.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from scopekv.core.scopes import Principal
from scopekv.errors import NotFound, ScopeKVError
from scopekv.gateway.admin_call import Call, Revocation
from scopekv.gateway.admin_routes import ROUTES
from scopekv.gateway.administration import Administration
from scopekv.gateway.errors_http import error_body, http_error

PREFIX = "/admin/v1"
ACCEPTED = 202  # a revocation whose receipt is not done yet


class _Wait(msgspec.Struct):
    wait_seconds: int = Revocation().wait_seconds


def handle(
    service: Administration, principal: Principal, method: str, path: str, query: str, body: bytes
) -> tuple[int, dict[str, Any]]:
    """Answer one request of an authenticated `principal`. Blocking: call it on a worker thread.

    `path` as on the request line (percent-encoded), `query` without `?`. Returns the status and
    the JSON object. Never raises a `ScopeKVError`; anything else is a bug and comes through.
    """
    try:
        if not path.startswith(PREFIX + "/"):
            raise NotFound(f"there is no {path[:120]!r}; routes start with {PREFIX}/")
        parts = [unquote(part) for part in path[len(PREFIX) + 1 :].rstrip("/").split("/")]
        matches = [
            (route, values) for route in ROUTES if (values := route.match(parts)) is not None
        ]
        if not matches:
            raise NotFound(f"there is no {path[:120]!r}; see {PREFIX} in the documentation")
        for route, values in matches:
            if route.method == method:
                answer = route.answer(Call(service, principal, values, query, body))
                return route.status, msgspec.to_builtins(answer)
        allowed = ", ".join(sorted({route.method for route, _ in matches}))
        return 405, error_body(
            f"{path[:120]!r} does not take {method[:20]!r}; it takes {allowed}",
            kind="invalid_request_error",
            code="method_not_allowed",
            param=None,
        )
    except ScopeKVError as error:
        return http_error(error, param=getattr(error, "param", None))


def revocation_of(status: int, answer: dict[str, Any], body: bytes) -> tuple[str, int] | None:
    """The receipt that `handle` answered with, and how many seconds its caller waits for it."""
    if status != ACCEPTED:
        return None
    return answer["receipt"]["id"], msgspec.json.decode(body, type=_Wait).wait_seconds


def settled(
    service: Administration, principal: Principal, answer: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """The answer to a revocation as its receipt is now: 200 where it is done, else 202."""
    try:
        receipt = service.receipts.show(principal, answer["receipt"]["id"])
    except ScopeKVError as error:
        return http_error(error)
    status = 200 if receipt.state == "done" else ACCEPTED
    return status, answer | {"receipt": msgspec.to_builtins(receipt)}
