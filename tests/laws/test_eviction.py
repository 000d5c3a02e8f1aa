"""Laws of eviction: shares hold, nothing in use goes, no chain is cut, and it never stops."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.eviction import (
    Entry,
    EvictionPolicy,
    GreedyDual,
    LearnedReuse,
    LruPolicy,
    Order,
    Recency,
    ScopedPolicy,
    Shares,
)
from tests.reference.eviction import ReferencePolicy

CAPACITY = 60
ACCOUNTS = [bytes([number]) * 16 for number in range(4)]
SHARES = Shares(CAPACITY)
ORDERS = ["recency", "greedy_dual", "learned"]

# (what, which block, which parent, account, size, cost): one list is a whole life of a cache.
moves = st.lists(
    st.tuples(
        st.sampled_from(["insert"] * 6 + ["touch"] * 3 + ["pin"] * 3 + ["unpin", "remove"]),
        st.integers(0, 60),
        st.integers(0, 60),
        st.sampled_from(ACCOUNTS),
        st.sampled_from([1, 4, 4, 4, 4, 7]),
        st.sampled_from([0.0, 1.0, 2.0, 5.0]),
    ),
    min_size=25,
    max_size=80,
)


@dataclass
class Cache:
    """A full cache of CAPACITY bytes around a policy, with what must be true beside it."""

    policy: EvictionPolicy[int]
    entries: dict[int, Entry[int]] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)

    def used(self, account: bytes) -> int:
        return sum(e.size_bytes for e in self.entries.values() if e.account == account)

    def guarantee(self, asking: bytes) -> int:
        return SHARES.guarantee_bytes(len({e.account for e in self.entries.values()} | {asking}))

    def held(self, protected: set[int]) -> set[int]:
        """Pinned and protected blocks and their ancestors."""
        found: set[int] = set()
        for start in {key for key, pins in self.pins.items() if pins} | protected:
            key: int | None = start
            while key is not None and key in self.entries:
                found.add(key)
                key = self.entries[key].parent
        return found

    def insert(self, key: int, entry: Entry[int]) -> None:
        self.entries[key] = entry
        self.policy.insert(key, entry)

    def remove(self, key: int) -> None:
        self.entries.pop(key, None)
        self.pins.pop(key, None)
        self.policy.remove(key)

    def need(self, size: int) -> int:
        return sum(e.size_bytes for e in self.entries.values()) + size - CAPACITY

    def some(self, key: int) -> int:
        """A cached block, chosen by a number."""
        cached = sorted(self.entries)
        return cached[key % len(cached)] if cached else key

    def play(self, what: str, key: int) -> None:
        """A move that is no insertion."""
        if what == "touch":
            self.policy.touch(key)
        elif what == "pin" and key in self.entries:
            self.policy.pin(key)
            self.pins[key] = self.pins.get(key, 0) + 1
        elif what == "unpin" and self.pins.get(key):
            self.policy.unpin(key)
            self.pins[key] -= 1
        elif what == "remove":
            self.remove(key)

    def check(self) -> None:
        assert len(self.policy) == len(self.entries)
        assert self.policy.used_bytes() == sum(e.size_bytes for e in self.entries.values())
        for account in ACCOUNTS:
            assert self.policy.used_bytes(account) == self.used(account)


Moves = list[tuple[str, int, int, bytes, int, float]]


def entry_of(
    cache: Cache, key: int, parent: int, account: bytes, size: int, cost: float
) -> Entry[int]:
    """A block whose parent is an earlier number, so that parents are a forest."""
    above = parent if parent < key and parent % 3 else None
    depth = cache.entries[above].depth + 1 if above in cache.entries and above is not None else 0
    return Entry(account, above, depth, size, cost)


def check_victims(cache: Cache, victims: list[int], need: int, account: bytes) -> None:
    gone = set(victims)
    assert len(gone) == len(victims)
    assert sum(cache.entries[key].size_bytes for key in victims) >= need
    assert not any(cache.pins.get(key) for key in gone)
    if isinstance(cache.policy, LruPolicy):
        return  # it knows no chains
    assert gone.isdisjoint(cache.held(set()))
    for place, key in enumerate(victims):
        children = {k for k, e in cache.entries.items() if e.parent == key}
        assert children <= set(victims[:place]), "a child would be left behind"
    guarantee = cache.guarantee(account)
    for other in ACCOUNTS:
        lost = sum(
            e.size_bytes for k, e in cache.entries.items() if k in gone and e.account == other
        )
        if other != account and lost:
            assert cache.used(other) - lost >= guarantee


def lawful_leaf(cache: Cache, account: bytes) -> bool:
    """Whether any single block may go."""
    held, guarantee = cache.held(set()), cache.guarantee(account)
    parents = {e.parent for e in cache.entries.values()}
    return any(
        key not in held
        and key not in parents
        and (e.account == account or cache.used(e.account) - e.size_bytes >= guarantee)
        for key, e in cache.entries.items()
    )


def policy_of(kind: str, shares: Shares = SHARES) -> EvictionPolicy[int]:
    if kind == "lru":
        return LruPolicy()
    return ScopedPolicy(shares, order_of(kind, shares.capacity_bytes))


def order_of(kind: str, capacity: int) -> Order[Any]:
    if kind == "learned":
        return LearnedReuse(capacity)
    return GreedyDual() if kind == "greedy_dual" else Recency()


@pytest.mark.parametrize("kind", ["lru", *ORDERS])
@given(script=moves)
def test_eviction_keeps_every_law(kind: str, script: Moves) -> None:
    cache = Cache(policy_of(kind))
    for what, key, parent, account, size, cost in script:
        if what != "insert":
            cache.play(what, cache.some(key))
        elif key not in cache.entries:
            need = cache.need(size)
            victims = cache.policy.victims(need, account)
            assert victims == cache.policy.victims(need, account), "asking changes nothing"
            if victims is not None:
                check_victims(cache, victims, need, account)
                for victim in victims:
                    cache.remove(victim)
                cache.insert(key, entry_of(cache, key, parent, account, size, cost))
            elif kind != "lru":
                freed = cache.policy.victims(1, account)
                assert (freed is not None) == lawful_leaf(cache, account), "T4: never stops"
        cache.check()
        assert sum(e.size_bytes for e in cache.entries.values()) <= CAPACITY


@pytest.mark.parametrize("kind", ORDERS)
@given(script=moves, kept=st.sets(st.integers(0, 60), max_size=4))
def test_protected_blocks_and_their_ancestors_are_no_victims(
    kind: str, script: Moves, kept: set[int]
) -> None:
    cache = Cache(policy_of(kind, Shares(CAPACITY, 0.0)))
    for what, key, parent, account, size, cost in script:
        if what != "insert":
            cache.play(what, cache.some(key))
        elif key not in cache.entries:
            cache.insert(key, entry_of(cache, key, parent, account, size, cost))
    held = cache.held(kept)
    free = sum(e.size_bytes for k, e in cache.entries.items() if k not in held)
    victims = cache.policy.victims(free, ACCOUNTS[0], kept)
    assert victims is not None
    assert set(victims) == set(cache.entries) - held, "all that may go can go at once"
    assert cache.policy.victims(free + 1, ACCOUNTS[0], kept) is None


@given(script=moves, kept=st.sets(st.integers(0, 60), max_size=3), ask=st.integers(0, 30))
def test_the_policy_answers_as_the_reference_does(script: Moves, kept: set[int], ask: int) -> None:
    cache, obvious = Cache(ScopedPolicy(SHARES)), ReferencePolicy(SHARES)
    for what, key, parent, account, size, cost in script:
        if what != "insert":
            key = cache.some(key)  # noqa: PLW2901 - moves speak of cached blocks
        if what == "insert" and key not in cache.entries:
            need = max(ask, cache.need(size)) if cost else cache.need(size)
            victims = cache.policy.victims(need, account, kept)
            assert victims == obvious.victims(need, account, kept)
            for victim in victims or ():
                cache.remove(victim)
                obvious.remove(victim)
            if victims is not None:
                entry = entry_of(cache, key, parent, account, size, cost)
                cache.insert(key, entry)
                obvious.insert(key, entry)
        elif what == "pin" and key in cache.entries:
            obvious.pin(key)
        elif what == "unpin" and cache.pins.get(key):
            obvious.unpin(key)
        elif what in {"touch", "remove"}:
            getattr(obvious, what)(key)
        if what != "insert":
            cache.play(what, key)


@pytest.mark.parametrize("kind", ORDERS)
@given(script=moves, kept=st.sets(st.integers(0, 60), max_size=3), ask=st.integers(0, 30))
def test_to_evict_is_to_remove_the_victims(
    kind: str, script: Moves, kept: set[int], ask: int
) -> None:
    """One cache removes what `victims` says one by one, the other evicts: they stay alike."""
    one, other = Cache(policy_of(kind)), Cache(policy_of(kind))
    for what, key, parent, account, size, cost in script:
        if what != "insert":
            for cache in (one, other):
                cache.play(what, cache.some(key))
        elif key not in one.entries:
            need = max(ask, one.need(size)) if cost else one.need(size)
            victims = one.policy.victims(need, account, kept)
            for victim in victims or ():
                one.remove(victim)
            assert isinstance(other.policy, ScopedPolicy)
            assert other.policy.evict(need, account, kept) == victims
            for victim in victims or ():
                del other.entries[victim]
                other.pins.pop(victim, None)
            for cache in (one, other):
                if victims is not None:
                    cache.insert(key, entry_of(cache, key, parent, account, size, cost))
                cache.check()


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_the_policy_answers_as_the_reference_over_a_long_life(seed: int) -> None:
    """Long enough for accounts to rest, give, and come back."""
    draw = random.Random(seed)
    cache, obvious = Cache(ScopedPolicy(SHARES)), ReferencePolicy(SHARES)
    busy = draw.sample(ACCOUNTS, 2)
    for key in range(600):
        account = draw.choice(ACCOUNTS if draw.random() < 0.05 else busy)
        if draw.random() < 0.01:
            busy = draw.sample(ACCOUNTS, 2)
        mine = [k for k, e in cache.entries.items() if e.account == account]
        if mine and draw.random() < 0.4:
            again = draw.choice(mine)
            cache.play("touch", again)
            obvious.touch(again)
            continue
        need = cache.need(4)
        victims = cache.policy.victims(need, account)
        assert victims == obvious.victims(need, account)
        for victim in victims or ():
            cache.remove(victim)
            obvious.remove(victim)
        if victims is not None:
            parent = draw.choice([*mine, -1])
            entry = entry_of(cache, key, parent if parent in cache.entries else 0, account, 4, 1.0)
            cache.insert(key, entry)
            obvious.insert(key, entry)


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_prompts_taken_at_once_leave_as_the_reference_lets_block_by_block(
    seed: int, guaranteed: float
) -> None:
    """More accounts than compete at once; prompts go on from a part of an earlier one."""
    draw = random.Random(seed)
    shares = Shares(320, guaranteed)
    policy: ScopedPolicy[int] = ScopedPolicy(shares)
    obvious, chains, number = ReferencePolicy(shares), [[-1]], 0
    accounts = [bytes([each]) * 16 for each in range(12)]
    for _ in range(40):
        above = draw.choice(chains[-20:]) if draw.random() < 0.6 else [-1]
        chain = [key for key in above[: draw.randint(1, len(above))] if key in policy or key < 0]
        account = accounts[(chain[-1] if chain[-1] >= 0 else draw.randrange(1200)) % 1200 // 100]
        for key in chain[1:]:
            policy.touch(key)
            obvious.touch(key)
        new = [100 * accounts.index(account) + 1200 * number + place for place in range(12)]
        new, number = new[: draw.randint(1, 12)], number + 1
        need = policy.used_bytes() + 4 * len(new) - 320
        gone = obvious.victims(need, account, chain) if need > 0 else []
        assert policy.evict(need, account, chain) == gone
        for key in gone or ():
            obvious.remove(key)
        if gone is None:
            continue
        parents = [chain[-1] if chain[-1] >= 0 else None, *new]
        entries = [Entry(account, above, 0, 4, 1.0) for above, _ in zip(parents, new, strict=False)]
        policy.insert_all(new, entries)
        for key, entry in zip(new, entries, strict=True):
            obvious.insert(key, entry)
        chains.append([*chain, *new])
    assert len(policy) == len(obvious.blocks)


@pytest.mark.parametrize("kind", ORDERS)
@given(st.integers(1, 20), st.integers(1, 3), st.integers(5, 60))
def test_a_flood_leaves_every_other_account_its_guarantee(
    kind: str, length: int, others: int, flood: int
) -> None:
    """Unique prompts of one account, ten capacities of them; the others do not ask at all."""
    shares = Shares(240)
    policy: ScopedPolicy[tuple[int, int]] = ScopedPolicy(shares, order_of(kind, 240))
    for number in range(1, others + 1):
        for depth in range(length):
            parent = (number, depth - 1) if depth else None
            policy.insert((number, depth), Entry(ACCOUNTS[number], parent, depth, 4, 1.0))
    before = {number: policy.used_bytes(ACCOUNTS[number]) for number in range(1, others + 1)}
    for step in range(flood * 10):
        victims = policy.victims(policy.used_bytes() + 4 - 240, ACCOUNTS[0])
        assert victims is not None, "the flood is served too"
        for victim in victims:
            policy.remove(victim)
        policy.insert((0, step), Entry(ACCOUNTS[0], None, 0, 4, 9.0))
    guarantee = shares.guarantee_bytes(others + 1)
    for number, used in before.items():
        assert policy.used_bytes(ACCOUNTS[number]) >= min(used, guarantee)
