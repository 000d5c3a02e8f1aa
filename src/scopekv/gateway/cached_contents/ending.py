"""Ends cached contents when their time is over, whoever made them and whatever restarted since.

From that moment no prompt matches them (`gateway.documents`); this revokes what was kept.
"""

from __future__ import annotations

import asyncio
import logging

from scopekv.gateway.administration import Administration
from scopekv.gateway.rounds import Rounds

LOOK_SECONDS = 1.0
log = logging.getLogger("scopekv.cached_contents")


class Ender(Rounds):
    """Looks at the registry once a second. Use: `start`, `stop`."""

    def __init__(self, administration: Administration) -> None:
        super().__init__(self.end_due, LOOK_SECONDS, log, waits="ended cached contents wait")
        self._administration = administration

    async def end_due(self) -> int:
        """One round. Returns how many ended. Raises what the registry does."""
        return await asyncio.to_thread(self._administration.cached_contents.expire)
