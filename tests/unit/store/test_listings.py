"""What a listing may not bring back: objects that leave while it walks, or could not be deleted."""

from __future__ import annotations

from scopekv.ports import ObjectStat
from scopekv.store.index import Index
from tests.unit.store.test_index import ACCOUNT, Clocks, entry, key, make_index, put


def found(index: Index, name: str, since: float = float("inf")) -> bool:
    return index.found(ObjectStat(key(name), 100, 1e9), since=since)


def test_what_is_being_deleted_is_neither_found_nor_put() -> None:
    index = make_index(Clocks(), capacity=100)
    put(index, "1")
    assert index.reserve(key("2"), entry()) == [key("1")]
    assert not found(index, "1")
    index.forget([key("2")])
    assert index.reserve(key("1"), entry()) is None, "its deletion would take it away again"
    index.cleared([key("1")])
    assert index.reserve(key("1"), entry()) == []


def test_what_could_not_be_deleted_is_not_served_again() -> None:
    index = make_index(Clocks())
    put(index, "1")
    index.doubt([key("1")], 100)
    assert not found(index, "1")
    assert (index.get(key("1")), index.used_bytes) == (None, 100)
    index.cleared([key("1")])
    assert found(index, "1"), "somebody else put it there"


def test_what_left_since_a_listing_began_is_not_taken_up() -> None:
    clocks = Clocks()
    index = make_index(clocks)
    put(index, "1")
    began = clocks.monotonic
    clocks.go(1)
    index.forget([key("1")])
    clocks.go(1)
    assert not found(index, "1", began)
    assert found(index, "1", clocks.monotonic)


def test_what_a_listing_took_up_in_between_goes_with_the_deletion() -> None:
    index = make_index(Clocks())
    put(index, "1")
    put(index, "2")
    index.forget([key("1"), key("2")])
    assert found(index, "1")
    put(index, "2")
    index.cleared([key("1"), key("2")])
    assert index.get(key("1")) is None
    assert index.get(key("2")) is not None, "written anew meanwhile, by an account"
    assert index.bytes_by_account() == {ACCOUNT: 100}


def test_what_is_on_its_way_is_not_missed_by_a_listing() -> None:
    clocks = Clocks()
    index = make_index(clocks)
    index.reserve(key("1"), entry())
    clocks.go(1)
    began = clocks.monotonic
    clocks.go(1)
    assert index.forget_unlisted(set(), began) == 0
    assert index.commit(key("1"))


def test_a_put_that_was_forgotten_does_not_count_for_what_a_listing_found() -> None:
    index = make_index(Clocks())
    index.reserve(key("1"), entry())
    index.forget([key("1")])
    assert found(index, "1")
    assert not index.commit(key("1"))
