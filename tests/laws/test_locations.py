"""Laws of the location index: it is its reference, gives its room back, and never exaggerates."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.events import Medium, OuterTier, OuterTiers
from scopekv.core.locations import BLOCK_BYTES, LocationIndex
from scopekv.core.speeds import TierSpeed
from tests.reference.locations import ReferenceIndex

NAMES = ("a", "b", "c")
MEDIA = st.sampled_from(list(Medium))
HASHES = st.lists(st.integers(0, 12), max_size=6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "clear", "forget", "tidy", "load", "rejoin")),
        st.sampled_from(NAMES),
        MEDIA,
        HASHES,
    ),
    max_size=60,
)


OUTER = [Medium.DIRECTORY, Medium.VALKEY, Medium.S3]
STORES = {Medium.DIRECTORY: [b""], Medium.VALKEY: [b"v", b"w"], Medium.S3: [b"s", b""]}


@st.composite
def tierings(draw: st.DrawFn) -> OuterTiers | None:
    """Any tiers in any order, some of them shared with other instances."""
    if draw(st.booleans()):
        return None
    media = draw(st.lists(st.sampled_from(OUTER), unique=True))
    speed = TierSpeed(0.001, 1e9, samples=1)
    nearest = tuple(OuterTier(m, draw(st.sampled_from(STORES[m])), speed) for m in media)
    return OuterTiers(draw(st.integers(1, 3)), 1, nearest)


LAYOUTS = st.tuples(tierings(), tierings(), tierings())
CHAINS = st.lists(st.integers(0, 12), max_size=10)


def tell(
    index: LocationIndex, reference: ReferenceIndex, layouts: Sequence[OuterTiers | None]
) -> None:
    for name, tiers in zip(NAMES, layouts, strict=True):
        index.told(name, tiers)
        reference.tiers.pop(name, None)
        if tiers is not None:
            reference.tiers[name] = tiers


def begun() -> tuple[LocationIndex, ReferenceIndex]:
    index, reference = LocationIndex(), ReferenceIndex()
    for name in NAMES:
        index.join(name)
        reference.join(name)
    return index, reference


def take(
    index: LocationIndex, reference: ReferenceIndex, taken: tuple[str, str, Medium, list[int]]
) -> None:
    step, name, medium, hashes = taken
    if step == "tidy":
        index.tidy()
    elif step == "load":
        load = index.load(name)
        load.add(medium, hashes)
        load.commit()
        for one in Medium:
            reference.clear(name, one)
        reference.add(name, medium, hashes)
    elif step == "forget":
        index.forget(name)
        for one in Medium:
            reference.clear(name, one)
    elif step == "rejoin":
        index.leave(name)
        index.join(name)
        reference.tiers.pop(name, None)
        for one in Medium:
            reference.clear(name, one)
    elif step == "clear":
        index.clear(name, medium)
        reference.clear(name, medium)
    elif step == "add":
        index.add(name, medium, hashes)
        reference.add(name, medium, hashes)
    else:
        index.remove(name, medium, hashes)
        reference.remove(name, medium, hashes)


def run(
    steps: Sequence[tuple[str, str, Medium, list[int]]],
) -> tuple[LocationIndex, ReferenceIndex]:
    index, reference = begun()
    for taken in steps:
        take(index, reference, taken)
    return index, reference


@given(STEPS, CHAINS, LAYOUTS, LAYOUTS)
def test_the_index_is_the_reference_at_any_time(
    steps: list[tuple[str, str, Medium, list[int]]],
    chain: list[int],
    before: Sequence[OuterTiers | None],
    after: Sequence[OuterTiers | None],
) -> None:
    """What a look-up keeps for the next one never outlives a change."""
    index, reference = begun()
    tell(index, reference, before)
    for place, taken in enumerate(steps):
        if place == len(steps) // 2:
            tell(index, reference, after)
        take(index, reference, taken)
        found = index.locate(chain, NAMES, 1)
        assert found == {name: reference.reach(name, chain) for name in NAMES}


@given(STEPS, CHAINS, LAYOUTS)
def test_the_index_is_the_reference_for_any_history(
    steps: list[tuple[str, str, Medium, list[int]]],
    chain: list[int],
    layouts: Sequence[OuterTiers | None],
) -> None:
    index, reference = run(steps)
    tell(index, reference, layouts)
    for name in NAMES:
        for medium in Medium:
            assert index.contents(name, medium) == reference.held[name][medium]
            assert index.size(name, medium) == len(reference.held[name][medium])
    found = index.locate(chain, NAMES, 1)
    assert found == {name: reference.reach(name, chain) for name in NAMES}


@given(STEPS)
def test_what_is_forgotten_gives_its_room_back(
    steps: list[tuple[str, str, Medium, list[int]]],
) -> None:
    index, _ = run(steps)
    for name in NAMES:
        index.leave(name)
    while index.tidy():
        pass
    assert len(index) == 0


@given(STEPS, CHAINS, LAYOUTS)
def test_a_full_index_never_says_more_than_there_is(
    steps: list[tuple[str, str, Medium, list[int]]],
    chain: list[int],
    layouts: Sequence[OuterTiers | None],
) -> None:
    _, reference = run(steps)
    small = LocationIndex(1 << 20)
    small._table.blocks_max = 5
    for name in NAMES:
        small.join(name)
    for step, name, medium, hashes in steps:
        if step == "add":
            small.add(name, medium, hashes)
        elif step == "remove":
            small.remove(name, medium, hashes)
        elif step == "clear":
            small.clear(name, medium)
        elif step == "forget":
            small.forget(name)
        elif step == "rejoin":
            small.leave(name)
            small.join(name)
        elif step == "load":
            load = small.load(name)
            load.add(medium, hashes)
            load.commit()
        assert len(small) <= 5
    tell(small, reference, layouts)
    for name in NAMES:
        for medium in Medium:
            assert small.contents(name, medium) <= reference.held[name][medium]
        found, real = small.locate(chain, [name], 1)[name], reference.reach(name, chain)
        assert found.engine <= real.engine
        assert found.host <= real.host


def test_memory_is_bounded_in_bytes() -> None:
    index = LocationIndex(1 << 20)
    index.join("a")
    index.add("a", Medium.ENGINE, range(1 << 15))
    assert index.used_bytes <= 1 << 20
    assert index.left_out == (1 << 15) - (1 << 20) // BLOCK_BYTES
    assert index.partial("a")
    assert not index.roomy
