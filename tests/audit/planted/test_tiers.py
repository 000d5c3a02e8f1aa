"""Planted faults of sealed tiers: what a thief, a tampering hand or a flood finds then."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

import pytest

from scopekv.core.chains import tag
from scopekv.core.sealing import HEADER_BYTES, Identity
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import BLOCK_BYTES, NAMESPACE, TierStage, link, small_settings
from scopekv.store.blocks import Block, Presence
from tests.audit.planted.registry import PLANTED

OBJECT_BYTES = BLOCK_BYTES + 48


class Hand:
    """A tier, and somebody with a hand in its store."""

    def __init__(self, capacity_bytes: int = 1 << 30) -> None:
        self.store = SimulatedObjectStore()
        self.stage = TierStage(
            SimulatedObjectStore(beside=self.store),
            settings=small_settings(capacity_bytes=capacity_bytes),
        ).ready()

    def stored(self, account: str, *names: str) -> list[Block]:
        chain = self.stage.grant(link(account), account=link(account).scope)
        blocks = [self.stage.block(chain, name) for name in names]
        self.stage.store(*blocks)
        return blocks

    def found(self) -> list[ObjectKey]:
        return sorted(self.store.stored)

    def content(self, key: ObjectKey) -> bytes:
        return self.store.stored[key][0]

    def loads(self, block: Block) -> bytes | None:
        """What a load of the block writes; None for a miss."""
        empty = self.stage.empty(block)
        return bytes(empty.view) if self.stage.load(empty).ok else None

    def close(self) -> None:
        self.stage.close()


def plain_name(hand: Hand) -> bool:
    block = hand.stored("acme", "a")[0]
    identity = Identity(NAMESPACE, block.chain, bytes(block.block_hash), 0, BLOCK_BYTES)
    return hand.found()[0].name == hashlib.sha256(identity.encoded()).hexdigest()[:40]


def swapped(hand: Hand) -> bool:
    """Two objects of one chain change places."""
    one, _ = hand.stored("acme", "a", "b")
    first, second = hand.found()
    a, b = hand.content(first), hand.content(second)
    hand.store.damage(first, lambda _: b)
    hand.store.damage(second, lambda _: a)
    found = hand.loads(one)
    return found is not None and found != bytes(one.view)


def one_nonce(hand: Hand) -> bool:
    hand.stored("acme", "a", "b")
    nonces = [hand.content(key)[8:20] for key in hand.found()]
    return len(nonces) != len(set(nonces))


def plain_bytes(hand: Hand) -> bool:
    block = hand.stored("acme", "a")[0]
    return bytes(block.view) in hand.content(hand.found()[0])


def changed_byte(hand: Hand) -> bool:
    block = hand.stored("acme", "a")[0]

    def flip(content: bytes) -> bytes:
        at = HEADER_BYTES + 5
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    hand.store.damage(hand.found()[0], flip)
    found = hand.loads(block)
    return found is not None and found != bytes(block.view)


def left_after_purge(hand: Hand) -> bool:
    hand.stored("acme", "a")
    tags = frozenset([tag(link("acme"))])
    hand.stage.until(lambda: hand.stage.tier.purge(tags).busy == 0)
    return bool(hand.found())


def believed_after_deletion(hand: Hand) -> bool:
    block = hand.stored("acme", "a")[0]
    hand.store.delete(hand.found())
    assert hand.loads(block) is None
    return hand.stage.lookup(block) == [Presence.PRESENT]


def flooded(hand: Hand) -> bool:
    """One tenant is within its share; another writes many times the capacity."""
    mine = hand.stored("acme", *"abc")
    for number in range(50):
        hand.stored("globex", f"flood {number}")
    return hand.stage.lookup(*mine) != [Presence.PRESENT] * 3


BROKEN: dict[str, Callable[[Hand], bool]] = {
    "name_unkeyed": plain_name,
    "bound_data_dropped": swapped,
    "nonce_repeats": one_nonce,
    "plaintext_tier": plain_bytes,
    "tampered_served": changed_byte,
    "purge_skips_a_tier": left_after_purge,
    "stale_index_entry": believed_after_deletion,
    "cross_tenant_eviction": flooded,
}


@contextmanager
def hand_in(capacity_bytes: int) -> Iterator[Hand]:
    with ExitStack() as stack:
        hand = Hand(capacity_bytes)
        stack.callback(hand.close)
        yield hand


@pytest.mark.parametrize("kind", BROKEN)
def test_a_tier_is_broken_as_its_switch_says(kind: str) -> None:
    room = 16 * OBJECT_BYTES if kind == "cross_tenant_eviction" else 1 << 30
    for switched in (False, True):
        with PLANTED[kind].switch() if switched else nullcontext(), hand_in(room) as hand:
            assert BROKEN[kind](hand) is switched
