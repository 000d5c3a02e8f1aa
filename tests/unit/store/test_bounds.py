"""What a tier remembers has a limit each, and the latest of it is what stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from scopekv.core.chains import folder, tag
from scopekv.core.leases import Lease
from scopekv.errors import Refused, Unavailable
from scopekv.ports import ObjectKey
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import NAMESPACE, SimulatedBroker, link
from scopekv.store.departures import Departures
from scopekv.store.fence import Fence
from scopekv.store.keyring import Keyring
from scopekv.store.lease_requests import LeaseRequests
from scopekv.store.purges import ANSWER_SECONDS, Purges
from scopekv.store.sealed_objects import SealedObjects
from tests.unit.store.test_index import Clocks, entry, key, make_index

if TYPE_CHECKING:
    from tests.unit.store.conftest import Start

A = link("a")
MANY = 9


def test_departures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.departures.DEPARTURES_MAX", 2)
    left = Departures(lambda: 5.0)
    for number in (*range(MANY), 0):
        left.add(ObjectKey("chain", f"{number}"))
    assert [left.since(ObjectKey("chain", f"{n}"), 5.0) for n in range(MANY)] == [
        *(True, *(MANY - 2) * [False], True)
    ]


def test_fenced_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.fence.TAGS_MAX", 2)
    fence = Fence()
    links = [link(f"{number}") for number in range(MANY)]
    fence.raise_for(tag(one) for one in (*links, links[0]))
    folders = [folder((one,), 60) or "" for one in links]
    assert [fence.holds(one) for one in folders] == [True, *(MANY - 2) * [False], True]


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.sealed_objects.ADDRESSES_MAX", 2)
    broker = SimulatedBroker()
    keyring = Keyring(broker)
    keyring.accept([broker.lease_of(A)])
    objects = SealedObjects(keyring, NAMESPACE, 64)
    for number in range(MANY):
        assert objects.address((A,), bytes([number]) * 32, 0) is not None
    assert len(objects._addresses) == 2


def test_absences(
    start: Start, store: SimulatedObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopekv.store.presence.ABSENT_MAX", 2)
    stage = start(shared=True, absence_seconds=60.0)
    chain = stage.grant(A)
    stage.lookup(stage.block(chain, "first"), stage.block(chain, "second"))
    assert len(stage.tier._checks._absent) == 2
    stage.lookup(stage.block(chain, "third"))
    assert len(stage.tier._checks._absent) == 2
    asked = [name for name, _ in store.calls].count("present")
    stage.lookup(stage.block(chain, "third"))
    assert [name for name, _ in store.calls].count("present") == asked, "the latest is known"


def test_parents() -> None:
    index = make_index(Clocks())
    assert index.reserve(key("1"), entry()) == []
    for number in range(3000):
        index.is_parent(number.to_bytes(4, "big"), 0, key("1"))
    assert len(index._parents) <= 1025
    assert index.parent((2999).to_bytes(4, "big"), 0) == key("1")


class Refusing:
    """A broker that refuses; counts."""

    def __init__(self) -> None:
        self.asked = 0

    def lease(self, _ticket: str) -> Sequence[Lease]:
        self.asked += 1
        raise Refused("no")


def test_tickets_that_wait_or_were_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.lease_requests.QUEUE_MAX", 2)
    monkeypatch.setattr("scopekv.store.lease_requests.DENIED_MAX", 2)
    source = Refusing()
    requests = LeaseRequests(source, lambda *_: 0, lambda: 0.0, threaded=False)
    assert [requests.put(f"{n}", (), 0.0) for n in range(3)] == [True, True, False]
    for number in range(3, MANY):
        while requests.turn():
            pass
        assert requests.put(f"{number}", (), 0.0)
    assert requests.turn()
    assert len(requests._not_before) == 2
    assert not requests.put(f"{MANY - 1}", (), 0.0), "the latest is not asked for again"


class Away(Refusing):
    """A broker out of reach."""

    def lease(self, _ticket: str) -> Sequence[Lease]:
        self.asked += 1
        raise Unavailable("away")


def test_what_waits_behind_a_broker_out_of_reach_does_not_wait_for_it() -> None:
    source, now = Away(), [0.0]
    requests = LeaseRequests(source, lambda *_: 0, lambda: now[0], threaded=False)
    assert requests.put("1", (A,), now[0])
    assert requests.put("2", (link("b"),), now[0])
    assert requests.turn()
    assert not requests.turn()
    assert (source.asked, requests.pending((A, link("b")))) == (1, False)
    now[0] += 10.0
    assert requests.put("2", (link("b"),), now[0]), "asked for again, later"


def test_answers_to_purges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.purges.ANSWERS_MAX", 2)
    now = [0.0]
    purges = Purges(SimulatedObjectStore(), Fence(), lambda: now[0], lambda _: None, threaded=False)
    tags = [frozenset({tag(link(f"{number}"))}) for number in range(MANY)]
    for one in tags:
        assert purges.ask(one).busy
        assert purges.turn()
    assert len(purges._answers) <= 3
    assert purges.ask(tags[-1]).busy == 0
    now[0] += ANSWER_SECONDS + 1
    assert purges.ask(tags[-1]).busy == 1, "an old answer says nothing: it purges again"
    assert len(purges._answers) == 1


def test_an_answer_that_is_asked_for_stays_until_all_parts_of_a_purge_are_through() -> None:
    """A receipt of many scopes is purged in parts, and done when all say so in one round (L6).

    Where a part takes its time, the first would be forgotten, and begun anew, before the last.
    """
    now = [0.0]
    purges = Purges(SimulatedObjectStore(), Fence(), lambda: now[0], lambda _: None, threaded=False)
    parts = [frozenset({tag(link(f"{number}"))}) for number in range(4)]
    for begun in range(1, 5):
        assert purges.ask(parts[begun - 1]).busy
        now[0] += ANSWER_SECONDS / 2
        assert purges.turn()
        assert [purges.ask(part).busy for part in parts[:begun]] == [0] * begun
