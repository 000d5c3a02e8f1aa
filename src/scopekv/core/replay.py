"""How often a ticket was used: a nonce serves `uses` sequences, then no more."""

from __future__ import annotations

from scopekv.core.tickets import SKEW_MS, Ticket

NONCES_MAX = 200_000
SWEEP_MS = 1_000


class UseLedger:
    """Counts uses per nonce for longer than its ticket can verify. Bounded; full grants nothing.

    `now_ms` is a monotonic clock: a wall clock that jumps forgets no use.
    """

    __slots__ = ("_limit", "_next_sweep_ms", "_uses")

    def __init__(self, limit: int = NONCES_MAX) -> None:
        self._limit = limit
        self._uses: dict[bytes, tuple[int, int]] = {}  # nonce -> (uses, forget at ms)
        self._next_sweep_ms = 0

    def __len__(self) -> int:
        return len(self._uses)

    def take(self, ticket: Ticket, now_ms: int) -> bool:
        """Count one use; False when the ticket has none left or the ledger is full."""
        if now_ms >= self._next_sweep_ms:
            self._uses = {n: entry for n, entry in self._uses.items() if entry[1] > now_ms}
            self._next_sweep_ms = now_ms + SWEEP_MS
        used, forget_at = self._uses.get(ticket.nonce, (0, now_ms + ticket.ttl_ms + 2 * SKEW_MS))
        if used >= ticket.uses or (used == 0 and len(self._uses) >= self._limit):
            return False
        self._uses[ticket.nonce] = (used + 1, forget_at)
        return True
