"""One gateway: its view of the registry, its index of the engines, its decisions and tickets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from scopekv.core.block_hashes import ChainHasher, root_of, short
from scopekv.core.encoding import encode_tokens
from scopekv.core.enforcement import tags_for
from scopekv.core.events import Snapshot
from scopekv.core.following import Doubt, Follower
from scopekv.core.locations import LocationIndex
from scopekv.core.policy import Document, PartRole, RoleRules
from scopekv.core.reservations import InstanceLoad
from scopekv.core.routing import CachedThere, Candidate, choose
from scopekv.core.scopes import Narrowing, Principal, Scope, ScopeId, private_scope
from scopekv.core.segments import Part, Segment, decide_parts, plan_segments
from scopekv.core.tickets import Grant, Ticket, mint, prefix_digests
from scopekv.simulate.fuzz.bus import Channel
from scopekv.simulate.fuzz.clock import Clock, Machine
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.engine import Engine
from scopekv.simulate.fuzz.flight import BLOCK_TOKENS
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Note, ScopeEpoch

INDEX_BYTES = 1 << 20
TTL_MS = 30_000
TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a prompt as its sender wrote it. `document`: the uid it was copied from."""

    role: PartRole
    tokens: tuple[int, ...]
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """A ticket, signed and as it was before."""

    ticket: Ticket
    text: str


class Gateway:
    """A gateway process. `start` is a new life: it knows nothing of the engines."""

    def __init__(
        self,
        deployed: Deployed,
        clock: Clock,
        machine: Machine,
        dice: Callable[[], Random],
        engines: Sequence[Engine],
    ) -> None:
        self.machine = machine
        self._deployed, self._clock, self._dice = deployed, clock, dice
        self._engines = engines
        self.channels = [Channel() for _ in engines]
        for engine, channel in zip(engines, self.channels, strict=True):
            engine.bus.channels.append(channel)
        self._hasher = ChainHasher()
        self.start()

    def start(self) -> None:
        self.index = LocationIndex(INDEX_BYTES)
        self.followers = [Follower(self.index, engine.name) for engine in self._engines]
        self.loads = [InstanceLoad(tokens_per_second=1000.0) for _ in self._engines]
        self._seen_version = -1
        self._principals: Mapping[str, Principal] = {}
        self._documents: Mapping[str, Document] = {}
        for channel in self.channels:
            channel.batches.clear()
            channel.broken = True

    # --- decisions ------------------------------------------------------------------------------

    def decide(self, person: str, session: str, pieces: Sequence[Piece]) -> Decided | None:
        """A ticket for this prompt; None where epochs do not come to rest.

        Raises `Unavailable` where the registry is out of reach: the request is refused.
        """
        for _ in range(TRIES_MAX):
            self._look()
            principal = self._principals[person]
            narrowing = Narrowing(session=session)
            segments = self._segments(principal, narrowing, pieces)
            epochs = [self._deployed.registry.epoch(one.scope) for one in segments]
            if self._noted(segments, epochs):
                return self._mint(principal, segments, epochs, pieces)
        return None

    def _look(self) -> None:
        """Take the registry's present state over where it changed (L6)."""
        registry = self._deployed.registry
        version = registry.versions().documents
        if version != self._seen_version:
            self._principals = dict(registry.principals)
            self._documents = {uid: one for uid, (one, _) in registry.documents.items()}
            self._seen_version = version

    def _segments(
        self, principal: Principal, narrowing: Narrowing, pieces: Sequence[Piece]
    ) -> tuple[Segment, ...]:
        parts = [
            Part(one.role, self._documents.get(one.document) if one.document else None)
            for one in pieces
        ]
        decisions = decide_parts(parts, principal, narrowing, RoleRules())
        ends, at = [], 0
        for one in pieces:
            at += len(one.tokens)
            ends.append(at)
        private = private_scope(principal, narrowing)
        return plan_segments([one.scope for one in decisions], ends, private)

    def _noted(self, segments: Sequence[Segment], epochs: Sequence[int]) -> bool:
        """Whether each scope has its row in the registry, in the epoch that was read."""
        wanted = [ScopeEpoch(one.scope, e) for one, e in zip(segments, epochs, strict=True)]
        deployed = self._deployed
        notes = scope_keys.note(
            deployed.registry.port,
            deployed.root_key,
            deployed.secret,
            list(dict.fromkeys(wanted)),
            self.machine.wall(),
        )
        return Note.OVER not in notes

    def _mint(
        self,
        principal: Principal,
        segments: Sequence[Segment],
        epochs: Sequence[int],
        pieces: Sequence[Piece],
    ) -> Decided:
        deployed = self._deployed
        ends = [one.end for one in segments if one.end is not None]
        packed = encode_tokens([token for one in pieces for token in one.tokens])
        digests = (*prefix_digests(packed, ends), b"")
        grants = tuple(
            Grant(segment.end, self._id(segment.scope), epoch, digest)
            for segment, epoch, digest in zip(segments, epochs, digests, strict=True)
        )
        ticket = Ticket(
            key_id=deployed.key_id,
            issued_ms=self.machine.wall_ms(),
            ttl_ms=TTL_MS,
            audience=deployed.audience,
            namespace=deployed.fingerprint,
            principal=principal.pseudonym(deployed.secret),
            nonce=self._dice().randbytes(16),
            uses=1,
            grants=grants,
        )
        return Decided(ticket, mint(ticket, deployed.sign))

    def _id(self, scope: Scope) -> ScopeId:
        return scope.id(self._deployed.secret)

    # --- routing --------------------------------------------------------------------------------

    def route(self, tokens: Sequence[int], ticket: Ticket) -> tuple[int, int, float] | None:
        """The engine that gets the request, tokens expected to be cached, seconds of prefill."""
        up = [number for number, engine in enumerate(self._engines) if engine.up]
        if not up:
            return None
        tags = tags_for(ticket, self._deployed.fingerprint, b"")
        chain = self._hasher.chain(tokens, tags, block_size=BLOCK_TOKENS, root=root_of())
        names = [self._engines[number].name for number in up]
        reach = self.index.locate([short(one) for one in chain], names, BLOCK_TOKENS)
        now = self._clock.mono()
        candidates = [
            Candidate(
                name,
                self.loads[number].queue_seconds(now),
                self.loads[number].in_flight,
                self.loads[number].curve(),
                CachedThere(reach[name].host * BLOCK_TOKENS)
                if self.followers[number].sure
                else None,
            )
            for number, name in zip(up, names, strict=True)
        ]
        chosen = choose(candidates, len(tokens), self._dice().random())
        number = up[names.index(chosen.name)]
        return number, chosen.cached_tokens, chosen.prefill_seconds

    # --- following ------------------------------------------------------------------------------

    def hear(self, number: int) -> bool:
        """Take one batch off the bus, or notice that it broke. False where there is nothing."""
        channel = self.channels[number]
        batches = channel.batches
        if channel.broken and (not batches or self._dice().random() < 0.5):
            channel.broken = False
            self.followers[number].lost(Doubt.BUS_LOST)
            return True
        if not batches:
            return False
        self.followers[number].take(batches.pop(0), self._clock.mono())
        return True

    def heartbeat(self, number: int, told: Snapshot | None) -> None:
        """What an engine says of itself; None: it does not answer."""
        if told is None:
            self.followers[number].lost(Doubt.UNREACHABLE)
        else:
            self.followers[number].heard(told.instance, told.sequence, self._clock.mono())

    def tidy(self) -> None:
        self.index.tidy()
