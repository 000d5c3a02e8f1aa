"""What a caller sent is forgotten when its account is revoked, erased or deleted (L6)."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from scopekv.errors import Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.explaining.recents import Recents

LOOK_SECONDS = 0.5
log = logging.getLogger("scopekv.explaining")


class Forgetter:
    """Looks at the registry's counter of epochs. Use: `start`, then `stop`."""

    def __init__(self, access: Access, recents: Recents) -> None:
        self._access, self._recents = access, recents
        self._seen = -1  # the counter when last looked
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Unavailable:
                pass  # `Access` says so in the log
            except Exception as error:  # noqa: BLE001 - the loop must outlive what it meets
                log.error("unexpected %s while forgetting requests", type(error).__name__)

    async def _look(self) -> None:
        await self._access.refresh()
        versions = self._access.versions
        if versions is None or versions.epochs == self._seen:
            return
        for owner in self._recents.owners():
            self._recents.forget(owner, await self._access.epoch(owner))
        self._seen = versions.epochs
