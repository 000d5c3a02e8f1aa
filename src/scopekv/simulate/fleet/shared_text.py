"""Text that many conversations begin with: the system and document layer of a trace without names.

all sessions' prompts     [ wide: a twentieth of all | shared: 3 or more | one's own ]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scopekv.simulate.fleet.sessions import Sessions
from scopekv.simulate.traces.request import TracedRequest

SHARED_SESSIONS = 3  # conversations that begin with a block, for it to be no one's own
WIDE_FRACTION = 0.05  # of all conversations, for it to be everyone's
BLOCKS_MAX = 1 << 21


@dataclass(frozen=True, slots=True)
class Profile:
    """What one pass over a trace says. `wide` is part of `shared`: traced block ids.

    `seconds`: from the first arrival to the last.
    """

    requests: int
    sessions: int
    input_tokens: int
    seconds: float
    shared: frozenset[int]
    wide: frozenset[int]


class Profiler:
    """Counts the conversations of each block. Bounded: old blocks of one session are dropped."""

    def __init__(self) -> None:
        self._sessions = Sessions()
        self._last: dict[int, int] = {}  # block: the latest conversation with it
        self._counts: dict[int, int] = {}  # block: conversations, where more than one
        self._requests = self._tokens = 0
        self._seconds = 0.0

    def take(self, request: TracedRequest) -> None:
        self._requests += 1
        self._tokens += request.input_tokens
        self._seconds = request.at_seconds
        session = self._sessions.of(request)
        if request.tools_tokens or request.system_tokens:
            return  # the trace itself says what is shared
        last, counts = self._last, self._counts
        for block in request.block_ids:
            before = last.get(block)
            if before != session:
                last[block] = session
                if before is not None:
                    counts[block] = counts.get(block, 1) + 1
        if len(last) > BLOCKS_MAX:
            self._drop_old()

    def _drop_old(self) -> None:
        for block in list(self._last)[: BLOCKS_MAX // 4]:
            if block not in self._counts:
                del self._last[block]
        if len(self._last) > BLOCKS_MAX * 7 // 8:  # nearly all are shared: forget the least
            self._counts = {block: n for block, n in self._counts.items() if n >= SHARED_SESSIONS}

    def profile(self) -> Profile:
        sessions = self._sessions.count
        wide = max(SHARED_SESSIONS, WIDE_FRACTION * sessions)
        return Profile(
            self._requests,
            sessions,
            self._tokens,
            self._seconds,
            frozenset(block for block, n in self._counts.items() if n >= SHARED_SESSIONS),
            frozenset(block for block, n in self._counts.items() if n >= wide),
        )


def profile_of(requests: Iterable[TracedRequest]) -> Profile:
    """One pass over a trace."""
    profiler = Profiler()
    for request in requests:
        profiler.take(request)
    return profiler.profile()
