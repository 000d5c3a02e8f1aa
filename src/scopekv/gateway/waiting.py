"""Waiting rooms: no more under way than there are places, and a fair line for the rest.

One for the engines, one for each provider beside them, one each for explaining and counting.
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


class NoPlace(Overloaded):
    """No place, and no more room or time to wait for one: nothing was begun."""


class _Place(AbstractAsyncContextManager[float, None]):
    """One place, from the moment it is had."""

    __slots__ = ("_before", "_room", "_who")

    def __init__(
        self, room: WaitingRoom, who: Callable[[], Awaitable[Principal]], before: float
    ) -> None:
        self._room, self._who, self._before = room, who, before

    async def __aenter__(self) -> float:
        if self._room.take():
            return self._before
        return self._before + await self._room.wait((await self._who()).org, self._before)

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

    @property
    def free(self) -> bool:
        """Whether whoever comes has a place at once."""
        return not self._turns and self.taken < self.places

    def place(
        self, who: Callable[[], Awaitable[Principal]], waited_seconds: float = 0.0
    ) -> AbstractAsyncContextManager[float, None]:
        """Have a place while inside; gives the seconds that were waited in all.

        `who` is asked only where it must be waited for: organisations take turns.
        `waited_seconds`: elsewhere before, so much less is waited here. Raises what `who` does,
        and `NoPlace`.
        """
        return _Place(self, who, waited_seconds)

    def take(self) -> bool:
        """Take a place if one is free and nobody waits."""
        if not self.free:
            return False
        self.taken += 1
        return True

    async def wait(self, org: str, before: float) -> float:
        """Take a place when it is this organisation's turn; return the seconds until then.

        `before`: so much was waited elsewhere. Raises `NoPlace` where too many wait, or when
        `wait_seconds_max` is over.
        """
        came, loop = time.perf_counter(), asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        displaced = self._turns.join(org, turn)
        if displaced is turn:
            raise self._no_place(f"too many requests wait for {self._what}")
        if displaced is not None and not displaced.done():
            displaced.set_exception(self._no_place("others waited with fewer requests"))
        self._hand_out()
        try:
            async with asyncio.timeout(self._settings.wait_seconds_max - before):
                await turn
        except TimeoutError:
            self._give_up(org, turn)
            raise self._no_place(f"no place at {self._what} came free in time") from None
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

    def _no_place(self, why: str) -> NoPlace:
        seconds = math.ceil(self._interval_seconds * (self.waiting + 1))
        seconds = min(max(1, seconds), RETRY_SECONDS_MAX)
        return NoPlace(f"{why}: retry after {seconds} s", retry_after_seconds=seconds)


def engine_room(fleet: Fleet, settings: RoutingSettings) -> WaitingRoom:
    """Places over all instances in use; with none of them, whoever comes is told so at once."""

    def places() -> int:
        live = sum(instance.takes_requests for instance in fleet.instances)
        return settings.in_flight_max * max(1, live)

    return WaitingRoom(places, settings, "the engines")
