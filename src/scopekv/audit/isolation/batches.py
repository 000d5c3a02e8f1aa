"""Walking the matrix: one owner fills, those who must not read try, those who may come back.

The block is left in one tier alone before the first try and before each read that must hit. What
proved nothing (a control that failed, an engine that never had the block) is tried again with
fresh text; a leak is final.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from scopekv.audit.endpoint import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from scopekv.audit.isolation.asking import Answer, Asking
from scopekv.audit.isolation.cells import Cell, Ledger, Outcome
from scopekv.audit.isolation.matrix import Batch, Caller, Kind
from scopekv.audit.isolation.target import Place
from scopekv.audit.isolation.texts import Prompt


@dataclass(slots=True)
class Counters:
    """What engines counted while forbidden reads were tried, where nobody else used them.

    `quiet`: batches in which the engines looked up exactly the tokens that we sent. `more`: of
    those, in how many an engine read more from its cache than the answers said.
    """

    batches: int = 0
    quiet: int = 0
    more: int = 0
    worst: int = 0

    def note(self, sent: int, told: int, looked_up: int, found: int) -> None:
        self.batches += 1
        if sent == looked_up:
            self.quiet += 1
            self.more += found > told
            self.worst = max(self.worst, found - told)


@dataclass(slots=True)
class Walk:
    """Batches at work on one ledger."""

    asking: Asking
    ledger: Ledger
    counters: Counters = field(default_factory=Counters)

    async def batch(self, batch: Batch) -> None:
        """Try one batch, and what of it proved nothing again with fresh text."""
        for tries in itertools.count(1):
            cells = await self._round(batch)
            self.ledger.add(cells)
            if not self.asking.again(cells, tries):
                return
            again = {cell.caller for cell in cells if not cell.settled}
            batch = replace(batch, callers=tuple(c for c in batch.callers if str(c) in again))

    async def _round(self, batch: Batch) -> list[Cell]:
        asking = self.asking
        prompt = await asking.prompt(batch.kind, batch.owner, batch.endpoint, batch.model)
        beyond = await self._beyond(batch, prompt)
        watched = asking.many and not batch.place.shared
        filled = await asking.ask(batch.owner, prompt, watched=watched)
        asking.note_time("first", filled)
        await asking.alone(batch.place)
        forbidden = await self._tries(batch, prompt, watched=watched)
        allowed = []
        for number, reader in enumerate(batch.readers()):
            if number and batch.place is not Place.ENGINE:
                await asking.alone(batch.place)
            allowed.append((reader, await asking.ask(reader, prompt, watched=watched)))
        proved = filled.ok and allowed[-1][1].outcome(beyond) is Outcome.HIT
        return [
            *(self._cell(batch, *one, beyond, filled, False, proved) for one in forbidden),
            *(self._cell(batch, *one, beyond, filled, True, proved) for one in allowed),
        ]

    async def _tries(
        self, batch: Batch, prompt: Prompt, *, watched: bool
    ) -> list[tuple[Caller, Answer]]:
        """Those who must not hit, and whether the engines' counters agree with what they heard."""
        asking = self.asking
        before = await asking.engines.queried()
        found = [(c, await asking.ask(c, prompt, watched=watched)) for c in batch.forbidden()]
        after = await asking.engines.queried()
        if before and found:
            looked_up, hits = (
                sum(now[at] - before[name][at] for name, now in after.items()) for at in (0, 1)
            )
            sent = sum(answer.input_tokens for _, answer in found)
            told = sum(answer.cached for _, answer in found)
            self.counters.note(sent, told, looked_up, hits)
        return found

    async def _beyond(self, batch: Batch, prompt: Prompt) -> int:
        """How many tokens before the text in question anybody may share."""
        base = self.asking.beyond[batch.endpoint, batch.model]
        if batch.kind is not Kind.PUBLIC_TAIL:
            return base
        for _ in range(2):  # the owner's, since another's could be a copy of its own
            other = replace(prompt, tail=self.asking.texts.text())
            base = max(base, (await self.asking.ask(batch.owner, other)).cached)
        return base

    def _cell(
        self,
        batch: Batch,
        caller: Caller,
        answer: Answer,
        beyond: int,
        filled: Answer,
        allowed: bool,
        proved: bool,
    ) -> Cell:
        outcome = answer.outcome(beyond)
        if outcome is Outcome.MISS and _elsewhere(answer.engines, filled.engines):
            outcome = Outcome.ELSEWHERE
        self.asking.note_time(f"{'allowed' if allowed else 'forbidden'}_{outcome}", answer)
        return Cell(
            group=f"{batch.place}.{batch.kind}",
            place=batch.place.value,
            endpoint=batch.endpoint,
            model=batch.model,
            owner=str(batch.owner),
            caller=str(caller),
            allowed=allowed,
            outcome=outcome,
            cached=max(0, answer.cached - beyond),
            proved=proved,
            error=answer.code,
        )


def _elsewhere(asked: Collection[str], having: Collection[str]) -> bool:
    """Whether it is known that an engine answered which never had the block."""
    return bool(asked) and bool(having) and not set(asked) & set(having)


async def served(asking: Asking, caller: Caller) -> tuple[str, ...]:
    """The endpoints that answer: the two of every server first, then others, where it is ours."""
    if asking.settings.quick:
        return (CHAT,)
    found = [CHAT, COMPLETIONS]
    for endpoint in (RESPONSES, MESSAGES) if asking.target.narrows else ():
        prompt = await asking.prompt(Kind.USER, caller, endpoint, asking.target.model)
        if (await asking.ask(caller, prompt)).ok:
            found.append(endpoint)
    return tuple(found)


async def measure_beyond(
    asking: Asking, models: Collection[str], callers: Collection[Caller]
) -> None:
    """How far prompts of nobody's text hit: a template's own words, the same for all.

    Fresh prompts of each form by each of `callers`, the first of which fill the cache.
    """
    for model in models:
        for endpoint in asking.endpoints:
            most = 0
            for caller in callers:
                for kind in (Kind.USER, Kind.USER, Kind.ORG_TEXT):
                    prompt = await asking.prompt(kind, caller, endpoint, model)
                    most = max(most, (await asking.ask(caller, prompt)).cached)
            asking.beyond[endpoint, model] = most
