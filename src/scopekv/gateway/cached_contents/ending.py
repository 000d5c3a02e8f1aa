"""Ends cached contents when their time is over, whoever made them and whatever restarted since.

From that moment no prompt matches them (`gateway.documents`); this revokes what was kept.
"""

from __future__ import annotations

import asyncio
import logging

from scopekv.errors import ScopeKVError
from scopekv.gateway.administration import Administration

LOOK_SECONDS = 1.0
log = logging.getLogger("scopekv.cached_contents")


class Ender:
    """Looks at the registry once a second. Use: `start`, `stop`."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def end_due(self) -> int:
        """One round. Returns how many ended. Raises what the registry does."""
        return await asyncio.to_thread(self._administration.cached_contents.expire)

    async def _run(self) -> None:
        trouble = ""
        while True:
            try:
                await self.end_due()
                trouble = ""
            except ScopeKVError as error:
                if str(error) != trouble:  # once a change
                    log.warning("cached contents wait for their end: %s", error)
                trouble = str(error)
            except Exception as error:  # noqa: BLE001 - the loop must outlive what it meets
                log.error("unexpected %s while ending cached contents", type(error).__name__)
            await asyncio.sleep(LOOK_SECONDS)
