"""The index: the byte limit, ages on two clocks, purges by tag."""

import pytest

from scopekv.core.chains import folder, tag
from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from scopekv.core.leases import NOBODY
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.simulate.sealed_tier import link
from scopekv.store.index import Index
from scopekv.store.records import SKEW_SECONDS

A, B = link("a"), link("b")
RETENTION = 1000
ACCOUNT, OTHER = b"a" * 16, b"o" * 16


class Clocks:
    def __init__(self) -> None:
        self.wall, self.monotonic = 1e9, 50.0

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def index(clocks: Clocks) -> Index:
    return make_index(clocks)


def make_index(clocks: Clocks, capacity: int = 1000) -> Index:
    policy: ScopedPolicy[ObjectKey] = ScopedPolicy(Shares(capacity))
    return Index(policy, capacity, lambda: clocks.wall, lambda: clocks.monotonic)


def key(name: str, *scopes: str) -> ObjectKey:
    chain = folder(tuple(link(scope) for scope in scopes or ("a",)), RETENTION)
    assert chain is not None
    return ObjectKey(chain, name)


def entry(size: int = 100, account: bytes = ACCOUNT, cost: float = 1.0) -> Entry[ObjectKey]:
    return Entry(account, None, 0, size, cost)


def put(index: Index, name: str, size: int = 100, account: bytes = ACCOUNT) -> list[ObjectKey]:
    victims = index.reserve(key(name), entry(size, account))
    assert victims is not None
    assert index.commit(key(name))
    return victims


def test_room_is_kept_before_and_shown_after(index: Index) -> None:
    assert index.reserve(key("1"), entry()) == []
    assert index.get(key("1")) is None
    assert index.keeps(key("1"))
    assert index.used_bytes == 100
    assert index.reserve(key("1"), entry()) is None, "it is on its way"
    assert index.commit(key("1"))
    assert index.get(key("1")) is not None


def test_a_failed_put_gives_its_room_back(index: Index) -> None:
    index.reserve(key("1"), entry())
    assert index.forget([key("1")]) == 1
    assert index.used_bytes == 0
    assert not index.commit(key("1")), "what was forgotten is not shown"


def test_the_limit_holds_with_room_that_is_only_kept(index: Index) -> None:
    for number in range(10):
        assert index.reserve(key(f"{number}"), entry()) == []
    assert index.reserve(key("more"), entry()) is None, "what is on its way is no victim"
    assert index.used_bytes == 1000
    assert index.reserve(key("huge"), entry(size=1001)) is None


def test_the_least_recently_used_goes(index: Index) -> None:
    for number in range(10):
        put(index, f"{number}")
    for number in range(1, 10):
        index.use(key(f"{number}"), ACCOUNT)
    assert put(index, "new") == [key("0")]
    assert index.get(key("0")) is None
    assert index.used_bytes == 1000


def test_what_is_being_read_is_no_victim(index: Index) -> None:
    pins = []
    for number in range(10):
        put(index, f"{number}")
        pins.append(index.pin(key(f"{number}")))
    assert index.reserve(key("new"), entry()) is None
    index.unpin(pins[4])
    assert put(index, "new") == [key("4")]
    assert index.pin(key("4")) is None
    index.unpin(None)


def test_a_pin_is_given_back_once(index: Index) -> None:
    """A load whose call hung is given up, and comes back late: its object is read by others."""
    for number in range(10):
        put(index, f"{number}")
    pins = [index.pin(key(f"{number}")) for number in (*range(10), 4)]
    index.unpin(pins[4])
    index.unpin(pins[4])
    assert index.reserve(key("new"), entry()) is None
    index.unpin(pins[10])
    assert put(index, "new") == [key("4")]


def test_a_pin_of_what_left_holds_nothing_that_came_since(index: Index) -> None:
    put(index, "1")
    late = index.pin(key("1"))
    index.forget([key("1")])
    index.cleared([key("1")])
    assert index.reserve(key("1"), entry()) == []
    index.unpin(late)
    assert index.reserve(key("all"), entry(size=1000)) is None, "what is on its way is no victim"


def test_bytes_that_could_not_be_deleted_count_on(index: Index) -> None:
    for number in range(10):
        put(index, f"{number}")
    victims = index.reserve(key("new"), entry())
    assert victims is not None
    index.doubt(victims, 100)
    assert index.used_bytes == 1100
    assert index.doubtful() == victims
    index.forget([key("new")])
    again = index.reserve(key("new"), entry())
    assert again is not None
    assert len(again) == 1
    assert index.used_bytes == 1000
    index.cleared(victims)
    assert index.used_bytes == 900


def test_what_was_found_becomes_its_users(index: Index) -> None:
    index.found(ObjectStat(key("1"), 100, 1e9))
    assert index.bytes_by_account() == {NOBODY: 100}
    index.use(key("1"), ACCOUNT)
    assert index.bytes_by_account() == {ACCOUNT: 100}
    index.use(key("1"), OTHER)
    assert index.bytes_by_account() == {ACCOUNT: 100}


def test_retention_is_the_folders(index: Index, clocks: Clocks) -> None:
    put(index, "1")
    clocks.go(RETENTION)
    assert index.get(key("1")) is not None
    clocks.go(1)
    assert index.get(key("1")) is None
    assert not index.keeps(key("1")), "the next store writes it again"
    assert index.over() == [key("1")]


def test_a_wall_clock_set_back_keeps_nothing_alive(index: Index, clocks: Clocks) -> None:
    put(index, "1")
    index.found(ObjectStat(key("2"), 100, clocks.wall - 900))
    clocks.wall -= 1e6
    clocks.go(50)
    assert index.get(key("2")) is None, "by its time it comes from the future"
    clocks.wall += 1e6
    assert index.get(key("2")) is not None
    clocks.wall -= SKEW_SECONDS / 2 + 100
    clocks.monotonic += 51
    assert index.get(key("2")) is None, "901 seconds passed here, whatever the wall says"


def test_a_wall_clock_set_forward_only_loses(index: Index, clocks: Clocks) -> None:
    put(index, "1")
    clocks.wall += 1e6
    assert index.get(key("1")) is None
    assert index.over() == [key("1")]
    put(index, "2")
    clocks.wall -= 1e6
    assert index.get(key("2")) is None, "stored in a time to come: over, not young for ever"
    assert index.is_over(ObjectStat(key("3"), 100, clocks.wall + SKEW_SECONDS + 1))
    assert not index.is_over(ObjectStat(key("3"), 100, clocks.wall + SKEW_SECONDS - 1))


def test_tags_reach_every_folder_that_holds_them(index: Index) -> None:
    for name, scopes in (("1", ("a",)), ("2", ("a", "b")), ("3", ("b",)), ("4", ("c", "b", "a"))):
        index.reserve(key(name, *scopes), entry())
    assert index.forget_tags([tag(A)]) == 3
    assert index.keeps(key("3", "b"))
    assert index.forget_tags([tag(A)]) == 0


def test_what_was_purged_counts_until_it_is_deleted(index: Index) -> None:
    for name in ("1", "2"):
        assert index.reserve(key(name), entry(400)) == []
        assert index.commit(key(name))
    assert index.forget_tags([tag(A)]) == 2
    assert (len(index), index.used_bytes) == (0, 800)
    assert index.reserve(key("3", "b"), entry(400)) is None, "the store has no room yet"
    index.cleared([key("1")])
    assert index.used_bytes == 400
    assert index.reserve(key("3", "b"), entry(400)) == []


def test_a_listing_corrects_what_is_known(index: Index, clocks: Clocks) -> None:
    put(index, "there")
    put(index, "gone")
    began = clocks.monotonic
    clocks.go(1)
    began += 0.5
    clocks.go(1)
    put(index, "new")
    index.reserve(key("coming"), entry())
    assert index.forget_unlisted({key("there")}, began) == 1
    assert [index.keeps(key(name)) for name in ("there", "gone", "new", "coming")] == [
        *(True, False, True, True)
    ]


def test_a_surplus_is_given_up(clocks: Clocks) -> None:
    index = make_index(clocks, capacity=250)
    for number in range(4):
        index.found(ObjectStat(key(f"{number}"), 100, clocks.wall))
    assert len(index.surplus()) == 2
    assert index.used_bytes == 200
    assert index.surplus() == []


def test_parents_are_known_while_they_are_there(index: Index) -> None:
    put(index, "1")
    index.is_parent(b"h", 0, key("1"))
    assert index.parent(b"h", 0) == key("1")
    assert index.parent(b"h", 1) is None
    assert index.parent(None, 0) is None
    index.forget([key("1")])
    assert index.parent(b"h", 0) is None


def test_an_empty_object_is_none(index: Index) -> None:
    assert not index.found(ObjectStat(key("1"), 0, 1e9))
    assert len(index) == 0
