"""`ports.LeaseSource` over HTTP: an engine's way to the key broker of its gateway."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scopekv.adapters.json_http import JsonHttp
from scopekv.adapters.root_key import read_secret
from scopekv.core.leases import Lease
from scopekv.core.reasons import TicketReason
from scopekv.core.scopes import ScopeId
from scopekv.errors import (
    ConfigError,
    Misuse,
    TicketExpired,
    TicketInvalid,
    Unauthenticated,
    Unavailable,
)
from scopekv.ports import LEASES_PATH

_EXPIRED = (TicketReason.EXPIRED, TicketReason.NOT_YET)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """`url` of a gateway, as http://127.0.0.1:8080. `secret_path`: its `keys/instance.key`.

    An https address is checked against `ca_file`, or the system's authorities.
    """

    url: str
    secret_path: Path
    ca_file: Path | None = None
    timeout_seconds: float = 2.0


class BrokerClient:
    """Asks one gateway. Thread-safe. The secret is read at each call, so it may be changed."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Connects nothing. Raises `ConfigError` for an address or secret of no use."""
        self._secret_path = settings.secret_path
        read_secret(settings.secret_path)
        self._http = JsonHttp(
            settings.url,
            what="the key broker",
            ca_file=settings.ca_file,
            timeout_seconds=settings.timeout_seconds,
        )

    def lease(self, ticket: str) -> Sequence[Lease]:
        """Return the leases of a ticket. One round trip, 2 s at most (4 on a stale connection)."""
        try:
            headers = {"Authorization": f"Bearer {read_secret(self._secret_path)}"}
        except ConfigError as error:
            raise Unavailable(str(error)) from error
        status, answer = self._http.call("POST", LEASES_PATH, headers, {"ticket": ticket})
        if status == 200:
            return _leases(answer)
        if status == 401:
            raise Unauthenticated("the key broker does not know this instance's secret")
        reason = _reason(answer)
        if status == 403 and reason is not None:
            raise (TicketExpired if reason in _EXPIRED else TicketInvalid)(reason)
        raise Unavailable(f"the key broker answered {status}")

    def close(self) -> None:
        self._http.close()


def _leases(answer: dict[str, Any]) -> list[Lease]:
    try:
        return [
            Lease(
                scope=ScopeId(bytes.fromhex(item["scope"])),
                epoch=int(item["epoch"]),
                key=base64.b64decode(item["key"], validate=True),
                lease_seconds=int(item["lease_seconds"]),
                retention_seconds=int(item["retention_seconds"]),
                account=bytes.fromhex(item["account"]),
            )
            for item in answer["leases"]
        ]
    except (KeyError, TypeError, ValueError, binascii.Error, Misuse) as error:
        # The cause may hold a key, so it is not chained.
        raise Unavailable(
            f"the key broker's answer is no list of leases ({type(error).__name__})"
        ) from None


def _reason(answer: dict[str, Any]) -> TicketReason | None:
    error = answer.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return TicketReason(code) if code in set(TicketReason) else None
