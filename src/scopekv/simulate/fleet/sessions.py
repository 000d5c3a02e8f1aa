"""Conversations of a trace that does not name them, by chained prefixes.

A turn's prompt begins with all of the turn before, with its last full block. A document that two
conversations share does not: each goes on differently after it. Where a prompt ends with the very
block where another ended, it is the next turn if it is longer by that one's answer, and a second
question to the same text if not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from scopekv.simulate.traces.request import UNKNOWN, TracedRequest

TAILS_MAX = 1 << 20


class Sessions:
    """Numbers conversations in order of appearance. The same trace gives the same numbers.

    Bounded: the tails of the `TAILS_MAX` latest. Cost: O(blocks) look-ups a request at most.
    """

    def __init__(self) -> None:
        # Last full block: its conversation (UNKNOWN: of several), and the least next prompt.
        self._tails: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self.count = 0

    def of(self, request: TracedRequest) -> int:
        """The conversation of a request; the trace's own number where it has one."""
        if request.session != UNKNOWN:
            self.count = max(self.count, request.session + 1)
            return request.session
        ids, full = request.block_ids, request.input_tokens // request.block_tokens
        if full == 0:
            return self._new()
        tails, last = self._tails, ids[full - 1]
        session = self._before(ids, full, request.input_tokens)
        alike = last in tails and session == UNKNOWN
        if session == UNKNOWN:
            session = self._new()
        tails[last] = UNKNOWN if alike else session, request.input_tokens + request.output_tokens
        tails.move_to_end(last)
        if len(tails) > TAILS_MAX:
            tails.popitem(last=False)
        return session

    def _before(self, ids: Sequence[int], full: int, input_tokens: int) -> int:
        """The conversation whose next turn this is, or UNKNOWN."""
        tails = self._tails
        for index in range(full - 1, -1, -1):
            found = tails.get(ids[index])
            if found is not None:
                session, least = found
                if index == full - 1 and input_tokens < least:
                    return UNKNOWN
                if session != UNKNOWN:
                    del tails[ids[index]]
                return session
        return UNKNOWN

    def _new(self) -> int:
        self.count += 1
        return self.count - 1
