"""What the audit asks of engines and of the gateway's administration, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scopekv.audit.endpoint import Endpoint
from scopekv.errors import Unavailable

FORGET = "/v1/scopekv/forget"
TIERS = "/v1/scopekv/tiers"
REVOKE = "/admin/v1/revocations/users"
_BUSY_SECONDS_MAX = 30.0
_REVOKE_SECONDS = 30
_SHUT_SECONDS = 180


@dataclass(frozen=True, slots=True, repr=False)
class EngineAddress:
    """One engine with the plugin, and its API key."""

    url: str
    key: str


async def forget_all(engines: Sequence[EngineAddress], read: Sequence[str]) -> None:
    """Every engine drops its own and host memory, and reads from these outer tiers alone until
    `reopen_all` or some minutes later: a copy in another one would hide what became of these.

    Outer tiers lose nothing. Asks again while requests hold blocks. Raises `Unavailable` for an
    engine that cannot.
    """
    body = {"media": ["engine", "host"], "read": list(read), "seconds": _SHUT_SECONDS}
    for engine in engines:
        async with Endpoint(engine.url) as endpoint:
            deadline = time.monotonic() + _BUSY_SECONDS_MAX
            while await _busy(endpoint, engine.key, body):
                if time.monotonic() > deadline:
                    raise Unavailable(f"{engine.url} is too busy to forget")
                await asyncio.sleep(0.2)


async def reopen_all(engines: Sequence[EngineAddress]) -> None:
    """Every engine reads from all its tiers again. One that cannot be asked does so in time."""
    for engine in engines:
        async with Endpoint(engine.url) as endpoint:
            with contextlib.suppress(Unavailable):
                body: dict[str, Any] = {"media": [], "read": None, "seconds": 1}
                await endpoint.call("POST", FORGET, body, key=engine.key)


async def _busy(endpoint: Endpoint, key: str, body: Mapping[str, Any]) -> int:
    reply = await endpoint.call("POST", FORGET, body, key=key)
    lines = reply.body.get("lines") if isinstance(reply.body, dict) else None
    if not reply.ok or not isinstance(lines, list):
        raise Unavailable(f"{endpoint.url} cannot be told to forget: it answered {reply.status}")
    wrong = [line["tier"] for line in lines if line["error"]]
    if wrong:
        raise Unavailable(f"{endpoint.url} did not forget: {', '.join(wrong)} in trouble")
    return sum(line["busy"] for line in lines)


async def revoke_user(url: str, admin_key: str, org: str, name: str) -> None:
    """Revoke everything that an account's own scope kept, and wait until it is done."""
    async with Endpoint(url) as endpoint:
        body = {"org": org, "name": name, "wait_seconds": _REVOKE_SECONDS}
        reply = await endpoint.call("POST", REVOKE, body, key=admin_key)
        if not reply.ok:  # 202: begun, and not everywhere done
            raise Unavailable(
                f"the revocation of the audit's account is not done: {reply.status} {reply.code}"
            )


async def corrupt_counted(engines: Sequence[EngineAddress]) -> int:
    """How many corrupt objects the tiers of these engines have counted since their start."""
    total = 0
    for engine in engines:
        async with Endpoint(engine.url) as endpoint:
            reply = await endpoint.call("GET", TIERS, None, key=engine.key)
        tiers = reply.body.get("tiers") if isinstance(reply.body, dict) else None
        if not reply.ok or not isinstance(tiers, dict):
            raise Unavailable(f"{engine.url} does not tell of its tiers: status {reply.status}")
        total += sum(int(tier.get("corrupt", 0)) for tier in tiers.values())
    return total
