"""What one instance has been sent and not finished: its queue in seconds, and its speed.

A request is counted from the moment it is placed, so that a burst does not pile up on whoever was
idle when it began. Prefill is first come, first served; what has its first token only decodes.

    placed --- queue ahead --- prefill --- first token --- decode --- done
           \\________ waiting ___________/             \\_ decoding __/

The first token of a whole (not streamed) answer is not seen: it counts as given when expected.
What other gateways have there is heard of (`core.backlogs`), and kept apart: it is queue as well,
but counted in no figure of what was sent from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scopekv.core.backlogs import NOTHING, Backlog
from scopekv.core.speeds import PrefillCurve, PrefillSpeed
from scopekv.core.values import light_value
from scopekv.errors import Misuse

_SURE_SAMPLES = 3
_SLOW_PACE = 0.2
_SLOW_MAX = 10.0  # a decoding request slows prefill down by at most so many times itself
_FLOOR_GROWTH = 1.02  # how fast the least time per token is forgotten


@dataclass(slots=True, eq=False)
class Reservation:
    """One request on one instance. Tokens [cached, total) are its prefill. Owned by the load."""

    total_tokens: int
    cached_tokens: int
    prefill_seconds: float
    streams: bool
    placed_at: float
    begins_at: float  # not before others' requests have had their turn
    alone: bool  # nothing waited there when it was placed
    beside: int  # requests that decoded then
    first_at: float | None = None
    waiting: bool = True
    open: bool = True


@light_value()
class Outcome:
    """What a complete answer says of itself. `cached_tokens` None: the engine does not count."""

    prompt_tokens: int
    cached_tokens: int | None
    answer_tokens: int


class InstanceLoad:
    """The load and the measured speed of one instance. Touches nothing; `now` is monotonic seconds.

    Conservation: `waiting + decoding` equals the reservations that are open.
    """

    __slots__ = (
        *("_curve", "_decode_seconds", "_decoding", "_floor_seconds", "_head_began", "_heard_at"),
        *("_others", "_slow", "_slowed", "_speed", "_waiting", "_waiting_seconds"),
    )

    def __init__(self, *, tokens_per_second: float = 10_000.0) -> None:
        self._speed = PrefillSpeed(tokens_per_second=tokens_per_second)
        self._curve = self._speed.curve()
        self._slow = 0.0
        self._slowed: dict[int, PrefillCurve] = {}  # by what decodes beside, until more is learned
        self._waiting: dict[Reservation, None] = {}  # in the order in which they were placed
        self._waiting_seconds = 0.0
        self._head_began = -math.inf
        self._decoding = 0
        self._decode_seconds: float | None = None  # per token, from streams
        self._floor_seconds = math.inf  # per token, the least that whole answers took
        self._others = NOTHING
        self._heard_at = 0.0

    @property
    def waiting(self) -> int:
        """Requests without a first token, as far as is known."""
        return len(self._waiting)

    @property
    def decoding(self) -> int:
        return self._decoding

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + self._decoding

    @property
    def in_flight_of_all(self) -> int:
        """With what other gateways were last heard to have there."""
        others = self._others
        return len(self._waiting) + self._decoding + others.waiting + others.decoding

    @property
    def samples(self) -> int:
        """Prefills that were measured; 0: the speed is a guess."""
        return self._speed.samples

    def curve(self) -> PrefillCurve:
        """Prefill as it is now: slowed down by what is decoded beside it."""
        beside = self._decoding + self._others.decoding
        if not self._slow or not beside:
            return self._curve
        slowed = self._slowed.get(beside)
        if slowed is None:
            factor, curve = 1 + self._slow * beside, self._curve
            slowed = self._slowed[beside] = PrefillCurve(
                factor * curve.fixed_seconds,
                factor * curve.token_seconds,
                factor * curve.pair_seconds,
            )
        return slowed

    def queue_seconds(self, now: float) -> float:
        """Seconds until everything placed so far, by anybody, has its first token.

        Cost: O(1) amortised.
        """
        own, others = self._own_seconds(now), self._others
        return own + others.after(now - self._heard_at) if others is not NOTHING else own

    def own(self, now: float) -> Backlog:
        """What this gateway has there: its word to the others."""
        seconds = self._own_seconds(now)
        return Backlog(seconds, len(self._waiting), self._decoding)

    def heard(self, others: Backlog, now: float, one: Reservation | None = None) -> None:
        """What other gateways have there now; `one`: the request whose answer says so."""
        self._others, self._heard_at = others, now
        if one is not None and others.waiting:
            one.alone = False

    def _own_seconds(self, now: float) -> float:
        """What is late is expected to be late as much again, so a hanging instance gets dearer."""
        head = self._advance(now)
        if head is None:
            return 0.0
        left = head.prefill_seconds - max(0.0, now - max(self._head_began, head.begins_at))
        return max(0.0, self._waiting_seconds - head.prefill_seconds) + abs(left)

    def place(
        self,
        now: float,
        *,
        total_tokens: int,
        cached_tokens: int,
        prefill_seconds: float,
        streams: bool,
    ) -> Reservation:
        """Count a request that goes here. End it with `done`."""
        if not 0 <= cached_tokens < total_tokens or not 0 <= prefill_seconds < math.inf:
            raise Misuse("a request has tokens to compute, and a finite time for them")
        self._advance(now)
        others = self._others
        made = Reservation(
            *(total_tokens, cached_tokens, prefill_seconds, streams, now),
            begins_at=now + others.after(now - self._heard_at) if others is not NOTHING else now,
            alone=not self._waiting and not others.waiting,
            beside=self._decoding + others.decoding,
        )
        self._waiting[made] = None
        self._waiting_seconds += prefill_seconds
        return made

    def first_token(self, one: Reservation, now: float) -> None:
        """Its first token is here. Idempotent."""
        if one.open and one.first_at is None:
            one.first_at = now
            self._to_decoding(one, now)

    def done(self, one: Reservation, now: float, outcome: Outcome | None = None) -> None:
        """It ended, however. `outcome` of a whole and complete answer teaches. Idempotent."""
        if not one.open:
            return
        self._to_decoding(one, now)
        one.open = False
        self._decoding -= 1
        if outcome is not None:
            self._learn(one, now, outcome)

    def _to_decoding(self, one: Reservation, now: float) -> None:
        if not one.waiting:
            return
        if next(iter(self._waiting)) is one:
            self._head_began = now
        one.waiting = False
        del self._waiting[one]
        self._waiting_seconds -= one.prefill_seconds
        if not self._waiting:
            self._waiting_seconds = 0.0  # no rounding is kept
        self._decoding += 1

    def _advance(self, now: float) -> Reservation | None:
        """Whole answers at the head count as decoding once their prefill should be over.

        Gives the head that is left.
        """
        while self._waiting:
            head = next(iter(self._waiting))
            if head.streams:
                return head
            due = max(self._head_began, head.begins_at) + head.prefill_seconds
            if due > now:
                return head
            self._to_decoding(head, due)
        return None

    # What answers teach.

    def _learn(self, one: Reservation, now: float, outcome: Outcome) -> None:
        cached = one.cached_tokens if outcome.cached_tokens is None else outcome.cached_tokens
        seconds = self._prefill_time(one, now, outcome.answer_tokens)
        computed = outcome.prompt_tokens - cached
        if not one.alone or seconds is None or seconds <= 0 or cached < 0 or computed < 1:
            return
        self._slowed.clear()
        if one.beside and self._speed.samples >= _SURE_SAMPLES:
            share = (seconds / self._curve.seconds(cached, outcome.prompt_tokens) - 1) / one.beside
            self._slow += _SLOW_PACE * (min(max(0.0, share), _SLOW_MAX) - self._slow)
            if share >= 0:  # else prefill itself is faster than it was taken for
                return
        self._speed.observe(cached, computed, seconds)
        self._curve = self._speed.curve()

    def _prefill_time(self, one: Reservation, now: float, answer_tokens: int) -> float | None:
        """From being placed to the first token: seen of a stream, else the time less the answer."""
        if one.first_at is not None and one.streams:
            if answer_tokens > 1:
                token = (now - one.first_at) / (answer_tokens - 1)
                before = self._decode_seconds
                self._decode_seconds = token if before is None else before + 0.2 * (token - before)
            return one.first_at - one.placed_at
        whole = now - one.placed_at
        if answer_tokens <= 1:
            return whole
        self._floor_seconds = min(self._floor_seconds * _FLOOR_GROWTH, whole / answer_tokens)
        token = self._floor_seconds if self._decode_seconds is None else self._decode_seconds
        left = whole - token * (answer_tokens - 1)
        return left if left > whole / 4 else None  # else it says little of the prefill
