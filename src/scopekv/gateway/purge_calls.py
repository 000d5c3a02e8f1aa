"""Asking one instance to purge, with the patience that a busy engine needs and no more."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from scopekv.core.chains import Link
from scopekv.core.receipts import LASTING, LineReason
from scopekv.errors import Misuse, NotFound, ScopeKVError
from scopekv.gateway.instances import Instance

PURGE = "/v1/scopekv/purge"
CALL_SECONDS = 5.0
CALL_SECONDS_MAX = 20.0  # once one timed out: a busy engine answers between two of its steps
LINKS_PER_CALL = 2_000  # a call holds the engine between two of its steps
AWAY_SECONDS = 1.0  # how long an instance that failed is not asked for other receipts
LASTING_SECONDS = 30.0


@dataclass(slots=True)
class _Away:
    """An instance that failed a moment ago."""

    reason: LineReason
    until: float
    timeouts: int


class PurgeCalls:
    """One call at a time to each instance; one that failed a moment ago is not asked at all.

    `seconds`: how long an instance has for a first answer.
    """

    def __init__(self) -> None:
        self.seconds = CALL_SECONDS
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by instance
        self._away: dict[str, _Away] = {}

    def ask_again(self, instance: Instance) -> None:
        """Whatever it failed at before, the next `purge` asks it."""
        self._away.pop(instance.address.name, None)

    async def purge(
        self, instance: Instance, links: Sequence[Link], *, first: bool
    ) -> list[object] | LineReason | None:
        """What an instance answered, line by line, or why there is no answer.

        None is an answer that is none. `first`: it has said nothing of this receipt yet, and a
        first word comes quickly. Never raises.
        """
        name = instance.address.name
        away = self._away.get(name)
        if away is not None and self._turns[name].locked():  # another receipt is finding out
            return away.reason
        async with self._turns[name]:
            away = self._away.get(name)
            if away is not None and time.monotonic() < away.until:
                return away.reason
            timeouts = away.timeouts if away is not None else 0
            seconds = self.seconds * (1 if first else 2**timeouts)
            try:
                lines = await self._ask(instance, links, seconds)
            except (ScopeKVError, TimeoutError) as error:
                reason = _reason(error)
                self._failed(name, reason, timeouts)
                return reason
            self._away.pop(name, None)
            return lines

    async def _ask(
        self, instance: Instance, links: Sequence[Link], seconds: float
    ) -> list[object] | None:
        """The lines that an instance answered with, over all calls that the links need."""
        lines: list[object] = []
        for start in range(0, max(1, len(links)), LINKS_PER_CALL):
            part = links[start : start + LINKS_PER_CALL]
            body = {"scopes": [[link.scope.hex(), link.epoch] for link in part]}
            async with asyncio.timeout(min(seconds, CALL_SECONDS_MAX)):
                answer = await instance.ask("POST", PURGE, body, seconds=2 * CALL_SECONDS_MAX)
            told = answer.get("lines") if isinstance(answer, dict) else None
            if not isinstance(told, list) or not told:
                return None
            lines += told
        return lines

    def _failed(self, name: str, reason: LineReason, timeouts: int) -> None:
        seconds = LASTING_SECONDS if reason in LASTING else AWAY_SECONDS
        more = min(timeouts + 1, 2) if reason is LineReason.TIMED_OUT else 0
        self._away[name] = _Away(reason, time.monotonic() + seconds, more)


def _reason(error: Exception) -> LineReason:
    if isinstance(error, TimeoutError):
        return LineReason.TIMED_OUT
    if isinstance(error, NotFound):
        return LineReason.NO_PLUGIN
    return LineReason.REFUSED if isinstance(error, Misuse) else LineReason.UNREACHABLE
