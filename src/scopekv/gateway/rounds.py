"""What is done again and again while the gateway runs, whatever it meets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from scopekv.errors import ScopeKVError


class Rounds:
    """Pauses, does its work, and so on. Use: `start`, then `stop`.

    Trouble of ours is logged once a change, as a warning; of anything else only the type is.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[object]],
        seconds: float,
        log: logging.Logger,
        *,
        waits: str,
    ) -> None:
        """`seconds`: between two rounds. `waits`: what a failed round leaves for the next one."""
        self._work, self._seconds = work, seconds
        self._log, self._waits = log, waits
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End it; a round that is under way is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            trouble = ""
            try:
                await self._work()
            except ScopeKVError as error:
                trouble = str(error)
                if trouble != self._trouble:
                    self._log.warning("%s for the next round: %s", self._waits, error)
            except Exception as error:  # noqa: BLE001 - the rounds must outlive what they meet
                self._log.error("%s, for an unexpected %s", self._waits, type(error).__name__)
            self._trouble = trouble
