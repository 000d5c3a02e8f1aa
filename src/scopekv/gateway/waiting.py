"""Waiting rooms: no more under way than there are places, and a fair line for the rest.

One for the engines, one for each provider beside them, one for what explains misses.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from scopekv.core.scopes import Principal
from scopekv.core.turns import Turns
from scopekv.errors import Overloaded
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.settings import RoutingSettings

RETRY_SECONDS_MAX = 60
_PACE = 0.1


class _Place(AbstractAsyncContextManager[float, None]):
    """One place, from the moment it is had."""

    __slots__ = ("_room", "_who")

    def __init__(self, room: WaitingRoom, who: Callable[[], Awaitable[Principal]]) -> None:
        self._room, self._who = room, who

    async def __aenter__(self) -> float:
        return 0.0 if self._room.take() else await self._room.wait((await self._who()).org)

    async def __aexit__(self, *_error: object) -> None:
        self._room.leave()


class WaitingRoom:
    """Places at something. Be inside `place` while using it.

    Conservation: `taken` equals the places that were taken and not left.
    """

    def __init__(self, places: Callable[[], int], settings: RoutingSettings, what: str) -> None:
        """`places`: how many there are just now. `what`: they are at, for who must hear of it."""
        self._places, self._settings, self._what = places, settings, what
        self._turns: Turns[asyncio.Future[None]] = Turns(settings.waiting_max)
        self.taken = 0
        self._left_at: float | None = None
        self._interval_seconds = 1.0  # between two that left, of late

    @property
    def waiting(self) -> int:
        return len(self._turns)

    @property
    def places(self) -> int:
        return self._places()

    def place(
        self, who: Callable[[], Awaitable[Principal]]
    ) -> AbstractAsyncContextManager[float, None]:
        """Have a place while inside; gives the seconds that it was waited for.

        `who` is asked only where it must be waited for: organisations take turns. Raises what
        that does, and `Overloaded`.
        """
        return _Place(self, who)

    def take(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if self._turns or self.taken >= self.places:
            return False
        self.taken += 1
        return True

    async def wait(self, org: str) -> float:
        """Take a place when it is this organisation's turn; return the seconds until then.

        Raises `Overloaded` where too many wait, or after `wait_seconds_max`.
        """
        came, loop = time.perf_counter(), asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        displaced = self._turns.join(org, turn)
        if displaced is turn:
            raise self._overloaded(f"too many requests wait for {self._what}")
        if displaced is not None and not displaced.done():
            displaced.set_exception(self._overloaded("others waited with fewer requests"))
        self._hand_out()
        try:
            async with asyncio.timeout(self._settings.wait_seconds_max):
                await turn
        except TimeoutError:
            self._give_up(org, turn)
            raise self._overloaded(f"no place at {self._what} came free in time") from None
        except asyncio.CancelledError:
            self._give_up(org, turn)
            raise
        return time.perf_counter() - came

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


def engine_room(fleet: Fleet, settings: RoutingSettings) -> WaitingRoom:
    """Places over all instances in use; with none of them, whoever comes is told so at once."""

    def places() -> int:
        live = sum(instance.takes_requests for instance in fleet.instances)
        return settings.in_flight_max * max(1, live)

    return WaitingRoom(places, settings, "the engines")
