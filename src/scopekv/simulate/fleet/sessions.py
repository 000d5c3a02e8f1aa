"""Conversations of a trace that does not name them, by chained prefixes.

A turn's prompt begins with all of the turn before: with its last full block. A document that two
conversations share does not: each goes on differently after it, and a prompt that ends with the
very block where another ended is a second question to the same text, not a next turn.
"""

from __future__ import annotations

from collections import OrderedDict

from scopekv.simulate.traces.request import UNKNOWN, TracedRequest

TAILS_MAX = 1 << 20


class Sessions:
    """Numbers conversations in order of appearance. The same trace gives the same numbers.

    Bounded: the tails of the `TAILS_MAX` latest. Cost: O(blocks) look-ups a request at most.
    """

    def __init__(self) -> None:
        self._tails: OrderedDict[int, int] = OrderedDict()  # last full block: its conversation
        self.count = 0

    def of(self, request: TracedRequest) -> int:
        """The conversation of a request; the trace's own number where it has one."""
        if request.session != UNKNOWN:
            self.count = max(self.count, request.session + 1)
            return request.session
        ids, full = request.block_ids, request.input_tokens // request.block_tokens
        tails, session = self._tails, UNKNOWN
        if full == 0:
            return self._new()
        last = ids[full - 1]
        if last in tails:
            tails[last] = UNKNOWN  # two that end alike: no tail of either from now on
            tails.move_to_end(last)
            return self._new()
        for index in range(full - 2, -1, -1):
            found = tails.get(ids[index])
            if found is not None:
                if found != UNKNOWN:
                    session = found
                    del tails[ids[index]]
                break
        if session == UNKNOWN:
            session = self._new()
        tails[last] = session
        if len(tails) > TAILS_MAX:
            tails.popitem(last=False)
        return session

    def _new(self) -> int:
        self.count += 1
        return self.count - 1
