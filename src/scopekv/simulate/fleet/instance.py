"""One running engine: a queue, prefill one prompt after another, decode of all at once.

    arrives --- fetch (others compute) --- waits --- prefill --- first token --- decode --- done

Prefill is first come, first served, in chunks; each chunk is one step, which makes a token for
every sequence that decodes beside it. Between prefills a step takes what `Speeds` says of so many
sequences. Blocks of a prompt are held from its prefill to its end, and room for its answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import cache

from scopekv.core.lru import Entry, entries_of
from scopekv.simulate.fleet.clock import Clock
from scopekv.simulate.fleet.job import Job
from scopekv.simulate.fleet.memory import Memory
from scopekv.simulate.fleet.speeds import Speeds
from scopekv.simulate.fleet.tiers import HOST, Tiers

ENGINE = "engine"
Changed = Callable[["Instance", str, Sequence[int], Sequence[int]], None]
Ended = Callable[[Job], None]


class Instance:
    """Owned by a fleet, which hears of blocks (`changed`), first tokens and ends."""

    def __init__(
        self,
        number: int,
        clock: Clock,
        speeds: Speeds,
        memory: Memory,
        tiers: Tiers,
        *,
        changed: Changed,
        first: Ended,
        done: Ended,
        rejected: Ended,
    ) -> None:
        self.number, self.memory, self.tiers = number, memory, tiers
        self.name = str(number)
        self._clock, self._speeds, self._curve = clock, speeds, speeds.prefill.curve()
        self._step_seconds = cache(speeds.step_seconds)  # of at most `sequences_max`
        self._changed, self._first, self._done, self._rejected = changed, first, done, rejected
        self._ready: list[tuple[int, Job]] = []  # by arrival
        self._computing: Job | None = None
        self._queue_seconds = 0.0  # of everything that waits here, as expected when it came
        self._ends: list[tuple[float, int, Job]] = []  # by tokens that each sequence has made
        self._made, self._rate, self._made_at = 0.0, 0.0, 0.0
        self._version = 0
        self.in_flight = 0
        self.busy_seconds = 0.0
        self._expected: dict[int, float] = {}
        self._costs: list[float] = []  # of a block by its depth: blocks are of one size

    # --- the queue ------------------------------------------------------------------------------

    def take(self, job: Job) -> None:
        """A request arrives. What tiers have of it is fetched while others compute."""
        job.instance = self
        self.in_flight += 1
        end = self.memory.leading(job.names)
        if self.tiers.memories:
            self.tiers.plan(job, end, self._queue(), self._curve, self._clock.now)
        cached = min(end * job.block_tokens, job.input_tokens - 1)
        expected = self._curve.seconds(cached, job.input_tokens)
        self._expected[job.number] = expected
        self._queue_seconds += expected
        if job.ready_at > self._clock.now:
            self._clock.at(job.ready_at, self._arrived, job)
        else:
            self._arrived(job)

    def _queue(self) -> float:
        """Seconds until what waits here has its first token, as far as can be told."""
        job = self._computing
        if job is None:
            return self._queue_seconds
        gone = min(self._clock.now - job.started_at, self._expected[job.number])
        return max(0.0, self._queue_seconds - gone)

    def _arrived(self, job: Job) -> None:
        heapq.heappush(self._ready, (job.number, job))
        self._begin()

    def _begin(self) -> None:
        """Start the next prefill, if there is one that fits."""
        if self._computing is not None or not self._ready:
            return
        if len(self._ends) >= self._speeds.sequences_max:
            return
        job = self._ready[0][1]
        seconds = self._admit(job)
        if seconds is None:
            if not self._ends:  # nothing will ever make room
                heapq.heappop(self._ready)
                self._forget(job)
                self._rejected(job)
                self._begin()
            return
        heapq.heappop(self._ready)
        now = self._clock.now
        self._computing, job.started_at = job, now
        computed = max(1, job.input_tokens - job.cached_tokens)
        steps = -(-computed // self._speeds.prefill.chunk_tokens)
        seconds += steps * self._step_seconds(len(self._ends))
        self.busy_seconds += seconds
        self._pace(steps / seconds if seconds > 0 else 0.0)
        self._clock.at(now + seconds, self._computed, job)

    def _admit(self, job: Job) -> float | None:
        """Hold the prompt's blocks; return the seconds that its prefill takes, None for no room."""
        memory, names, size = self.memory, job.names, job.block_tokens
        end = memory.leading(names)
        answer = -(-job.output_tokens // size)
        memory.pin(names[:end])
        gone = memory.make_room(len(names) - end + answer, job.account)
        if gone is None:
            memory.unpin(names[:end])
            return None
        job.found = {ENGINE: end}
        copied = self._from_tiers(job, end)
        job.entries = self._entries(job)
        memory.reserved += answer
        job.reserved_blocks = answer
        made, entries = memory.missing(names, job.entries, end)  # what is here is held, not read
        memory.put_in_use(made, entries, names[end:])
        if made or gone:
            self._changed(self, ENGINE, made, gone)
        left = min(job.cached_tokens, job.input_tokens - 1)
        return copied + self._curve.seconds(left, job.input_tokens)

    def _from_tiers(self, job: Job, end: int) -> float:
        """Note where the prompt's leading blocks are; return the seconds to copy from host."""
        at, seconds, now = end, 0.0, self._clock.now
        if HOST in self.tiers.memories:
            host_end = self.tiers.host_end(job.names, at)
            if host_end > at:
                seconds = self.tiers.copy_seconds(job, at, host_end, now)
                job.found[HOST] = host_end - at
                at = host_end
        for begin, upto, tier in job.fetched:
            if begin <= at < upto:
                job.found[tier] = job.found.get(tier, 0) + upto - at
                at = upto
        job.cached_tokens = min(at * job.block_tokens, job.input_tokens)
        return seconds

    def _entries(self, job: Job) -> list[Entry[int]]:
        size, curve, costs, blocks = job.block_tokens, self._curve, self._costs, len(job.names)
        token, pair = curve.token_seconds * size, curve.pair_seconds * size * size
        for depth in range(len(costs), blocks):
            costs.append(token + pair * (depth + 0.5))
        size_bytes = self._speeds.kv_bytes_per_token * size
        return entries_of(job.account, job.names, size_bytes, costs[:blocks])

    def _computed(self, job: Job) -> None:
        """Its first token is there."""
        self._computing = None
        job.first_at = self._clock.now
        self._queue_seconds = max(0.0, self._queue_seconds - self._expected.pop(job.number))
        if self.tiers.memories:
            self.tiers.offer(job)
        job.entries = ()
        self._first(job)
        self._settle()
        if job.output_tokens <= 1:
            self._end(job)
        else:
            job.decode_until = self._made + job.output_tokens - 1
            heapq.heappush(self._ends, (job.decode_until, job.number, job))
        self._go_on()

    # --- decode ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Count what every sequence has made since the last look."""
        now = self._clock.now
        self._made += self._rate * (now - self._made_at)
        self._made_at = now

    def _pace(self, rate: float) -> None:
        """From now on each sequence makes `rate` tokens a second."""
        self._settle()
        self._rate = rate
        self._version += 1
        if self._ends and rate > 0:
            due = self._clock.now + max(0.0, self._ends[0][0] - self._made) / rate
            self._clock.at(due, self._decoded, self._version)

    def _decoded(self, version: int) -> None:
        """The sequence that was to end first has ended, if nothing changed the pace since."""
        if version != self._version:
            return
        self._settle()
        until, _, job = heapq.heappop(self._ends)
        self._made = max(self._made, until)
        self._end(job)
        self._go_on()

    def _go_on(self) -> None:
        """After an end: the next prefill where none runs, else the pace for those that decode."""
        if self._computing is not None:
            self._pace(self._rate)
            return
        self._begin()
        if self._computing is None:
            step = self._step_seconds(len(self._ends))
            self._pace(1 / step if step else 0.0)

    def _end(self, job: Job) -> None:
        self.memory.unpin(job.names)
        self.memory.reserved -= job.reserved_blocks
        self.in_flight -= 1
        self._done(job)

    def _forget(self, job: Job) -> None:
        self._queue_seconds = max(0.0, self._queue_seconds - self._expected.pop(job.number))
        self.in_flight -= 1
