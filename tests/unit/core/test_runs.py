"""How runs of blocks are divided, and which blocks are one run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scopekv.core.eviction import Recency, ScopedPolicy, Shares
from scopekv.core.lru import Entry, entries_of
from scopekv.core.runs import Run, ends

A, B = (bytes([number]) * 16 for number in range(2))
NAMES = "abcdef"
PLACES = range(len(NAMES))


def cache_of(*prompts: str) -> ScopedPolicy[str]:
    """Blocks of 10 bytes; a prompt goes on from the blocks that are there already."""
    cache: ScopedPolicy[str] = ScopedPolicy(Shares(1000, 0.0), Recency())
    for names in prompts:
        entries = entries_of(A, names, 10, [1.0] * len(names))
        known = sum(name in cache for name in names)
        cache.insert_all(names[known:], entries[known:])
    return cache


def runs_of(cache: ScopedPolicy[str]) -> set[str]:
    """Its runs as words, after a look at whether they hold together."""
    runs = cache._runs
    found = {"".join(run.keys): run for run in runs.values()}
    assert sorted("".join(found)) == sorted(runs), "each block is in one run"
    for run in found.values():
        assert all(runs[key] is run for key in run.keys)
        children = [each for each in found.values() if each.parent == run.keys[-1]]
        assert run.children == len(children), "only the last block has children in other runs"
        assert all(each.used_at != run.used_at for each in found.values() if each is not run)
    return set(found)


def leaves(cache: ScopedPolicy[str]) -> str:
    """What goes, in order."""
    return "".join(cache.victims(cache.used_bytes(), B) or ())


def test_a_prompt_is_one_run_and_goes_from_its_tail() -> None:
    cache = cache_of(NAMES)
    assert runs_of(cache) == {NAMES}
    assert cache.evict(20, B) == ["f", "e"]
    assert runs_of(cache) == {"abcd"}
    assert leaves(cache) == "dcba"


@pytest.mark.parametrize("place", PLACES)
def test_a_child_divides_a_run_after_its_parent(place: int) -> None:
    head, tail = NAMES[: place + 1], NAMES[place + 1 :]
    cache = cache_of(NAMES, head + "xy")
    assert runs_of(cache) == {head, tail, "xy"} - {""}
    assert leaves(cache) == tail[::-1] + "yx" + head[::-1]


@pytest.mark.parametrize("place", PLACES)
def test_a_pin_divides_a_run_after_its_block(place: int) -> None:
    cache = cache_of(NAMES)
    cache.pin(NAMES[place])
    assert runs_of(cache) == {NAMES[: place + 1], NAMES[place + 1 :]} - {""}
    assert cache.victims(10 * (5 - place), B) == list(NAMES[:place:-1])
    assert cache.victims(10 * (6 - place), B) is None
    cache.unpin(NAMES[place])
    assert leaves(cache) == NAMES[::-1]


@pytest.mark.parametrize("place", PLACES)
def test_a_block_is_removed_from_any_place_and_comes_back(place: int) -> None:
    cache = cache_of(NAMES)
    cache.remove(NAMES[place])
    assert runs_of(cache) == {NAMES[:place], NAMES[place + 1 :]} - {""}
    assert cache.used_bytes() == 50
    assert leaves(cache) == NAMES[:place][::-1] + NAMES[place + 1 :][::-1], "older ones first"
    cache.insert(NAMES[place], Entry(A, NAMES[place - 1] if place else None, place, 10, 1.0))
    assert runs_of(cache) == {NAMES[:place], NAMES[place], NAMES[place + 1 :]} - {""}
    assert leaves(cache) == NAMES[::-1], "no block goes before what continues it"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("together", [False, True])
def test_a_child_that_was_there_first_divides_the_run_of_its_parent(
    place: int, together: bool
) -> None:
    cache = cache_of()
    names, child = list(NAMES), Entry(A, NAMES[place], place + 1, 10, 1.0)
    entries = entries_of(A, names, 10, [1.0] * 6)
    if together:
        cache.insert_all(["x", *names], [child, *entries])
    else:
        cache.insert("x", child)
        cache.insert_all(names, entries)
    head, tail = NAMES[: place + 1], NAMES[place + 1 :]
    assert runs_of(cache) == {"x", head, tail} - {""}
    assert leaves(cache) == "x" + tail[::-1] + head[::-1]


@pytest.mark.parametrize("start", PLACES)
@pytest.mark.parametrize("blocks", [1, 2, 6])
def test_a_use_of_a_part_divides_a_run_around_it(start: int, blocks: int) -> None:
    cache = cache_of(NAMES)
    part = NAMES[start : start + blocks]
    cache.touch_all([*part, "not cached"])
    assert runs_of(cache) == {NAMES[:start], part, NAMES[start + blocks :]} - {""}
    cache.insert("z", Entry(A, None, 0, 10, 1.0))
    tail = NAMES[start + blocks :][::-1]
    assert leaves(cache) == tail + part[::-1] + NAMES[:start][::-1] + "z", "as they are a chain"


def test_the_parts_of_a_run_keep_when_it_was_used() -> None:
    cache = cache_of(NAMES, "z")
    cache.touch("z")
    cache.touch_all(NAMES)
    cache.remove("e")
    assert leaves(cache) == "z" + "dcba" + "f"


def test_the_parts_of_a_run_keep_that_it_was_used_again() -> None:
    cache = cache_of(NAMES)
    cache.touch_all(NAMES)
    cache.insert_all("uv", entries_of(B, "uv", 10, [1.0, 1.0]))
    for gone in "ef":
        cache.remove(gone)
    assert cache.victims(20, B) == ["v", "u"], "what was never used again goes before"


@pytest.mark.parametrize("taken", PLACES)
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_gave_of_its_tail_is_divided_like_any_other(taken: int, place: int) -> None:
    cache = cache_of(NAMES, "uv")
    gone = cache.evict(10 * taken, B) if taken else []
    assert gone == list(NAMES[::-1][:taken])
    left = NAMES[: 6 - taken]
    cache.touch(NAMES[place])
    expected = {"uv", left[:place], left[place : place + 1], left[place + 1 :]} - {""}
    assert runs_of(cache) == expected


def test_a_protected_block_ends_what_a_run_gives() -> None:
    cache = cache_of(NAMES)
    assert cache.victims(30, B, {"c"}) == ["f", "e", "d"]
    assert cache.victims(40, B, {"c"}) is None
    assert cache.evict(20, B, {"c"}) == ["f", "e"]
    assert cache.evict(20, B, {"c"}) is None
    assert cache.evict(20, B) == ["d", "c"]
    assert runs_of(cache) == {"ab"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [4]),
        ({1: {"account": B}}, [1, 2, 4]),
        ({3: {"size_bytes": 11}}, [3, 4]),
        ({2: {"parent": "z"}}, [2, 4]),
        ({0: {"parent": "z"}}, [4]),
        ({2: {"cost": 5.0}}, [4]),
    ],
)
def test_blocks_are_one_run_where_each_just_continues_the_one_before(
    changes: dict[int, dict[str, object]], expected: list[int]
) -> None:
    names = list("abcd")
    entries = entries_of(A, names, 10, [1.0] * 4)
    for place, change in changes.items():
        entries[place] = entries[place]._replace(**change)  # type: ignore[arg-type]
    assert ends(names, entries) == expected


def test_no_blocks_are_no_runs() -> None:
    assert ends([], []) == []


def test_the_parts_of_a_run_are_in_the_order_of_their_use() -> None:
    parts: list[Run[str]] = []
    rest = Run(list(NAMES), A, None, 10, 20)
    rest.lane = cache_of("x")._runs["x"].lane
    while len(rest.keys) > 1:
        parts.append(rest.split(1))
    assert [part.used_at for part in (*parts, rest)] == [15, 16, 17, 18, 19, 20]
    assert all(late.parent == early.keys[-1] for early, late in pairwise([*parts, rest]))
