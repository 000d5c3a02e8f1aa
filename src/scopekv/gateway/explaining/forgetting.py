"""What a caller sent is forgotten when its account is revoked, erased or deleted (L6)."""

from __future__ import annotations

import contextlib
import logging

from scopekv.errors import Unavailable
from scopekv.gateway.access import Access
from scopekv.gateway.explaining.recents import Recents
from scopekv.gateway.rounds import Rounds

LOOK_SECONDS = 0.5
log = logging.getLogger("scopekv.explaining")


class Forgetter(Rounds):
    """Looks at the registry's counter of epochs. Use: `start`, then `stop`."""

    def __init__(self, access: Access, recents: Recents) -> None:
        super().__init__(self._look, LOOK_SECONDS, log, waits="forgetting requests waits")
        self._access, self._recents = access, recents
        self._seen = -1  # the counter when last looked

    async def _look(self) -> None:
        with contextlib.suppress(Unavailable):  # `Access` says so in the log
            await self._access.refresh()
            versions = self._access.versions
            if versions is None or versions.epochs == self._seen:
                return
            for owner in self._recents.owners():
                self._recents.forget(owner, await self._access.epoch(owner))
            self._seen = versions.epochs
