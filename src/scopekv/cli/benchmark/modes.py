"""The same requests four ways, one after the other, on one engine at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from scopekv.cli.benchmark.requests import Target, Timed, counter
from scopekv.cli.benchmark.requests import target as open_target
from scopekv.cli.benchmark.stages import BLOCK_SIZE, ScopedStage, warming
from scopekv.cli.benchmark.texts import Texts
from scopekv.core.article import (
    Costs,
    Figures,
    Mode,
    Plan,
    Reading,
    Shape,
    Warming,
    figures,
    plan_within,
    private_hit,
    whole_plan,
)
from scopekv.errors import ConfigError

MAX_TOKENS = 1
PROBES = 2  # questions of the first user that the second one asks
_CALIBRATION_LATER = 2
_PROMPT_TOKENS = "vllm:prompt_tokens_total"

Send = Callable[[int, int, int], Awaitable[Timed]]  # who asks, whose question, which one
Advance = Callable[[str, float], None]  # what was done, and the seconds it was expected to take


@dataclass(slots=True)
class Article:
    """One run of the example. `deadline`: monotonic seconds to plan for; None measures all."""

    shape: Shape
    texts: Texts
    advance: Advance
    planned: Callable[[Plan, Costs], None]  # told once, when the first user has been measured
    deadline: float | None
    start_seconds: float = 30.0
    plan: Plan | None = None
    costs: Costs = field(default_factory=lambda: Costs(10.0, 1.0, 30.0))
    results: dict[Mode, Figures] = field(default_factory=dict)
    seconds: dict[Mode, float] = field(default_factory=dict)

    async def stock(self, url: str, api_key: str, model: str) -> None:
        """Measure per-user salts, one group and no cache on one stock engine.

        Salts keep the modes apart as well: no prompt of one finds a block of another.
        """
        async with open_target(url, model) as server:

            def send(salt: Callable[[int, int, int], str]) -> Send:
                return self._to_engine(server, api_key, salt)

            await self._per_user(send(lambda user, *_: f"user-{user}"))
            plan = self._planned()
            await self._mode(Mode.ONE_GROUP, send(lambda *_: "group"), self._rounds(plan))
            await self._none(send(self._fresh_salt()), plan)

    async def scopekv(self, stage: ScopedStage, model: str) -> None:
        """Measure ScopeKV. Its document was read when it was published: that counts as prefill."""
        async with open_target(stage.engine.url, model) as engine:
            warm = warming(self.shape.document_tokens, await counter(engine, _PROMPT_TOKENS))
        async with open_target(stage.gateway_url, model) as server:

            async def send(asker: int, owner: int, which: int) -> Timed:
                prompt = self.texts.document + self.texts.questions[owner][which]
                return await server.ask(prompt, key=stage.keys[asker], max_tokens=MAX_TOKENS)

            await self._mode(Mode.SCOPEKV, send, self._rounds(self._planned()), warm=warm)

    async def _per_user(self, send: Send) -> None:
        """The first user tells what requests cost here; from that the rest is planned."""
        began = time.monotonic()
        shape = self.shape
        first = range(min(1 + _CALIBRATION_LATER, shape.requests))
        readings = await self._requests(Mode.PER_USER_SALT, send, [(0, r) for r in first])
        whole = readings[0].ttft_ms / 1e3
        later = min(r.ttft_ms for r in readings[1:] or readings) / 1e3
        self.costs = Costs(whole, later, self.start_seconds, probes=PROBES)
        plan = self._make_plan()
        rest = [(0, r) for r in range(len(first), plan.later + 1)]
        rest += [pair for pair in self._rounds(plan) if 0 < pair[0] < plan.users]
        readings += await self._requests(Mode.PER_USER_SALT, send, rest)
        await self._conclude(Mode.PER_USER_SALT, send, readings, began)

    async def _none(self, send: Send, plan: Plan) -> None:
        """A sample. The probe is a request like any other here, and stands for the later ones."""
        began = time.monotonic()
        first = [(user, 0) for user in range(plan.none)]
        readings = await self._requests(Mode.NONE, send, first)

        async def probe(asker: int, owner: int, which: int) -> Timed:
            timed = await send(asker, owner, which)
            readings.append(
                Reading(asker, 1, timed.input_tokens, timed.cached_tokens, timed.ttft_ms)
            )
            return timed

        await self._conclude(Mode.NONE, probe, readings, began, probes=1)

    @staticmethod
    def _fresh_salt() -> Callable[[int, int, int], str]:
        numbers = itertools.count()
        return lambda *_: f"request-{next(numbers)}"

    def _make_plan(self) -> Plan:
        if self.deadline is None:
            plan = whole_plan(self.shape)
        else:
            plan = plan_within(self.shape, self.costs, self.deadline - time.monotonic())
        self.plan = plan
        self.planned(plan, self.costs)
        return plan

    def _planned(self) -> Plan:
        return self.plan or whole_plan(self.shape)

    def _rounds(self, plan: Plan) -> list[tuple[int, int]]:
        """(user, request): everybody's first request, then everybody's second, and so on."""
        return [(u, r) for r in range(plan.later + 1) for u in range(self.shape.users)]

    async def _mode(
        self,
        mode: Mode,
        send: Send,
        pairs: Iterable[tuple[int, int]],
        warm: Warming | None = None,
    ) -> None:
        began = time.monotonic()
        readings = await self._requests(mode, send, pairs)
        await self._conclude(mode, send, readings, began, warm=warm)

    async def _requests(
        self, mode: Mode, send: Send, pairs: Iterable[tuple[int, int]]
    ) -> list[Reading]:
        readings = []
        for user, request in pairs:
            timed = await send(user, user, request)
            if timed.input_tokens != self.shape.prompt_tokens:
                raise ConfigError(
                    f"{mode}: the engine read {timed.input_tokens} tokens, not the "
                    f"{self.shape.prompt_tokens} that were sent; please report this"
                )
            readings.append(
                Reading(user, request, timed.input_tokens, timed.cached_tokens, timed.ttft_ms)
            )
            self._advance(f"{mode}: user {user + 1}, request {request + 1}", timed)
        return readings

    async def _conclude(
        self,
        mode: Mode,
        send: Send,
        readings: list[Reading],
        began: float,
        *,
        probes: int = PROBES,
        warm: Warming | None = None,
    ) -> None:
        """Probe, then make the figures. A second user asks what the first one asked."""
        hits = []
        asked = [r.request for r in readings if r.user == 0][:probes]
        for which in asked:
            timed = await send(1, 0, which)
            hits.append(private_hit(self.shape, BLOCK_SIZE, timed.cached_tokens))
            self._advance(f"{mode}: probe {which + 1}", timed)
        self.results[mode] = figures(mode, self.shape, readings, hits, warm)
        self.seconds[mode] = time.monotonic() - began

    def _advance(self, what: str, timed: Timed) -> None:
        whole = timed.cached_tokens < self.shape.document_tokens // 2
        self.advance(what, self.costs.whole_seconds if whole else self.costs.later_seconds)

    def _to_engine(
        self, server: Target, api_key: str, salt: Callable[[int, int, int], str]
    ) -> Send:
        async def send(asker: int, owner: int, which: int) -> Timed:
            return await server.ask(
                self.texts.prompts[owner][which],
                key=api_key,
                max_tokens=MAX_TOKENS,
                more={"cache_salt": salt(asker, owner, which)},
            )

        return send
