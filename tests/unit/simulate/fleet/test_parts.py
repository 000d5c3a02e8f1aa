"""Small parts: bounds with sampling, times in buckets, bins of time, memories, the clock."""

from __future__ import annotations

import math

import pytest

from scopekv.core.eviction import Entry
from scopekv.errors import Misuse
from scopekv.simulate.fleet.clock import Clock
from scopekv.simulate.fleet.histogram import Histogram
from scopekv.simulate.fleet.memory import POLICIES, Memory, Room
from scopekv.simulate.fleet.timeline import BINS_MAX, Timeline
from scopekv.simulate.fleet.unlimited import Unlimited


def test_infinite_memory_counts_the_longest_prefix_and_a_partial_block_as_it_is() -> None:
    bound = Unlimited()
    assert bound.take([1, 2, 3], 10, 25) == 0
    assert bound.take([1, 2, 4], 10, 30) == 20
    assert bound.take([1, 2, 3], 10, 25) == 25
    assert bound.token_hit_rate == 45 / 80


@pytest.mark.parametrize("bits", [0, 61])
def test_a_bound_that_outgrows_its_room_is_sampled_and_stays_near(bits: int) -> None:
    """Whatever lies in the lower bits of names, as in those of `identity`."""
    exact, sampled = Unlimited(), Unlimited(blocks_max=2000)
    for turn in range(6000):
        prompt = [(turn % 1500 * 100 + block) << bits for block in range(10)]
        for bound in (exact, sampled):
            bound.take(prompt, 16, 160)
    assert exact.sampled == 1.0
    assert sampled.sampled <= 1 / 4
    assert sampled.token_hit_rate == pytest.approx(exact.token_hit_rate, abs=0.03)


def test_percentiles_are_within_half_a_percent() -> None:
    histogram = Histogram()
    for millisecond in range(1, 1001):
        histogram.add(millisecond / 1000)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        assert histogram.at(share) == pytest.approx(share, rel=0.006)
    assert Histogram().at(0.5) == 0
    with pytest.raises(Misuse, match="percentile"):
        histogram.at(0)


def test_time_that_goes_on_widens_the_bins_and_loses_nothing() -> None:
    timeline = Timeline()
    for second in range(10_000):
        here = timeline.at(float(second))
        here.requests += 1
        here.work[second % 3] = here.work.get(second % 3, 0.0) + 0.5
    assert len(timeline.bins) <= BINS_MAX
    assert sum(each.requests for each in timeline.bins) == 10_000
    assert sum(sum(each.work.values()) for each in timeline.bins) == 5000


def test_equal_times_happen_in_the_order_they_were_asked_for() -> None:
    clock = Clock()
    heard: list[str] = []
    for name, when in (("b", 2.0), ("a", 1.0), ("c", 2.0), ("past", -1.0)):
        clock.at(when, heard.append, name)
    clock.run_to(1.5)
    assert (heard, clock.now) == (["past", "a"], 1.5)
    clock.run_out()
    assert (heard, clock.now) == (["past", "a", "b", "c"], 2.0)


def entries(names: list[int]) -> list[Entry[int]]:
    parents = [None, *names[:-1]]
    return [Entry(b"a", parents[n], n, 100, 0.1) for n in range(len(names))]


@pytest.mark.parametrize("policy", ["lru", "fifo", "arc", "recency", "gdsf", "scopekv"])
def test_a_memory_evicts_from_the_tail_and_its_counts_add_up(policy: str) -> None:
    memory = Memory(Room(4, policy), 100)
    new, gone = memory.offer([1, 2, 3], entries([1, 2, 3]))
    assert (new, gone) == ([1, 2, 3], [])
    new, gone = memory.offer([7, 8], entries([7, 8]))
    assert (new, gone) == ([7, 8], [3])
    assert memory.leading([1, 2, 3]) == 2
    assert memory.stored - memory.evicted == len(memory) == 4


@pytest.mark.parametrize("policy", list(POLICIES))
def test_blocks_in_use_are_no_victims_whatever_the_policy(policy: str) -> None:
    memory = Memory(Room(3, policy), 100)
    memory.put([1, 2, 3], entries([1, 2, 3]))
    memory.pin([1, 2, 3])
    assert memory.make_room(1, b"a") is None
    memory.unpin([1, 2, 3])
    gone = memory.make_room(1, b"a")
    assert gone is not None
    assert len(gone) == 1
    assert len(memory) == 2


def test_what_is_larger_than_a_memory_is_kept_from_its_head() -> None:
    memory = Memory(Room(3, "lru"), 100)
    names = list(range(10))
    new, _ = memory.offer(names, entries(names))
    assert new == [0, 1, 2]
    assert memory.refused == 7
    assert memory.offer(names, entries(names)) == ([], [])  # its own blocks do not make room


def test_a_full_tier_takes_a_block_at_its_first_offer() -> None:
    memory = Memory(Room(10, "recency"), 100)
    for number in range(0, 60, 6):
        names = list(range(number, number + 6))
        assert memory.offer(names, entries(names))[0] == names
    assert (memory.refused, len(memory)) == (0, 10)


def test_infinite_memory_evicts_nothing() -> None:
    memory = Memory(Room(math.inf, "scopekv"), 100)
    for start in range(0, 10_000, 10):
        names = list(range(start, start + 10))
        memory.offer(names, entries(names))
    assert (len(memory), memory.evicted) == (10_000, 0)


@pytest.mark.parametrize(
    ("blocks", "policy", "complaint"), [(0, "lru", "1 block"), (5, "guess", "none of lru")]
)
def test_a_room_that_is_none_is_refused(blocks: float, policy: str, complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint):
        Room(blocks, policy)
