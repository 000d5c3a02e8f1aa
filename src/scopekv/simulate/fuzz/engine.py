"""One engine: the real verdict, fences, ledgers and tiers around a cache without a model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from scopekv.core.chains import Link, chain_at, tag
from scopekv.core.enforcement import Gate, judge
from scopekv.core.fences import Fences
from scopekv.core.replay import UseLedger
from scopekv.simulate.fuzz.bus import Noise
from scopekv.simulate.fuzz.clock import Clock, Machine
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.flight import BLOCK_TOKENS, Flight, Load, Stage
from scopekv.simulate.fuzz.memory import Memory, Sizes
from scopekv.simulate.fuzz.outer import OuterTier, TierPlan
from scopekv.simulate.fuzz.places import Killed, Process
from scopekv.simulate.prefix_cache import BlockHash, Content
from scopekv.store.blocks import Block, Presence
from scopekv.store.keyring import Keyring

ASKS_MAX = 12  # then a question to a tier is given up, and the rest is computed
BLOCK_BYTES = 64  # a content of 32 bytes, twice
LEDGER_MAX = 7
Seen = Callable[[Flight, int, bytes, str], None]  # flight, block, bytes read, from where
Ended = Callable[[Flight], None]


class Engine:
    """An engine process. `kill` and `start` give it lives; what it keeps in memory dies with it."""

    def __init__(
        self,
        name: str,
        deployed: Deployed,
        clock: Clock,
        machine: Machine,
        dice: Callable[[], Random],
        sizes: Sizes,
        tiers: Sequence[TierPlan],
        seen: Seen,
        ended: Ended,
    ) -> None:
        self.name, self.machine, self.sizes = name, machine, sizes
        self._deployed, self._clock, self._dice = deployed, clock, dice
        self._plans, self._seen, self._ended = tiers, seen, ended
        self._jobs = itertools.count(1)
        self.memory = Memory(sizes, machine.wall, clock.mono)
        self.bus, self.cache, self.host = self.memory.bus, self.memory.cache, self.memory.host
        self.flights: list[Flight] = []
        self.input_tokens = self.cached_tokens = 0
        self.judged: Counter[str] = Counter()
        self.taken = 0
        self.up = False
        self.start()

    def start(self) -> None:
        """A new life: nothing held, no fence known, tiers find their objects again."""
        self.process = Process()
        self.memory.start()
        self.fences, self.uses = Fences(), UseLedger(LEDGER_MAX)
        self.keyring = Keyring(self._deployed.lease_source(), self._clock.mono, threaded=False)
        self.tiers = [
            OuterTier(plan, self.keyring, self._deployed, self._clock, self.machine, self.process)
            for plan in self._plans
        ]
        self._done: dict[tuple[int, int], Load] = {}
        self.bus.breaks()
        self.up = True

    def kill(self) -> None:
        """The process is gone, in the middle of whatever it did."""
        self.up = self.process.alive = False
        self.bus.new_life()
        self.flights = []

    # --- work -----------------------------------------------------------------------------------

    def take(self, flight: Flight) -> None:
        """A request arrives: judged at once."""
        gate = Gate(
            self._deployed.checks, self._deployed.audience, self._deployed.fingerprint, self.fences
        )
        flight.verdict = verdict = judge(
            flight.ticket,
            flight.tokens,
            gate=gate,
            ledger=self.uses,
            now_ms=self.machine.wall_ms(),
            monotonic_ms=self._clock.mono_ms(),
            nonce=self._dice().randbytes(16),
            adapter=b"",
        )
        self.judged[verdict.reason] += 1
        self.taken += 1
        flight.hashes = [
            bytes(one)
            for one in self.cache.hashes(
                flight.tokens, lambda start, end: (("scopekv", verdict.tags.tag(start, end)),)
            )
        ]
        if flight.grants:
            self.memory.origins.note(flight.hashes, 0, flight.grants)
            links = [Link(grant.scope, grant.epoch) for grant in flight.grants]
            self.keyring.request(str(flight.ticket), links)
        flight.stage = Stage.LEASES
        self.flights.append(flight)

    def step(self, noise: Noise) -> None:
        """Carry one request on, and publish what changed."""
        open_ones = [flight for flight in self.flights if not flight.over]
        if open_ones:
            self._carry_on(open_ones[self._dice().randrange(len(open_ones))])
        self.flights = [flight for flight in self.flights if not flight.over]
        self.bus.flush(noise, self._dice())

    def turn(self) -> None:
        """One thing that threads do: ask for keys, or what a tier has to do."""
        try:
            kind = self._dice().randrange(4)
            if kind == 0 or not self.tiers:
                self.keyring.turn()
            else:
                self.tiers[self._dice().randrange(len(self.tiers))].turn(kind)
        except Killed:
            pass  # its own end, met inside a call

    def work_off(self) -> None:
        """All that is left to do for threads, while nobody overtakes anybody."""
        while self.keyring.turn():
            pass
        for tier in self.tiers:
            tier.work_off()
        self.collect()

    def _carry_on(self, flight: Flight) -> None:
        flight.steps += 1
        if flight.stage is Stage.LEASES:
            chain = tuple(Link(grant.scope, grant.epoch) for grant in flight.grants)
            flight.asked += 1
            if not self.keyring.pending(chain) or flight.asked > ASKS_MAX:
                flight.stage, flight.asked = Stage.LOOKS, 0
        elif flight.stage is Stage.LOOKS:
            self._look(flight)
        elif flight.stage is Stage.LOADS:
            self._wait(flight)

    def _look(self, flight: Flight) -> None:
        """Take leading blocks up from host memory and tiers; compute where none has the next."""
        readable = (len(flight.tokens) - 1) // BLOCK_TOKENS if flight.grants else 0
        while flight.at < readable:
            block_hash = flight.hashes[flight.at]
            if self.cache.get(BlockHash(block_hash)) is not None:
                flight.at += 1
                continue
            content = self.host.get(block_hash)
            if content is None:
                if self._begin_load(flight):
                    return
                break
            self._seen(flight, flight.at, content, "host")
            self.cache.put(BlockHash(block_hash), Content(content[:32]))
            flight.at += 1
        self._compute(flight)

    def _begin_load(self, flight: Flight) -> bool:
        """Whether a tier was asked, or has to be asked again."""
        chain = chain_at(flight.grants, (flight.at + 1) * BLOCK_TOKENS)
        for number, tier in enumerate(self.tiers):
            answer = tier.tier.lookup([(chain, flight.hashes[flight.at], 0)])[0]
            if answer is Presence.UNKNOWN and flight.asked < ASKS_MAX:
                flight.asked += 1
                return True
            if answer is Presence.PRESENT:
                load = Load(number, next(self._jobs), bytearray(b"\xee" * BLOCK_BYTES))
                flight.load, flight.stage, flight.asked = load, Stage.LOADS, 0
                self._done[number, load.job_id] = load
                block = Block(chain, flight.hashes[flight.at], 0, memoryview(load.slot))
                tier.load(load.job_id, [block])
                return True
        return False

    def _wait(self, flight: Flight) -> None:
        load = flight.load
        if load is None:
            return
        self.collect()
        flight.asked += 1
        tier = self.tiers[load.tier]
        if load.done is None and flight.asked > 3 * ASKS_MAX:
            tier.abandon(load.job_id)
            self.collect()
            load.done = False
        if load.done is None:
            return
        flight.load, flight.stage, flight.asked = None, Stage.LOOKS, 0
        if not load.done:
            flight.at = len(flight.tokens)  # what is left is computed
            return
        content = bytes(load.slot)
        self._seen(flight, flight.at, content, "tier")
        block_hash = flight.hashes[flight.at]
        self.host.put(block_hash, content, self.memory.tags(block_hash))
        self.cache.put(BlockHash(block_hash), Content(content[:32]))
        flight.at += 1

    def collect(self) -> None:
        """Take the tiers' reports."""
        for number, tier in enumerate(self.tiers):
            for job_id, ok in tier.reports():
                load = self._done.pop((number, job_id), None)
                if load is not None:
                    load.done = ok

    def _compute(self, flight: Flight) -> None:
        """Read the longest prefix in the cache, compute the rest, keep every whole block."""
        readable = (len(flight.tokens) - 1) // BLOCK_TOKENS
        hits = 0
        for block_hash in flight.hashes[:readable]:
            content = self.cache.get(BlockHash(block_hash))
            if content is None:
                break
            self._seen(flight, hits, bytes(content) * 2, "engine")
            hits += 1
        flight.reused = hits
        for at, block_hash in enumerate(flight.hashes):
            made = self.cache.get(BlockHash(block_hash)) if at < hits else None
            if made is None:
                made = Content(self._deployed.oracle.content(flight.writer, flight.prefix(at + 1)))
            self.cache.put(BlockHash(block_hash), made)
        if flight.grants:
            self._keep(flight)
        flight.cached_tokens = hits * BLOCK_TOKENS
        self.input_tokens += len(flight.tokens)
        self.cached_tokens += flight.cached_tokens
        flight.stage = Stage.OVER
        self._ended(flight)

    def _keep(self, flight: Flight) -> None:
        """Offer a prompt's blocks to host memory and every tier."""
        contents = [self.cache.get(BlockHash(one)) for one in flight.hashes]
        parent: bytes | None = None
        blocks: list[tuple[bytes, bytes, bytes | None, int]] = []
        for at, (block_hash, content) in enumerate(zip(flight.hashes, contents, strict=True)):
            if content is not None:
                data = bytes(content) * 2
                self.host.put(block_hash, data, self.memory.tags(block_hash))
                blocks.append((block_hash, data, parent, at))
            parent = block_hash
        for tier in self.tiers:
            tier.store(
                next(self._jobs),
                [
                    Block(
                        chain_at(flight.grants, (at + 1) * BLOCK_TOKENS),
                        block_hash,
                        0,
                        memoryview(bytearray(data)),
                        before,
                        at,
                    )
                    for block_hash, data, before, at in blocks
                ],
            )

    # --- administration -------------------------------------------------------------------------

    def purge(self, links: Sequence[Link], noise: Noise) -> list[dict[str, Any]]:
        """As `engines.vllm.purge.Purger.purge`: fence, drop, say what is busy."""
        self.fences.raise_above(links, self._clock.mono_ms())
        tags = frozenset(tag(link) for link in links)
        self.keyring.fence(tags)
        busy = sum(
            any(tag(Link(one.scope, one.epoch)) in tags for one in flight.grants)
            for flight in self.flights
        )
        in_engine, in_host = self.memory.purge(tags, busy=busy > 0)
        lines = [_line("engine", in_engine, busy), _line("host", in_host, busy)]
        for tier in self.tiers:
            purged = tier.tier.purge(tags)
            lines.append(_line(tier.plan.label, purged.removed, purged.busy, purged.error))
        self.bus.flush(noise, self._dice())
        return lines

    def reset(self, *, host: bool, noise: Noise) -> None:
        """Empty engine memory, and host memory too or not."""
        self.memory.reset(host=host)
        self.bus.flush(noise, self._dice())


def _line(tier: str, removed: int, busy: int, error: str | None = None) -> dict[str, Any]:
    return {"tier": tier, "removed": removed, "busy": busy, "error": error}
