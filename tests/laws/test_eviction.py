"""Laws of eviction: shares hold, nothing in use goes, no chain is cut, and it never stops."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.eviction import (
    Entry,
    ScopedPolicy,
    Shares,
)
from tests.laws.eviction_cache import (
    ACCOUNTS,
    CAPACITY,
    ORDERS,
    SHARES,
    Cache,
    Moves,
    check_victims,
    entry_of,
    lawful_leaf,
    moves,
    order_of,
    policy_of,
)
from tests.reference.eviction import ReferencePolicy


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


@pytest.mark.parametrize("rivals", [1, 2, 3])
def test_rivals_push_each_other_out_as_in_the_reference(
    rivals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small forests across accounts, of which fewer compete than there are."""
    monkeypatch.setattr("scopekv.core.victims.RIVALS_MAX", rivals)
    monkeypatch.setattr("tests.reference.eviction.RIVALS_MAX", rivals)
    for seed in range(500):
        draw = random.Random(seed)
        blocks = draw.randint(6, 16)
        shares = Shares(4 * blocks, draw.choice([0.0, 0.0, 0.3, 0.8]))
        policy: ScopedPolicy[int] = ScopedPolicy(shares)
        obvious = ReferencePolicy(shares)
        accounts = [bytes([each]) * 16 for each in range(draw.randint(2, 5))]
        for key in range(blocks):
            parent = draw.choice([None, *range(key)][-6:])
            entry = Entry(draw.choice(accounts), parent, 0, 4, 1.0)
            policy.insert(key, entry)
            obvious.insert(key, entry)
        for key in draw.choices(range(blocks), k=draw.randint(0, 6)):
            policy.touch(key)
            obvious.touch(key)
        size, account = 4 * draw.randint(1, blocks), draw.choice(accounts)
        kept = draw.sample(range(blocks), draw.choice([0, 0, 1]))
        assert policy.victims(size, account, kept) == obvious.victims(size, account, kept), seed


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
