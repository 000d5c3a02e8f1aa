"""`POST /v1/scopekv/leases`: the key broker over HTTP, for engines alone.

    -> {"ticket": "..."}                                   Authorization: Bearer <instance secret>
    <- {"leases": [{"scope": hex, "epoch": n, "key": base64, "lease_seconds": n,
                    "retention_seconds": n, "account": hex}]}

401: another secret. 403: the ticket does not hold; the code is its `TicketReason`. 503: the
registry or the root key is out of reach. Nothing of it is logged, and no API key opens it.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from scopekv.core.leases import Lease
from scopekv.errors import Misuse, TicketInvalid, TooLarge, Unauthenticated
from scopekv.gateway.errors_http import http_error
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply
from scopekv.ports import LEASES_PATH
from scopekv.store.broker import KeyBroker

__all__ = ["LEASES_PATH", "Leases"]

BODY_BYTES_MAX = 16 << 10
LEASE_THREADS = 2
_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    ticket: str


class Leases:
    """The route. `secret`: what `keys/instance.key` holds."""

    def __init__(self, broker: KeyBroker, secret: str) -> None:
        self._broker, self._bearer = broker, f"Bearer {secret}".encode("ascii")
        # Its own: a root key out of reach must not take the threads that requests need.
        self._threads = ThreadPoolExecutor(LEASE_THREADS, thread_name_prefix="scopekv-broker")

    def close(self) -> None:
        """Take no more calls; those under way end by their own time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one engine. The broker runs on a worker thread: registry and Vault may be far."""
        given = request.header_all(b"authorization")
        if len(given) != 1 or not hmac.compare_digest(given[0], self._bearer):
            raise Unauthenticated("leases are for engines that hold this gateway's instance secret")
        if len(request.body) > BODY_BYTES_MAX:
            raise TooLarge(f"a ticket's body has at most {BODY_BYTES_MAX} bytes")
        try:
            ticket = msgspec.json.decode(request.body, type=_Body).ticket
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Misuse('the body is not {"ticket": "..."}') from None
        try:
            loop = asyncio.get_running_loop()
            leases = await loop.run_in_executor(self._threads, self._broker.lease, ticket)
        except TicketInvalid as error:
            status, refusal = http_error(error, code=error.reason)
            reply.send(status, _HEADERS, msgspec.json.encode(refusal))
            return
        reply.send(200, _HEADERS, msgspec.json.encode({"leases": [_shown(one) for one in leases]}))


def _shown(lease: Lease) -> dict[str, Any]:
    return {
        "scope": lease.scope.hex(),
        "epoch": lease.epoch,
        "key": base64.b64encode(lease.key).decode("ascii"),
        "lease_seconds": lease.lease_seconds,
        "retention_seconds": lease.retention_seconds,
        "account": lease.account.hex(),
    }
