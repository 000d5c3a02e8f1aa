"""Asking a shared store for the blocks of long prompts: a slow answer is no hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Wanted
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import NAMESPACE, SimulatedBroker, link
from scopekv.store.blocks import Block, BlockKey, Presence
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier

CHAIN = (link("a"),)
SIZE, MANY = 64, 1000
SECONDS_EACH = 0.01  # a thousand take four times as long as a call may


class TimedStore(SimulatedObjectStore):
    """A store that takes its time for each key; somebody looks at the tier meanwhile."""

    now = 50.0
    meanwhile: Callable[[], object] | None = None

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        self._pass(len(keys))
        return super().present(keys)

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        for stat in super().objects(chain):
            self._pass(1)
            yield stat

    def _pass(self, keys: int) -> None:
        self.now += SECONDS_EACH * keys
        if self.meanwhile is not None:
            self.meanwhile()


@pytest.fixture
def store() -> TimedStore:
    return TimedStore("s3")


@pytest.fixture
def tier(store: TimedStore) -> Iterator[SealedTier]:
    broker = SimulatedBroker()
    keyring = Keyring(broker, lambda: store.now, threaded=False)
    keyring.accept([broker.lease_of(CHAIN[0])])
    made = SealedTier(
        store,
        keyring,
        namespace=NAMESPACE,
        block_bytes=SIZE,
        settings=TierSettings(capacity_bytes=1 << 20, shared=True),
        policy=ScopedPolicy(Shares(1 << 20)),
        monotonic=lambda: store.now,
        threaded=False,
    )
    yield made
    made.close()


def asked(numbers: range) -> list[BlockKey]:
    return [(CHAIN, number.to_bytes(32, "big"), 0) for number in numbers]


def fill(tier: SealedTier, numbers: range) -> None:
    for number, (chain, name, group) in zip(numbers, asked(numbers), strict=True):
        tier.store(number, [Block(chain, name, group, memoryview(bytearray(SIZE)))])
        assert tier.turns[0]()


@pytest.mark.parametrize("listed", [True, False])
def test_a_healthy_store_that_is_asked_for_a_long_prompt_stays_in_use(
    tier: SealedTier, store: TimedStore, listed: bool
) -> None:
    work, _, tidy = tier.turns
    if listed:
        tidy()
    fill(tier, range(MANY))
    store.now += 10.0  # what is known of it is too old
    store.meanwhile = tier.finished
    assert tier.lookup(asked(range(MANY))) == [Presence.UNKNOWN] * MANY
    assert work()
    assert (tier.counters()["stalls"], tier.speed().suspended) == (0, False)
    assert tier.lookup(asked(range(MANY - 200, MANY))) == [Presence.PRESENT] * 200


def test_what_many_keys_took_is_no_round_trip(tier: SealedTier, store: TimedStore) -> None:
    """Else a store that answers eight at once looks as many times as far away (L9)."""
    work, _, tidy = tier.turns
    tidy()
    fill(tier, range(64))
    tier.load(64, [Block(*asked(range(1))[0], memoryview(bytearray(SIZE)))])
    assert work()
    before = tier.speed().samples
    store.now += 10.0
    tier.lookup(asked(range(64)))
    assert work()
    assert tier.speed().samples == before
    tier.lookup(asked(range(100, 101)))
    assert work()
    assert tier.speed().samples == before + 1
