"""How often one account may change its cached contents.

Each change has every gateway read all documents anew, and each end is a receipt and a purge in
every engine and tier: all tenants pay for it (L11).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scopekv.errors import Overloaded

CHANGES_MAX = 60  # at once, and in each minute after
SECONDS_EACH = 1.0
ACCOUNTS_MAX = 10_000


class Pace:
    """Of the accounts at one gateway. Use: `take` before each change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}  # when all of an account's changes are free again

    def take(self, account_uid: str) -> None:
        """Count a change. Raises `Overloaded` for one too many."""
        now = self._clock()
        free_at = max(now, self._free_at.get(account_uid, now)) + SECONDS_EACH
        over = free_at - now - CHANGES_MAX * SECONDS_EACH
        if over > 0:
            raise Overloaded(
                f"this account has changed its cached contents {CHANGES_MAX} times in a minute: "
                "wait, or make fewer that live longer",
                retry_after_seconds=math.ceil(over),
            )
        if len(self._free_at) >= ACCOUNTS_MAX:
            self._free_at = {one: at for one, at in self._free_at.items() if at > now}
        self._free_at[account_uid] = free_at
