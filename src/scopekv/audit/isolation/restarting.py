"""Asking a gateway to end an engine and start it anew: `scopekv up` can, others cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from scopekv.audit.endpoint import Endpoint
from scopekv.errors import Unavailable

INSTANCES = "/admin/v1/instances"
READY_SECONDS_MAX = 240.0
_POLL_SECONDS = 0.25

Restarts = Callable[[str], Callable[[], Awaitable[None]]]  # of an engine by its name


async def restarts_of(url: str, operator_key: str) -> Restarts | None:
    """How engines of this gateway are restarted; None where it does not run them itself."""
    async with Endpoint(url) as gateway:
        reply = await gateway.call("GET", INSTANCES, None, key=operator_key)
    told = reply.body if reply.ok and isinstance(reply.body, dict) else {}
    if not told.get("restartable"):
        return None
    return lambda name: partial(_restart, url, operator_key, name)


async def _restart(url: str, operator_key: str, name: str) -> None:
    """Returns when the gateway sends it requests again. Raises `Unavailable`."""
    async with Endpoint(url) as gateway:
        path = f"{INSTANCES}/{quote(name, safe='')}/restart"
        reply = await gateway.call("POST", path, None, key=operator_key)
        if not reply.ok:
            raise Unavailable(f"{path} answered {reply.status} {reply.code}")
        limit = time.monotonic() + READY_SECONDS_MAX
        while await _state(gateway, operator_key, name) == "down":
            if time.monotonic() > limit:
                raise Unavailable(
                    f"{name} is not ready {READY_SECONDS_MAX:.0f} s after its restart: see its log"
                )
            await asyncio.sleep(_POLL_SECONDS)


async def _state(gateway: Endpoint, operator_key: str, name: str) -> str:
    reply = await gateway.call("GET", INSTANCES, None, key=operator_key)
    rows: Any = reply.body.get("data", []) if isinstance(reply.body, dict) else []
    return next((str(row["state"]) for row in rows if row["name"] == name), "down")
