"""kill -9 of one of two engines under steady requests: who notices, and for how long.

errors_before_first_byte   requests that got an error, or nothing, as their answer
broken_after_first_byte    answers that had begun on the engine that died
out_of_use_seconds         from the kill until the gateway sends it nothing more
back_in_use_seconds        from its first 200 on /health until the gateway uses it again
back_at_work_seconds       the same until it has a request
back_located_seconds       the same until the index is sure of it
old_blocks_located         blocks of its old life that the index knows when it is in use again
index_is_exact             at the end the index holds what the engine says it holds
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from _routing_engines import Engine
from _routing_routers import gateway
from _routing_workload import Texts, User

from scopekv.compose import World
from scopekv.core.events import Medium, decode_snapshot
from scopekv.engines.model import MODEL_NAME
from scopekv.errors import ScopeKVError, Unavailable
from scopekv.gateway.app import Gateway
from scopekv.gateway.http import ClientPool
from scopekv.gateway.instances import Instance

PROMPT_TOKENS = 34  # one whole block, which is cached, and a little
FRESH_EVERY = 20  # one in so many prompts is new: no engine has it, so that the idle one gets it
OLD_TOKENS, OLD_PROMPTS = 96, 16
RETURN_SECONDS_MAX = 150.0
LOOK_SECONDS = 0.01
_HEADERS = [(b"content-type", b"application/json")]


@dataclass
class Steady:
    """Requests at a fixed rate, and how they ended."""

    pool: ClientPool
    keys: Mapping[User, str]
    prompts: Sequence[tuple[User, str]]
    texts: Texts
    ended: Counter[str] = field(default_factory=Counter)
    ttft_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def run(self, per_second: float) -> None:
        """Until cancelled; what was sent by then is answered before this returns."""
        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            serial = 0
            try:
                while True:
                    group.create_task(self.one(*self._prompt(serial)))
                    serial += 1
                    await asyncio.sleep(max(0.0, began + serial / per_second - time.monotonic()))
            except asyncio.CancelledError:
                return

    def _prompt(self, serial: int) -> tuple[User, str]:
        user, prompt = self.prompts[serial % len(self.prompts)]
        if serial % FRESH_EVERY == 0:
            prompt = self.texts.make(f"fresh {serial}", PROMPT_TOKENS)
        return user, prompt

    async def one(self, user: User, prompt: str) -> None:
        try:
            self.ended[await self._send(user, prompt)] += 1
        except ScopeKVError as error:
            self.ended["error_before_first_byte"] += 1
            self.errors.append(f"{type(error).__name__}: {error}")

    async def _send(self, user: User, prompt: str) -> str:
        """How one request ended. Raises `ScopeKVError` where no byte of an answer came."""
        body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 1, "stream": True}
        authorization = (b"authorization", b"Bearer " + self.keys[user].encode())
        began, content = time.perf_counter(), b""
        answer = await self.pool.request(
            "POST",
            "/v1/completions",
            [*_HEADERS, authorization],
            msgspec.json.encode(body),
            timeout_seconds=300,
        )
        async with answer:
            if answer.status != 200:
                raise Unavailable(f"{answer.status}: {(await answer.read(1 << 16))[:200]!r}")
            try:
                async for chunk in answer.stream():
                    if not content:
                        self.ttft_ms.append((time.perf_counter() - began) * 1e3)
                    content += chunk
            except ScopeKVError:
                if not content:
                    raise
        return "answered" if content.endswith(b"data: [DONE]\n\n") else "broken_after_first_byte"


@dataclass(slots=True)
class Victim:
    """The engine that is killed, as the gateway sees it. Times are monotonic seconds."""

    engine: Engine
    running: Gateway
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ready_at: float = 0.0

    @property
    def instance(self) -> Instance:
        return self.running.fleet.named(self.engine.name)

    @property
    def located(self) -> bool:
        return self.running.locator.feeds[self.engine.name].sure

    def blocks(self) -> set[int]:
        """What the index says it holds."""
        return set(self.running.locator.index.contents(self.engine.name, Medium.ENGINE))

    async def watch(self) -> None:
        """Ask the engine itself until it is ready."""
        pool = ClientPool(self.engine.instance.url)
        try:
            while not self.ready.is_set():
                try:
                    async with await pool.request(
                        "GET", "/health", [], b"", timeout_seconds=60
                    ) as answer:
                        if answer.status == 200:
                            self.ready_at = time.monotonic()
                            self.ready.set()
                except ScopeKVError:
                    await asyncio.sleep(2 * LOOK_SECONDS)
        finally:
            await pool.close()

    async def exact(self) -> bool:
        """Whether the index equals the engine's snapshot, once it is as far as that."""
        follower = self.running.locator.feeds[self.engine.name].follower
        for _ in range(100):
            answer = await self.instance.control.request(
                "GET", "/v1/scopekv/snapshot", self.instance.headers(), b"", timeout_seconds=30
            )
            async with answer:
                held = decode_snapshot(await answer.read(1 << 26))
            if self.located and held.sequence == follower.next_sequence:
                return self.blocks() == set((held.blocks or {}).get(Medium.ENGINE, ()))
            await asyncio.sleep(0.1)
        return False


async def until(done: Callable[[], bool]) -> float:
    """When it came about. Raises `TimeoutError`."""
    async with asyncio.timeout(RETURN_SECONDS_MAX):
        while not done():  # noqa: ASYNC110 - what the gateway sees tells nobody
            await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic()


async def _watched(victim: Victim) -> dict[str, Any]:
    """Kill the engine and see how the gateway takes it, up to the first request of its new life."""
    old, instance = victim.blocks(), victim.instance
    killed = time.monotonic()
    os.killpg(victim.engine.instance.pid, signal.SIGKILL)
    out = await until(lambda: not instance.takes_requests)
    watch = asyncio.create_task(victim.watch())
    try:
        used = await until(lambda: instance.takes_requests)
        stale = len(victim.blocks() & old)
        await asyncio.wait_for(victim.ready.wait(), RETURN_SECONDS_MAX)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    ready = victim.ready_at
    work = await until(lambda: instance.in_flight > 0)
    located = await until(lambda: victim.located)
    return {
        "old_blocks": len(old),
        "old_blocks_located": stale,
        "out_of_use_seconds": out - killed,
        "down_seconds": ready - killed,
        "back_in_use_seconds": used - ready,
        "back_at_work_seconds": work - ready,
        "back_located_seconds": located - ready,
    }


async def measure(
    world: World,
    engines: Sequence[Engine],
    keys: Mapping[User, str],
    texts: Texts,
    *,
    per_second: float,
    seconds: float,
) -> dict[str, Any]:
    """Steady requests `seconds` long, the kill, and as long again after the engine is back."""
    for engine in engines:
        await engine.forget()
    users = list(keys)
    async with gateway(world, engines) as running:
        pool = ClientPool(f"http://127.0.0.1:{running.port}")
        prompts = [(user, texts.make(f"steady {user.salt}", PROMPT_TOKENS)) for user in users]
        steady = Steady(pool, keys, prompts, texts)
        old = [texts.make(f"old life {number}", OLD_TOKENS) for number in range(OLD_PROMPTS)]
        await asyncio.gather(
            *(steady.one(users[n % len(users)], old[n]) for n in range(OLD_PROMPTS))
        )
        await asyncio.gather(*(steady.one(user, prompt) for user, prompt in prompts))
        steady.ttft_ms.clear()
        sending = asyncio.create_task(steady.run(per_second))
        try:
            await asyncio.sleep(seconds)
            victim = Victim(engines[-1], running)
            before = list(steady.ttft_ms)
            figures = await _watched(victim)
            await asyncio.sleep(seconds)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        exact = await victim.exact()
        await pool.close()
    for error in sorted(set(steady.errors))[:5]:
        print(f"a client saw: {error}", file=sys.stderr)
    return figures | {
        "index_is_exact": exact,
        "per_second": per_second,
        "requests": steady.ended.total(),
        "errors_before_first_byte": steady.ended["error_before_first_byte"],
        "broken_after_first_byte": steady.ended["broken_after_first_byte"],
        "ttft_ms_p50_before": statistics.median(before),
        "ttft_ms_max": max(steady.ttft_ms),
    }
