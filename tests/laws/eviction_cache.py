"""A full cache around a policy of eviction, and what must be true of it after each move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
