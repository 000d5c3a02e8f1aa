"""The keyring: leases by scope and epoch, for a short while, and nothing beyond them."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from scopekv.core.chains import tag
from scopekv.core.leases import Lease
from scopekv.core.sealing import chain_keys
from scopekv.simulate.sealed_tier import SimulatedBroker, link
from scopekv.store.keyring import Keyring

A, B = link("a"), link("b")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker() -> SimulatedBroker:
    return SimulatedBroker(lease_seconds=60, retention_seconds=3600)


@pytest.fixture
def keyring(broker: SimulatedBroker, clock: Clock) -> Iterator[Keyring]:
    ring = Keyring(broker, clock)
    yield ring
    ring.close()


def wait_for(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(30_000):
        if true():
            return
        pause.wait(0.002)
    raise AssertionError("it did not come true")


def test_a_chain_takes_every_lease(keyring: Keyring, broker: SimulatedBroker) -> None:
    assert keyring.chain((A,)) is None
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((A,)) == chain_keys([broker.lease_of(A)])
    assert keyring.chain((A, B)) is None
    keyring.accept([broker.lease_of(B)])
    assert keyring.chain((A, B)) == chain_keys([broker.lease_of(A), broker.lease_of(B)])
    assert keyring.chain(()) is None


def test_another_epoch_is_another_key(keyring: Keyring, broker: SimulatedBroker) -> None:
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((link("a", 2),)) is None
    assert keyring.chain((link("a", 0),)) is None


def test_leases_end_on_the_monotonic_clock(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    keyring.accept([broker.lease_of(A)], asked_at=clock.now - 10)
    clock.now += 49.9
    assert keyring.chain((A,)) is not None
    generation = keyring.generation
    clock.now += 0.1
    assert keyring.chain((A,)) is None
    assert keyring.account((A,)) is None
    assert keyring.generation > generation, "who keeps ciphers of it drops them"


def test_a_cached_chain_ends_with_its_first_lease(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    keyring.accept([broker.lease_of(A)])
    clock.now += 40
    keyring.accept([broker.lease_of(B)])
    assert keyring.chain((A, B)) is not None
    clock.now += 20
    assert keyring.chain((A, B)) is None
    assert keyring.chain((B,)) is not None
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((A, B)) is not None


def test_sweeping_drops_what_is_over(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    keyring.accept([broker.lease_of(A)])
    keyring.chain((A,))
    clock.now += 61
    generation = keyring.generation
    keyring.sweep()
    assert keyring.generation > generation
    assert not keyring._held
    assert not keyring._derived


def test_account_is_the_narrowest_scopes_and_retention_the_least(keyring: Keyring) -> None:
    document = Lease(A.scope, 1, b"k" * 32, 60, 86_400, bytes(16))
    user = Lease(B.scope, 1, b"l" * 32, 60, 600, b"org" + bytes(13))
    keyring.accept([document, user])
    assert keyring.account((A,)) == bytes(16)
    assert keyring.account((A, B)) == b"org" + bytes(13)
    assert keyring.retention((A,)) == 86_400
    assert keyring.retention((A, B)) == 600


def test_a_fence_drops_and_refuses(keyring: Keyring, broker: SimulatedBroker) -> None:
    keyring.accept([broker.lease_of(A), broker.lease_of(B)])
    assert keyring.chain((A, B)) is not None
    keyring.fence([tag(A)])
    assert keyring.chain((A, B)) is None
    assert keyring.chain((A,)) is None
    assert keyring.chain((B,)) is not None
    assert keyring.accept([broker.lease_of(A)]) == 0
    assert keyring.chain((A,)) is None
    assert keyring.accept([broker.lease_of(link("a", 2))]) == 1, "the next epoch is another"


def test_a_newer_epoch_ends_the_older(keyring: Keyring, broker: SimulatedBroker) -> None:
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((A,)) is not None
    keyring.accept([broker.lease_of(link("a", 2))])
    assert keyring.chain((A,)) is None
    assert keyring.accept([broker.lease_of(A)]) == 0, "and it does not come back"


def test_memory_is_bounded(
    keyring: Keyring, broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopekv.store.keyring.FENCED_MAX", 200)
    monkeypatch.setattr("scopekv.store.keyring.LEASES_MAX", 100)
    keyring.fence(tag(link("x", epoch)) for epoch in range(210))
    assert len(keyring._fenced) == 200
    keyring.accept(broker.lease_of(link(f"{i}")) for i in range(110))
    assert len(keyring._held) == 100


def test_a_ticket_is_asked_for_in_the_background(keyring: Keyring, broker: SimulatedBroker) -> None:
    assert keyring.request("a:1 b:1", (A, B))
    wait_for(lambda: keyring.chain((A, B)) is not None)
    assert not keyring.request("a:1 b:1", (A, B)), "all is held"
    assert broker.asked == ["a:1 b:1"]


def test_leases_are_renewed_before_they_end(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    keyring.request("a:1", (A,))
    wait_for(lambda: keyring.chain((A,)) is not None)
    clock.now += 39
    assert not keyring.request("a:1", (A,))
    clock.now += 2
    assert keyring.request("a:1", (A,))
    wait_for(lambda: len(broker.asked) == 2)
    clock.now += 30
    assert keyring.chain((A,)) is not None


class SlowBroker(SimulatedBroker):
    """Answers when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def lease(self, ticket: str) -> Sequence[Lease]:
        leases = super().lease(ticket)
        self.go.wait(10)
        return leases


def test_what_is_asked_for_is_not_asked_twice(clock: Clock) -> None:
    broker = SlowBroker()
    keyring = Keyring(broker, clock)
    assert keyring.request("a:1", (A,))
    wait_for(lambda: broker.asked == ["a:1"])
    assert keyring.request("a:1 ", (A,)), "another ticket, the same scope: it is coming"
    assert keyring.request("a:1")
    broker.go.set()
    wait_for(lambda: keyring.chain((A,)) is not None)
    keyring.close()
    assert broker.asked == ["a:1"]


def test_leases_that_arrive_after_the_fence_are_refused(clock: Clock) -> None:
    broker = SlowBroker()
    keyring = Keyring(broker, clock)
    keyring.request("a:1 b:1", (A, B))
    wait_for(lambda: len(broker.asked) == 1)
    keyring.fence([tag(A)])
    broker.go.set()
    wait_for(lambda: keyring.chain((B,)) is not None)
    assert keyring.chain((A,)) is None
    keyring.close()


def test_a_refused_ticket_is_not_asked_again(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    broker.refusing = True
    keyring.request("a:1", (A,))
    wait_for(lambda: not keyring.request("a:1", (A,)))
    clock.now += 59
    assert not keyring.request("a:1", (A,))
    broker.refusing = False
    assert keyring.request("a:1  ", (A,)), "another ticket is"
    wait_for(lambda: keyring.chain((A,)) is not None)


def test_a_broker_out_of_reach_is_left_alone_for_a_moment(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    broker.out_of_reach = True
    for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        asked = len(broker.asked)
        assert keyring.request("a:1", (A,))
        wait_for(lambda: not keyring.request("a:1", (A,)))
        assert len(broker.asked) == asked + 1
        clock.now += wait * 0.99
        assert not keyring.request("b:1", (B,))
        clock.now += wait * 0.02
    broker.out_of_reach = False
    assert keyring.request("a:1", (A,))
    wait_for(lambda: keyring.chain((A,)) is not None)


def test_a_scope_without_a_lease_is_not_asked_for_at_every_request(
    keyring: Keyring, broker: SimulatedBroker, clock: Clock
) -> None:
    broker.withdrawn.add(A)
    keyring.request("a:1 b:1", (A, B))
    wait_for(lambda: keyring.chain((B,)) is not None and not keyring.request("a:1", (A,)))
    assert len(broker.asked) == 1
    clock.now += 1.1
    broker.withdrawn.clear()
    assert keyring.request("a:1", (A,))
    wait_for(lambda: keyring.chain((A,)) is not None)


def test_a_closed_keyring_has_no_key(keyring: Keyring, broker: SimulatedBroker) -> None:
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((A,)) is not None
    keyring.close()
    assert keyring.chain((A,)) is None
    assert not keyring.request("a:1", (A,))


def test_a_lease_that_has_no_room_leaves_no_derived_key(
    keyring: Keyring, broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopekv.store.keyring.LEASES_MAX", 1)
    keyring.accept([broker.lease_of(A)])
    assert keyring.chain((A,)) is not None
    keyring.accept([broker.lease_of(B)])
    assert keyring.chain((A,)) is None
    assert keyring.chain((B,)) is not None
