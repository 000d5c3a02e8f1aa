"""The engines' own doors: to leave one copy of a block in one tier, and to read their counters.

A copy is alone in a tier when the nearer copies are dropped and the other outer tiers are not
read from for a while (`POST /v1/scopekv/forget`). Nothing is deleted from an outer tier.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from scopekv.audit.endpoint import COMPLETIONS, Endpoint
from scopekv.audit.isolation.target import EngineAccess, Place
from scopekv.errors import Unavailable
from scopekv.gateway.http import ClientPool

FORGET_SECONDS = 120
STEPS = 2
METRICS_BYTES_MAX = 16 << 20
_OWN = (Place.ENGINE, Place.HOST)
_QUERIES, _HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


class Engines:
    """All engines of the deployment that may be asked. An async context manager.

    At its end every tier is read from again.
    """

    def __init__(self, engines: Sequence[EngineAccess], *, settle_seconds_max: float) -> None:
        self.known = tuple(engines)
        self._settle_seconds_max = settle_seconds_max
        self._stack = AsyncExitStack()
        self._doors: list[tuple[EngineAccess, Endpoint]] = []
        self._metrics: list[tuple[EngineAccess, ClientPool]] = []
        self._models: dict[str, str] = {}
        self._shut = False

    async def __aenter__(self) -> Self:
        for engine in self.known:
            door = await self._stack.enter_async_context(Endpoint(engine.url, timeout_seconds=60.0))
            self._doors.append((engine, door))
            pool = ClientPool(door.url)
            self._stack.push_async_callback(pool.close)
            self._metrics.append((engine, pool))
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._open()
        finally:
            await self._stack.aclose()

    async def statuses(self) -> list[dict[str, Any]]:
        """What each engine says it is; empty where one has no plugin. Raises `Unavailable`."""
        replies = [
            await door.call("GET", "/v1/scopekv/status", None, key=engine.api_key)
            for engine, door in self._doors
        ]
        if any(reply.status == 404 for reply in replies):
            return []
        return [await self._ask(*door, "GET", "/v1/scopekv/status") for door in self._doors]

    async def places(self) -> list[Place]:
        """The tiers that every engine has, nearest first; empty where nothing may be asked."""
        found: list[set[str]] = []
        for door in self._doors if await self.statuses() else ():
            report = await self._ask(*door, "GET", "/v1/scopekv/tiers")
            found.append({Place.ENGINE.value, *report["tiers"]})
        return [place for place in Place if found and all(place.value in one for one in found)]

    async def alone(self, place: Place) -> None:
        """Leave the copies that `place` has, and no others that anybody could be served from.

        Waits until what is on its way to the tiers has arrived. With `Place.ANY` every tier is
        read from again. Raises `Unavailable`.
        """
        if place is Place.ANY:
            await self._open()
            return
        await self._settled()
        dropped = [medium.value for medium in _OWN if medium is not place]
        read = [place.value] if place.outer else []
        self._shut = True
        await self._forget(dropped, read)

    async def queried(self) -> dict[str, tuple[int, int]]:
        """By engine: tokens looked up in its cache, and tokens found there, since its start."""
        found = {}
        for engine, pool in self._metrics:
            key = (b"authorization", b"Bearer " + engine.api_key.encode())
            answer = await pool.request("GET", "/metrics", [key], b"", timeout_seconds=30.0)
            async with answer:
                text = (await answer.read(METRICS_BYTES_MAX)).decode("utf-8", "replace")
            found[engine.name] = (counter(text, _QUERIES), counter(text, _HITS))
        return found

    async def _open(self) -> None:
        if self._shut:
            await self._forget([], None)
            self._shut = False

    async def _settled(self) -> None:
        """Wait until nothing is on its way to a tier.

        vLLM stores a request's last blocks to host memory with its next step, and from there with
        one more: make it take two.
        """
        limit = time.monotonic() + self._settle_seconds_max
        for engine, door in (door for door in self._doors for _ in range(STEPS)):
            await self._step(engine, door)
            while (await self._ask(engine, door, "GET", "/v1/scopekv/tiers"))["pending"]:
                if time.monotonic() > limit:
                    raise Unavailable(
                        f"the tiers of {engine.name} do not come to rest within "
                        f"{self._settle_seconds_max:.0f} s: is there other work on it?"
                    )
                await asyncio.sleep(0.01)

    async def _step(self, engine: EngineAccess, door: Endpoint) -> None:
        """A prompt of one token, without a ticket: shared with nobody, kept by no tier."""
        if engine.name not in self._models:
            self._models[engine.name] = (await door.models(engine.api_key))[0]
        body = {"model": self._models[engine.name], "prompt": [1], "max_tokens": 1}
        await door.call("POST", COMPLETIONS, body, key=engine.api_key)

    async def _forget(self, media: Sequence[str], read: Sequence[str] | None) -> None:
        body = {"media": list(media), "read": read, "seconds": FORGET_SECONDS}
        for engine, door in self._doors:
            limit = time.monotonic() + self._settle_seconds_max
            while True:
                told = await self._ask(engine, door, "POST", "/v1/scopekv/forget", body)
                if not any(line["busy"] for line in told["lines"]):
                    break
                if time.monotonic() > limit:
                    raise Unavailable(f"{engine.name} does not let go of blocks that are in use")
                await asyncio.sleep(0.02)

    @staticmethod
    async def _ask(
        engine: EngineAccess, door: Endpoint, method: str, path: str, body: Any = None
    ) -> dict[str, Any]:
        reply = await door.call(method, path, body, key=engine.api_key)
        if not reply.ok or not isinstance(reply.body, dict):
            raise Unavailable(
                f"{engine.name} answered {path} with {reply.status}: the audit of its tiers needs "
                "the engine's API key and the plugin of this version"
            )
        return reply.body


def counter(metrics: str, name: str) -> int:
    """The sum of a counter over its labels, in Prometheus' text form."""
    lines = [line for line in metrics.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))
