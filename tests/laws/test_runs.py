"""Laws of runs: blocks that are kept, used and let go together answer as if each stood alone."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from tests.laws.eviction_cache import ACCOUNTS
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
    """The policy, told of many blocks at once, and the reference, told of one by one."""

    def __init__(self, shares: Shares) -> None:
        self.policy: ScopedPolicy[int] = ScopedPolicy(shares)
        self.obvious = ReferencePolicy(shares)

    def insert(self, names: Sequence[int]) -> None:
        new = [name for name in names if name not in self.policy]
        self.policy.insert_all(new, [entry_of(name) for name in new])
        for name in new:
            self.obvious.insert(name, entry_of(name))

    def touch(self, names: Sequence[int]) -> None:
        self.policy.touch_all(names)
        for name in names:
            self.obvious.touch(name)

    def ask(self, size: int, account: bytes, kept: Sequence[int]) -> None:
        expected = self.obvious.victims(size, account, kept)
        assert self.policy.victims(size, account, kept) == expected
        assert self.policy.victims(size, account, kept) == expected, "asking changes nothing"

    def evict(self, size: int, account: bytes, kept: Sequence[int] = ()) -> bool:
        expected = self.obvious.victims(size, account, kept)
        assert self.policy.evict(size, account, kept) == expected
        for name in expected or ():
            self.obvious.remove(name)
        return expected is not None

    def prompt(self, names: Sequence[int], account: bytes) -> None:
        """Use what is cached, and have the rest cached if there is room."""
        self.touch([name for name in names if name in self.policy])
        new = sum(entry_of(name).size_bytes for name in names if name not in self.policy)
        if self.evict(self.policy.used_bytes() + new - CAPACITY, account, names):
            self.insert(names)

    def pin(self, name: int) -> None:
        if name in self.policy:
            self.policy.pin(name)
            self.obvious.pin(name)

    def unpin(self, name: int) -> None:
        self.policy.unpin(name)
        if name in self.obvious.blocks and self.obvious.blocks[name].pins:
            self.obvious.unpin(name)

    def remove(self, name: int) -> None:
        self.policy.remove(name)
        self.obvious.remove(name)

    def check(self) -> None:
        assert self.policy.keys() == self.obvious.blocks.keys()
        for account in ACCOUNTS:
            assert self.policy.used_bytes(account) == self.obvious.used(account)


@given(life=lives, guaranteed=st.sampled_from([0.0, 0.0, 0.5]))
def test_blocks_taken_together_answer_as_if_each_stood_alone(
    life: list[tuple[str, int, int, int, bytes]], guaranteed: float
) -> None:
    pair = Pair(Shares(CAPACITY, guaranteed))
    for what, code, start, end, account in life:
        names = path(code)
        if what == "prompt":
            pair.prompt(names[:end], account)
        elif what == "insert":
            pair.insert(names[start:end])
        elif what == "touch":
            pair.touch(names[start:end])
        elif what == "ask":
            pair.ask(4 * end + 1, account, names[:start])
        elif what == "evict":
            pair.evict(4 * end + 1, account, names[start : start + 1])
        else:
            getattr(pair, what)(names[min(start, DEPTH - 1)])
        pair.check()
    while pair.evict(1, ACCOUNTS[3]):
        pair.check()
