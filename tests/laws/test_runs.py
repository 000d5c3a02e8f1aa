"""Laws of runs: blocks that are kept, used and let go together answer as if each stood alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from tests.laws.eviction_cache import ACCOUNTS, ORDERS, order_of
from tests.reference.eviction import ReferencePolicy

DEPTH, CAPACITY = 8, 90
MOVES = ["prompt"] * 6 + ["insert", "touch", "touch", "pin", "unpin", "remove", "ask", "evict"]
# Paths through a binary tree: most are alike for a while.
CODES = [0b0000_0000, 0b0000_0001, 0b0000_0100, 0b0001_0000, 0b0010_0000, 0b0100_0000, 0b1000_0000]

# (what, whose path, from and to which of its blocks, account that asks): a list is a whole life.
lives = st.lists(
    st.tuples(
        st.sampled_from(MOVES),
        st.sampled_from(CODES),
        st.integers(0, DEPTH),
        st.integers(0, DEPTH),
        st.sampled_from(ACCOUNTS),
    ),
    min_size=20,
    max_size=60,
)

Life = list[tuple[str, int, int, int, bytes]]


def path(code: int) -> list[int]:
    """A chain of names. A name has its parent in all its bits but the last."""
    return [1 << depth | code >> DEPTH - depth for depth in range(1, DEPTH + 1)]


def entry_of(name: int) -> Entry[int]:
    """The first blocks of all are one account's; the last are larger."""
    depth = name.bit_length() - 1
    account = ACCOUNTS[0] if depth <= 2 else ACCOUNTS[1 + (name >> depth - 3) % 2]
    parent = name >> 1 if depth > 1 else None
    return Entry(account, parent, depth - 1, 4 if depth < DEPTH else 7, 1.0)


class Pair:
    """A policy that is told of many blocks at once, and one that is told of one by one."""

    def __init__(
        self, together: ScopedPolicy[int], apart: ScopedPolicy[int] | ReferencePolicy
    ) -> None:
        self.together, self.apart = together, apart
        self.pins: Counter[int] = Counter()

    def insert(self, names: Sequence[int]) -> None:
        new = [name for name in names if name not in self.together]
        self.together.insert_all(new, [entry_of(name) for name in new])
        for name in new:
            self.apart.insert(name, entry_of(name))

    def touch(self, names: Sequence[int]) -> None:
        self.together.touch_all(names)
        for name in names:
            self.apart.touch(name)

    def ask(self, size: int, account: bytes, kept: Sequence[int]) -> None:
        expected = self.apart.victims(size, account, kept)
        assert self.together.victims(size, account, kept) == expected
        assert self.together.victims(size, account, kept) == expected, "asking changes nothing"

    def evict(self, size: int, account: bytes, kept: Sequence[int] = ()) -> bool:
        expected = self.apart.victims(size, account, kept)
        assert self.together.evict(size, account, kept) == expected
        for name in expected or ():
            self.apart.remove(name)
        return expected is not None

    def prompt(self, names: Sequence[int], account: bytes) -> None:
        """Use what is cached, and have the rest cached if there is room."""
        self.touch([name for name in names if name in self.together])
        new = sum(entry_of(name).size_bytes for name in names if name not in self.together)
        if self.evict(self.together.used_bytes() + new - CAPACITY, account, names):
            self.insert(names)

    def pin(self, name: int) -> None:
        if name in self.together:
            self.together.pin(name)
            self.apart.pin(name)
            self.pins[name] += 1

    def unpin(self, name: int) -> None:
        self.together.unpin(name)
        if self.pins[name]:
            self.apart.unpin(name)
            self.pins[name] -= 1

    def remove(self, name: int) -> None:
        self.together.remove(name)
        self.apart.remove(name)
        del self.pins[name]

    def live(self, life: Life) -> None:
        for what, code, start, end, account in life:
            names = path(code)
            if what == "prompt":
                self.prompt(names[:end], account)
            elif what == "insert":
                self.insert(names[start:end])
            elif what == "touch":
                self.touch(names[start:end])
            elif what == "ask":
                self.ask(4 * end + 1, account, names[:start])
            elif what == "evict":
                self.evict(4 * end + 1, account, names[start : start + 1])
            else:
                getattr(self, what)(names[min(start, DEPTH - 1)])
        while self.evict(1, ACCOUNTS[3]):
            pass


@given(life=lives, guaranteed=st.sampled_from([0.0, 0.0, 0.5]))
def test_blocks_taken_together_leave_as_the_reference_lets_them(
    life: Life, guaranteed: float
) -> None:
    shares = Shares(CAPACITY, guaranteed)
    obvious = ReferencePolicy(shares)
    pair = Pair(ScopedPolicy(shares), obvious)
    pair.live(life)
    assert pair.together.keys() == obvious.blocks.keys()
    for account in ACCOUNTS:
        assert pair.together.used_bytes(account) == obvious.used(account)


@pytest.mark.parametrize("kind", ORDERS)
@given(life=lives)
def test_blocks_taken_together_leave_as_each_alone_in_every_order(kind: str, life: Life) -> None:
    shares = Shares(CAPACITY, 0.2)
    together, apart = (ScopedPolicy[int](shares, order_of(kind, CAPACITY)) for _ in range(2))
    Pair(together, apart).live(life)
    assert together.keys() == apart.keys()
