"""Counts what answers said, in memory, and adds it to the tallies every few seconds.

A request never waits for the disk, and a tally that cannot be kept is lost, never a request (L8).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from operator import add
from typing import Any

from scopekv.core.isolation_cost import IsolationCost
from scopekv.core.scopes import ScopeKind
from scopekv.core.tallies import (
    COUNTS,
    WINDOWS,
    Answered,
    Medium,
    Place,
    Tally,
    Window,
    places,
)
from scopekv.errors import Unavailable
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.passing import Told
from scopekv.gateway.prompts import Prompt
from scopekv.gateway.reading import Job
from scopekv.gateway.rounds import Rounds
from scopekv.ports import Tallies

KEEP_SECONDS = 5.0
WAITING_MAX = 20_000  # tallies that wait to be kept; others are not counted meanwhile
BLOCK_TOKENS = 32  # where an instance does not tell
_MINUTES = WINDOWS[Window.HOUR]
_Owner = tuple[int, str, str, str]  # start, organisation, account, instance
log = logging.getLogger("scopekv.recording")


class Recorder(Rounds):
    """Use: `start`, `note` for each answer, then `stop`."""

    def __init__(self, tallies: Tallies, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(self.keep, KEEP_SECONDS, log, waits="tallies of requests wait")
        self._tallies, self._clock = tallies, clock
        self._cost = IsolationCost(secrets.token_bytes(16))
        self._waiting: dict[_Owner, list[int]] = {}  # in the order of `COUNTS`
        self._keeping = asyncio.Lock()

    async def stop(self) -> None:
        """Keep what is counted, and close the tallies."""
        await super().stop()
        try:
            await self.keep()
        except Unavailable as error:
            log.error("the last tallies of requests are lost: %s", error)
        await asyncio.to_thread(self._tallies.close)

    def note(self, job: Job, instance: Instance, prompt: Prompt, told: Told) -> None:
        """Count one answer; one that tells no usage is not counted."""
        if told.usage is None or told.kinds is None:
            return
        others, cached = 0, told.usage.cached
        if prompt.tokens is not None and cached is not None:
            sender, block = job.caller.principal.uid, instance.block_size or BLOCK_TOKENS
            others = self._cost.note(sender, prompt.tokens.packed, block, cached)
        answered = _answered(*told.kinds, others, told, job.began, instance)
        who = job.caller.principal
        owner = (_MINUTES.start_of(self._clock()), who.org_uid, who.uid, instance.address.name)
        counts = self._waiting.get(owner)
        if counts is None:
            if len(self._waiting) >= WAITING_MAX:
                return
            counts = self._waiting[owner] = [0] * len(COUNTS)
        answered.add_to(counts)

    async def keep(self) -> None:
        """Add what is counted to the tallies. What they cannot take now is tried again."""
        async with self._keeping:
            taken, self._waiting = self._waiting, {}
            if not taken:
                return
            try:
                await asyncio.to_thread(self._add, taken)
            except Unavailable:
                self._put_back(taken)
                raise

    def _add(self, taken: dict[_Owner, list[int]]) -> None:
        """Spread each over the tallies that it counts in: once a while, not at every request."""
        spread: dict[Place, Tally] = {}
        for (start, org, account, instance), counts in taken.items():
            tally = Tally(tuple(counts))
            for place in places(start, org=org, account=account, instance=instance):
                before = spread.get(place)
                spread[place] = tally if before is None else before + tally
        self._tallies.add(spread, self._clock())

    def _put_back(self, taken: dict[_Owner, list[int]]) -> None:
        for owner, counts in self._waiting.items():
            before = taken.get(owner)
            taken[owner] = list(map(add, before, counts)) if before else counts
        self._waiting = dict(list(taken.items())[-WAITING_MAX:])


def _answered(
    tokens: Mapping[ScopeKind, int],
    cached: Mapping[ScopeKind, int],
    others: int,
    told: Told,
    began: float,
    instance: Instance,
) -> Answered:
    measured = instance.isolation is not Isolation.NONE and instance.load.samples
    return Answered(
        input=tokens,
        cached=cached,
        fetched=_fetched(told.report, instance.block_size or BLOCK_TOKENS) if told.whole else None,
        first_token_seconds=told.first_at - began if told.first_at is not None else None,
        only_others=others,
        curve=instance.load.curve() if measured else None,
    )


def _fetched(report: Any, block: int) -> dict[Medium, int]:
    """Tokens of blocks that were fetched; an engine without tiers reports nothing."""
    blocks = report.get("fetched_blocks") if isinstance(report, dict) else None
    if not isinstance(blocks, dict):
        return {}
    return {
        Medium(name): count * block
        for name, count in blocks.items()
        if name in (Medium.DIRECTORY, Medium.VALKEY, Medium.S3) and isinstance(count, int)
    }
