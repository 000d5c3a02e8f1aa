"""The waiting room: no more requests at engines than they take, and a fair line for the rest."""

from __future__ import annotations

import asyncio
import math
import time

from scopekv.core.turns import Turns
from scopekv.errors import Overloaded
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.settings import RoutingSettings

RETRY_SECONDS_MAX = 60
_PACE = 0.1


class WaitingRoom:
    """Places at the engines. Take one, or wait for one; leave it, always.

    Conservation: `taken` equals the places that were taken and not left.
    """

    def __init__(self, fleet: Fleet, settings: RoutingSettings) -> None:
        self._fleet, self._settings = fleet, settings
        self._turns: Turns[asyncio.Future[None]] = Turns(settings.waiting_max)
        self.taken = 0
        self._left_at: float | None = None
        self._interval_seconds = 1.0  # between two that left, of late

    @property
    def waiting(self) -> int:
        return len(self._turns)

    @property
    def places(self) -> int:
        """Over all instances in use; with none of them, whoever comes is told so at once."""
        live = sum(instance.takes_requests for instance in self._fleet.instances)
        return self._settings.in_flight_max * max(1, live)

    def take(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self._turns or self.taken >= self.places:
            return False
        self.taken += 1
        return True

    async def wait(self, org: str) -> None:
        """Take a place when it is this organisation's turn.

        Raises `Overloaded` where too many wait, or after `wait_seconds_max`.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        displaced = self._turns.join(org, turn)
        if displaced is turn:
            raise self._overloaded("too many requests wait for an engine")
        if displaced is not None and not displaced.done():
            displaced.set_exception(self._overloaded("others waited with fewer requests"))
        self._hand_out()
        try:
            async with asyncio.timeout(self._settings.wait_seconds_max):
                await turn
        except TimeoutError:
            self._give_up(org, turn)
            raise self._overloaded("no engine had a place in time") from None
        except asyncio.CancelledError:
            self._give_up(org, turn)
            raise

    def leave(self) -> None:
        """Give a place back; the next in turn takes it."""
        self.taken -= 1
        now = time.monotonic()
        if self._left_at is not None:
            self._interval_seconds += _PACE * (now - self._left_at - self._interval_seconds)
        self._left_at = now
        self._hand_out()

    def _hand_out(self) -> None:
        while self._turns and self.taken < self.places:
            turn = self._turns.next()
            if turn is not None and not turn.done():
                self.taken += 1
                turn.set_result(None)

    def _give_up(self, org: str, turn: asyncio.Future[None]) -> None:
        """It may have got its turn in the same moment."""
        self._turns.leave(org, turn)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.leave()

    def _overloaded(self, why: str) -> Overloaded:
        seconds = math.ceil(self._interval_seconds * (self.waiting + 1))
        seconds = min(max(1, seconds), RETRY_SECONDS_MAX)
        return Overloaded(f"{why}: retry after {seconds} s", retry_after_seconds=seconds)
