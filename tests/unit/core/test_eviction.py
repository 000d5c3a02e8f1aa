"""Which block goes: the choices of ScopedPolicy one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scopekv.core.eviction import (
    RIVALS_MAX,
    Entry,
    GreedyDual,
    LearnedReuse,
    LruPolicy,
    Order,
    Recency,
    ScopedPolicy,
    Shares,
)
from scopekv.errors import Misuse

A, B, C = (bytes([number]) * 16 for number in range(3))


def policy(
    capacity: int = 100, fraction: float = 0.5, order: Order[str] | None = None
) -> ScopedPolicy[str]:
    return ScopedPolicy(Shares(capacity, fraction), order)


def fill(cache: ScopedPolicy[str], account: bytes, names: str, cost: float = 1.0) -> None:
    """Blocks of 10 bytes, each alone."""
    for name in names:
        cache.insert(name, Entry(account, None, 0, 10, cost))


def chain(cache: ScopedPolicy[str], account: bytes, names: str) -> None:
    parent = None
    for depth, name in enumerate(names):
        cache.insert(name, Entry(account, parent, depth, 10, 1.0 + depth / 100))
        parent = name


def evict(cache: ScopedPolicy[str], size: int, account: bytes) -> str | None:
    victims = cache.victims(size, account)
    for victim in victims or ():
        cache.remove(victim)
    return None if victims is None else "".join(victims)


def test_a_chain_goes_from_its_tail() -> None:
    cache = policy()
    chain(cache, A, "abcd")
    assert cache.victims(35, A) == ["d", "c", "b", "a"]


def test_what_was_used_later_than_its_child_waits_for_what_is_older() -> None:
    """A chain is taken up to where another block goes first, though all of it is wanted."""
    cache = policy()
    chain(cache, A, "ab")
    chain(cache, A, "xy")
    cache.touch("a")
    assert cache.victims(40, A) == ["b", "y", "x", "a"]


@pytest.mark.parametrize("order", [Recency[str](), GreedyDual[str]()])
def test_a_block_with_another_child_stays_though_its_chain_goes(order: Order[str]) -> None:
    cache = policy(order=order)
    chain(cache, A, "ab")
    cache.insert("c", Entry(A, "a", 1, 10, 1.01))
    cache.pin("c")
    assert cache.victims(10, A) == ["b"]
    assert cache.victims(20, A) is None
    cache.unpin("c")
    cache.touch("c")
    assert cache.victims(30, A) == ["b", "c", "a"]


def test_a_protected_block_stays_though_its_chain_goes() -> None:
    cache = policy()
    chain(cache, A, "abcd")
    fill(cache, A, "xy")
    assert cache.victims(40, A, {"b"}) == ["d", "c", "x", "y"]
    assert cache.victims(50, A, {"b"}) is None


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = policy()
    fill(cache, A, "xyz")
    cache.touch("x")
    assert cache.victims(20, A) == ["y", "z"]


def test_greedy_dual_lets_go_first_what_is_cheap_to_make_again() -> None:
    cache = policy(order=GreedyDual())
    fill(cache, A, "x", cost=2.0)
    fill(cache, A, "y", cost=1.0)
    assert cache.victims(10, A) == ["y"]


def test_greedy_dual_keeps_longer_what_was_used_again_and_it_still_ages() -> None:
    cache = policy(order=GreedyDual())
    fill(cache, A, "hot")
    for _ in range(3):
        cache.touch("h")
    gone = ""
    for name in "abcdefgh":
        gone += evict(cache, 10, A) or ""
        fill(cache, A, name.upper())
    assert gone.index("h") > 2


def test_size_counts_against_a_block_for_greedy_dual() -> None:
    cache = policy(order=GreedyDual())
    cache.insert("big", Entry(A, None, 0, 40, 1.0))
    cache.insert("small", Entry(A, None, 0, 10, 1.0))
    assert cache.victims(10, A) == ["big"]


def test_lent_space_goes_by_last_use_whoever_holds_more() -> None:
    cache = policy()
    fill(cache, B, "xyz")
    fill(cache, A, "abcdefg")
    assert evict(cache, 20, C) == "xa", "then B is at its guarantee of 16 bytes and a block"
    for name in "bcd":
        cache.touch(name)
    assert evict(cache, 20, C) == "ef"
    assert cache.used_bytes(B) == 20


def test_of_many_accounts_those_furthest_above_compete_by_age() -> None:
    cache = policy(capacity=10_000, fraction=0.0)
    accounts = [bytes([number]) * 16 for number in range(2 * RIVALS_MAX)]
    for number, account in enumerate(accounts):
        fill(cache, account, "".join(chr(1000 + 100 * number + n) for n in range(number + 1)))
    smallest = chr(1000)  # used longest ago of all
    first = chr(1000 + 100 * RIVALS_MAX)
    assert cache.victims(10, accounts[-1]) == [first]
    everything = cache.victims(cache.used_bytes(), accounts[-1])
    assert everything is not None
    assert smallest in everything


def test_an_account_at_its_guarantee_loses_nothing_to_another() -> None:
    cache = policy(capacity=60, fraction=1.0)
    fill(cache, A, "abc")
    fill(cache, B, "xyz")
    assert cache.victims(10, A) == ["a"]
    assert cache.victims(40, A) is None


def test_a_flood_above_its_guarantee_displaces_itself_before_what_was_used_again() -> None:
    cache = policy()
    fill(cache, A, "abcdef")
    fill(cache, B, "wxyz")
    for name in "abcdef":
        cache.touch(name)
    assert cache.victims(10, B) == ["w"]
    for name in "wxyz":
        cache.touch(name)
    assert cache.victims(10, B) == ["a"]


def test_an_account_above_its_guarantee_by_less_than_a_block_still_gives_its_oldest() -> None:
    cache = policy(110)  # 27 bytes each
    fill(cache, A, "opq")
    fill(cache, B, "uvwxyz")
    assert evict(cache, 20, A) == "ou", "o is older than u, and A is above by 3 bytes"


def test_an_idle_account_gives_down_to_its_guarantee() -> None:
    cache = policy()
    fill(cache, A, "abcd")
    fill(cache, B, "uvwxyz")
    for number in range(50):
        for victim in cache.victims(10, B) or ():
            cache.remove(victim)
        cache.insert(f"n{number}", Entry(B, None, 0, 10, 1.0))
    assert cache.used_bytes(A) == 30


def test_pins_are_counted_and_hold_the_ancestors() -> None:
    cache = policy()
    chain(cache, A, "abc")
    cache.pin("b")
    cache.pin("b")
    assert cache.victims(10, A) == ["c"]
    assert cache.victims(20, A) is None
    cache.unpin("b")
    assert cache.victims(20, A) is None
    cache.unpin("b")
    cache.unpin("b")
    assert cache.victims(30, A) == ["c", "b", "a"]


def test_a_block_that_is_pinned_alone_stays() -> None:
    cache = policy()
    fill(cache, A, "ab")
    cache.pin("a")
    assert cache.victims(10, A) == ["b"]
    assert cache.victims(20, A) is None
    cache.unpin("a")
    assert cache.victims(20, A) == ["a", "b"]


def test_a_child_of_another_account_holds_its_parent() -> None:
    cache = policy(capacity=40, fraction=1.0)
    cache.insert("doc", Entry(A, None, 0, 10, 1.0))
    cache.insert("question", Entry(B, "doc", 1, 10, 1.0))
    assert cache.victims(10, A) is None
    assert cache.victims(10, B) == ["question"]
    cache.remove("question")
    assert cache.victims(10, A) == ["doc"]


def test_a_removed_block_takes_its_pins_along_and_may_come_back() -> None:
    cache = policy()
    fill(cache, A, "a")
    cache.pin("a")
    cache.remove("a")
    cache.remove("a")
    cache.unpin("a")
    fill(cache, A, "a")
    assert "a" in cache
    assert len(cache) == 1
    assert cache.victims(10, A) == ["a"]


def test_nothing_is_asked_of_an_empty_cache() -> None:
    assert policy().victims(0, A) == []
    assert policy().victims(1, A) is None


def test_wrong_use_is_refused() -> None:
    cache, plain = policy(), LruPolicy[str]()
    fill(cache, A, "a")
    plain.insert("a", Entry(A, None, 0, 10, 1.0))
    for each in (cache, plain):
        with pytest.raises(Misuse):
            each.insert("a", Entry(A, None, 0, 10, 1.0))
        with pytest.raises(Misuse):
            each.pin("b")
    with pytest.raises(Misuse):
        cache.insert("s", Entry(A, "s", 0, 10, 1.0))
    with pytest.raises(Misuse):
        Entry(A, None, 0, 0, 1.0)
    with pytest.raises(Misuse):
        Entry(A, None, 0, 1, float("nan"))
    with pytest.raises(Misuse):
        Shares(0)
    with pytest.raises(Misuse):
        Shares(1, 1.5)


def test_lru_goes_by_use_and_pin() -> None:
    cache = LruPolicy[str]()
    for name in "abc":
        cache.insert(name, Entry(A, None, 0, 10, 1.0))
    cache.touch("a")
    cache.pin("b")
    assert cache.victims(20, B) == ["c", "a"]
    assert cache.victims(20, B, protected={"c"}) is None
    cache.unpin("b")
    assert cache.victims(20, B) == ["c", "a"]


@pytest.mark.parametrize("order", [Recency, GreedyDual, lambda: LearnedReuse(1000)])
@pytest.mark.parametrize("life", [4000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_heaps_stay_bounded_over_a_long_life(order: Callable[[], Order[int]], life: int) -> None:
    cache: ScopedPolicy[int] = ScopedPolicy(Shares(1000), order())
    for number in range(life):
        for victim in cache.victims(cache.used_bytes() + 10 - 1000, A) or ():
            cache.remove(victim)
        cache.insert(number, Entry(A, number - 1 if number % 7 else None, number % 7, 10, 1.0))
        cache.touch(number)
        cache.victims(10_000, B)
    sizes = [len(lane.heap) for lanes in cache._lanes.values() for lane in lanes.values()]
    assert max(sizes) < 400
    assert len(list(cache._ledger.by_size())) < 200
