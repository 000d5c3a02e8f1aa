"""What isolation costs: tokens that one cache for everybody would have had, and ours had not.

Nothing is shared by this: it remembers which prefixes were sent, and by whom first, and only
counts. The count speaks of other callers' texts, so it is for the operator alone (L10).
"""

from __future__ import annotations

from collections.abc import Hashable

TOKEN_BYTES = 4
SPAN_BLOCKS = 16
SEVERAL = object()  # sent by more than one caller
_Senders = dict[int, Hashable]


class IsolationCost:
    """Bounded memory of prefixes, in blocks and in spans of blocks. `secret`: of this process.

        span   |  16 blocks   |  16 blocks   |  16 blocks   |  the rest
               | sent before: one look-up    | block by block

    A prefix is known by 61 bits of Python's own keyed hash (SipHash, PEP 456), chained from span to
    span and from block to block. Nothing is permitted by it. Two prefixes that collide (one in 10^8
    over the whole memory) would make the count wrong by a prompt.

    What is young was sent since `blocks_max / 2` others came; the old is what was young before, and
    goes when the young becomes old. A span that is young has its blocks with it, and its sender is
    theirs, or they had several: nothing would change by a look at each.

    Cost: some 80 bytes a block; 0.5 microseconds for each that is new, 1.5 for a span that is not.
    """

    def __init__(self, secret: bytes, blocks_max: int = 200_000) -> None:
        self._start, self._half = hash(secret), blocks_max // 2
        self._young: _Senders = {}
        self._old: _Senders = {}

    def __len__(self) -> int:
        """At most `blocks_max` and the blocks of one prompt."""
        return len(self._young) + len(self._old)

    def note(self, sender: str, packed: bytes, block_size: int, cached: int) -> int:
        """Remember a prompt (4 bytes a token); return what isolation cost it, in tokens.

        At most that: blocks which an unscoped cache would have evicted meanwhile count as well.
        Blocks that the sender had sent before are no cost of isolation, however they were lost.
        """
        step = block_size * TOKEN_BYTES
        whole = (len(packed) - TOKEN_BYTES) // step * step  # the block that ends it is computed
        span, state = SPAN_BLOCKS * step, self._start
        seen_by_any = seen_by_sender = 0
        for at in range(0, whole, span):
            text, before, done = packed[at : min(at + span, whole)], state, at // step
            state = hash((before, text))
            first = self._young.get(state)
            if first is not None and (first == sender or first is SEVERAL):
                known = own = len(text) // step
            else:
                known, own, self._young[state] = self._note_blocks(before, sender, text, step)
            # Only what follows a prefix that was sent was sent.
            seen_by_any += known if seen_by_any == done else 0
            seen_by_sender += own if seen_by_sender == done else 0
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        return max(0, seen_by_any * block_size - max(cached, seen_by_sender * block_size))

    def _note_blocks(
        self, state: int, sender: str, text: bytes, step: int
    ) -> tuple[int, int, Hashable]:
        """How many leading blocks anybody had sent, how many the sender; whose the last one is."""
        young, old = self._young, self._old
        known = own = 0
        whose: Hashable = sender
        for index in range(len(text) // step):
            state = hash((state, text[index * step : (index + 1) * step]))
            first = young.get(state)
            if first is None:
                first = old.get(state)
            whose = sender
            if first is not None:
                known += known == index
                if first == sender or first is SEVERAL:
                    own += own == index
                    whose = first
                else:
                    whose = SEVERAL
            young[state] = whose
        return known, own, whose
