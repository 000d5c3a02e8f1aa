"""The KV events of a simulated engine: vLLM's batches, and a delivery that loses and mixes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import zmq

from scopekv.core.block_hashes import short
from scopekv.core.events import (
    Cleared,
    Event,
    Medium,
    OuterTiers,
    Removed,
    Snapshot,
    Stored,
    encode_snapshot,
)
from scopekv.simulate.prefix_cache import BlockHash, PrefixCache
from scopekv.store.residents import Residents

Deliver = Callable[[int, bytes], None]  # a batch's number and payload
BLOCK_TOKENS = 32


def encode_batch(sent: float, events: Sequence[Event]) -> bytes:
    """A payload as vLLM 0.32 makes it, with token ids and extra keys as it would have them."""
    return msgspec.msgpack.encode([sent, [_wire(event) for event in events], 0])


def _wire(event: Event) -> dict[str, object]:
    if isinstance(event, Cleared):
        return {"type": "AllBlocksCleared"}
    hashes, medium = list(event.hashes), event.medium.wire
    if isinstance(event, Removed):
        removed = {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}
        return removed | {"group_idx": 0}
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": None,
        "token_ids": [1000 + i for i in range(BLOCK_TOKENS)] * len(hashes),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": medium,
        "lora_name": None,
        "extra_keys": [["0f" * 32]] * len(hashes),
        "group_idx": 0,
    }


class EventBus:
    """Publishes what caches tell, a batch a step, numbered from 0 in each life of the engine.

    `deliver` gets each batch at once. `clock`: the engine's wall clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.sequence = 0
        self.endpoint: str | None = None  # where a socket publishes it, see `listen`
        self.deliver: list[Deliver] = []
        self._clock = clock
        self._waiting: list[Event] = []
        self._caches: dict[Medium, PrefixCache] = {}
        self._outer: dict[Medium, Residents] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def watch(self, cache: PrefixCache, medium: Medium) -> None:
        """Publish what comes to a cache and leaves it."""
        self._caches[medium] = cache
        cache.told = partial(self._told, medium)

    def watch_tier(self, residents: Residents, medium: Medium) -> None:
        """Publish, with each step, what came to an outer tier and left it."""
        self._outer[medium] = residents

    def _told(self, medium: Medium, block_hash: BlockHash, came: bool) -> None:
        last = self._waiting[-1] if self._waiting else None
        kind = Stored if came else Removed
        if isinstance(last, kind) and last.medium is medium:
            self._waiting[-1] = kind(medium, [*last.hashes, short(block_hash)])
        else:
            self._waiting.append(kind(medium, [short(block_hash)]))

    def reset(self, *, host: bool) -> None:
        """Empty engine memory, and host memory too or not: the events are the same."""
        self._caches[Medium.ENGINE].clear()
        if host and Medium.HOST in self._caches:
            self._caches[Medium.HOST].clear()
        self._waiting.append(Cleared())

    def flush(self) -> None:
        """End a step: publish what waits."""
        for medium, residents in self._outer.items():
            came, left = residents.changes()
            self._waiting += [Stored(medium, came)] if came else []
            self._waiting += [Removed(medium, left)] if left else []
        if not self._waiting:
            return
        events, self._waiting = self._waiting, []
        number, payload = self.sequence, encode_batch(self._clock(), events)
        self.sequence += 1
        for deliver in self.deliver:
            deliver(number, payload)

    def snapshot(self, instance: str, *, blocks: bool, tiers: OuterTiers | None = None) -> bytes:
        """As the real one: publish what waits, then say what is held."""
        self.flush()
        held: dict[Medium, Sequence[int]] = {
            medium: [short(one) for one in cache.all()] for medium, cache in self._caches.items()
        }
        held |= {medium: residents.told() for medium, residents in self._outer.items()}
        number = self.sequence if self.deliver else None
        found = Snapshot(instance, number, self._clock(), held if blocks else None, tiers)
        return encode_snapshot(found)

    def restart(self) -> None:
        """A new life: numbers start from 0, nothing says so. Tiers are listed, as at a start."""
        self.sequence = 0
        self._waiting.clear()
        for medium, residents in self._outer.items():
            residents.changes()
            if hashes := residents.told():
                self._waiting.append(Stored(medium, hashes))

    def listen(self, endpoint: str) -> None:
        """Publish on a socket, as vLLM does."""
        self._context = zmq.Context()
        socket = self._context.socket(zmq.PUB)
        socket.set(zmq.LINGER, 0)
        socket.bind(endpoint)
        self.endpoint = endpoint

        def send(number: int, payload: bytes) -> None:
            socket.send_multipart([b"", number.to_bytes(8, "big"), payload])

        self.deliver.append(send)

    def close(self) -> None:
        """Close the socket, as the end of the process does."""
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context, self.endpoint = None, None
            self.deliver.clear()


@dataclass(slots=True)
class Unreliable:
    """A delivery that loses, repeats and holds back batches, by dice of its own seed."""

    deliver: Deliver
    dice: random.Random
    loses: float = 0.0
    repeats: float = 0.0
    delays: float = 0.0
    lost: int = 0
    _held: list[tuple[int, bytes]] = field(default_factory=list)

    def __call__(self, number: int, payload: bytes) -> None:
        if self.dice.random() < self.loses:
            self.lost += 1
        elif self.dice.random() < self.delays:
            self._held.append((number, payload))
        else:
            self.deliver(number, payload)
            if self.dice.random() < self.repeats:
                self._held.append((number, payload))
        if self._held and self.dice.random() < 0.5:
            self.deliver(*self._held.pop(self.dice.randrange(len(self._held))))

    def settle(self) -> None:
        """Deliver what was held back."""
        held, self._held = self._held, []
        for number, payload in held:
            self.deliver(number, payload)
