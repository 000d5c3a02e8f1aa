"""What isolation costs: tokens that one cache for everybody would have had, and ours had not.

Nothing is shared by this: it remembers which prefixes were sent, and by whom first, and only
counts. The count speaks of other callers' texts, so it is for the operator alone (L10).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

TOKEN_BYTES = 4
SEVERAL = object()  # sent by more than one caller


class IsolationCost:
    """Bounded memory of prefixes, in blocks. `secret`: random bytes of this process.

    A prefix is known by 61 bits of Python's own keyed hash (SipHash, PEP 456), chained from block
    to block: a tenth of a cryptographic one's time. Nothing is permitted by it. Two prefixes that
    collide (one in 10^8 over the whole memory) would make the count wrong by a prompt.
    Cost: 0.4 microseconds and some 130 bytes for each block.
    """

    def __init__(self, secret: bytes, blocks_max: int = 200_000) -> None:
        self._secret, self._blocks_max = secret, blocks_max
        self._senders: OrderedDict[int, Hashable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._senders)

    def note(self, sender: str, packed: bytes, block_size: int, cached: int) -> int:
        """Remember a prompt (4 bytes a token); return what isolation cost it, in tokens.

        At most that: blocks which an unscoped cache would have evicted meanwhile count as well.
        Blocks that the sender had sent before are no cost of isolation, however they were lost.
        """
        step = block_size * TOKEN_BYTES
        state, seen_by_any, seen_by_sender = hash(self._secret), 0, 0
        follows = own = True
        senders = self._senders
        for end in range(step, len(packed) - TOKEN_BYTES + 1, step):
            state = hash((state, packed[end - step : end]))
            first = senders.get(state)
            if first is None:
                follows = own = False
                senders[state] = sender  # at the end, as the youngest
                continue
            seen_by_any += follows
            if first != sender and first is not SEVERAL:
                own = False
                senders[state] = SEVERAL
            seen_by_sender += own
            senders.move_to_end(state)
        while len(senders) > self._blocks_max:
            senders.popitem(last=False)
        return max(0, seen_by_any * block_size - max(cached, seen_by_sender * block_size))
