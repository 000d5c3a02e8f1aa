"""What the model of reuse learns, and that it holds no more than it says."""

from __future__ import annotations

import pytest

from scopekv.core import reuse
from scopekv.core.eviction import Entry, LearnedReuse, ScopedPolicy, Shares
from scopekv.core.reuse import ReuseModel

A = bytes(16)


def test_what_comes_again_is_worth_more_than_what_never_does() -> None:
    """Blocks of a first turn are used once; those that follow a use are used again and again."""
    model: ReuseModel[int] = ReuseModel(1000)
    key = 0
    for _ in range(400):
        key += 1
        opening = model.again(model.first(key, 10, None))
        key += 1
        model.again(model.first(key, 10, opening))
        for _ in range(8):
            key += 1
            last = model.first(key, 10, None)
            model.left(key, last)
    follower = model.first(key + 1, 10, model.again(model.first(key + 2, 10, None)))
    worth = model.index(follower)
    stranger = model.first(key + 3, 10, None)
    assert follower.turn == 1
    assert worth > 2 * model.index(stranger) > 0


def test_a_block_that_left_is_known_when_it_comes_back() -> None:
    model: ReuseModel[str] = ReuseModel(100)
    last = model.first("a", 10, None)
    model.left("a", last)
    assert model.first("a", 10, None).uses == 2
    assert model.first("a", 10, None).uses == 1, "it is forgotten once it is back"


def test_what_is_past_the_horizon_is_forgotten() -> None:
    model: ReuseModel[int] = ReuseModel(100)
    model.left(0, model.first(0, 10, None))
    for key in range(1, 200):
        model.left(key, model.first(key, 10, None))
    assert len(model._ghosts) < 100
    assert len(model._log) < 200
    assert model.first(0, 10, None).uses == 1


def test_no_more_ghosts_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "GHOSTS_MAX", 5)
    model: ReuseModel[int] = ReuseModel(10**9)
    for key in range(50):
        model.left(key, model.first(key, 10, None))
    assert len(model._ghosts) == 5


def test_one_shot_prompts_do_not_push_out_conversations() -> None:
    """Turns that come back after more than a capacity of strangers: LRU would find nothing."""
    cache: ScopedPolicy[tuple[str, int]] = ScopedPolicy(Shares(400), LearnedReuse(400))

    def serve(key: tuple[str, int], parent: tuple[str, int] | None, depth: int) -> bool:
        if key in cache:
            cache.touch(key)
            return True
        for victim in cache.victims(cache.used_bytes() + 10 - 400, A) or ():
            cache.remove(victim)
        cache.insert(key, Entry(A, parent, depth, 10, 1.0))
        return False

    found = 0
    for turn in range(300):
        hits = [serve((f"talk {number}", 0), None, 0) for number in range(10)]
        found += sum(hits) if turn >= 150 else 0
        for stranger in range(60):
            serve((f"stranger {turn}", stranger), None, 0)
    assert found > 1400, "of 1,500"
