"""The key broker: a genuine ticket opens the keys of its own scopes, while their epochs stand."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scopekv.adapters.ed25519 import TicketSigner, verifier
from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Audience, Pseudonym, Scope, ScopeKind
from scopekv.core.tickets import Grant, Ticket, audience_id, mint
from scopekv.errors import ConfigError, TicketExpired, TicketInvalid, Unavailable
from scopekv.store import scope_keys
from scopekv.store.broker import Authority, KeyBroker
from scopekv.store.scope_keys import Note, Retention, ScopeEpoch, account_of

SECRET, SIGNER = b"s" * 32, TicketSigner(b"k" * 32)
HERE = audience_id("default")
ALICE = Scope(ScopeKind.USER, ("org_1", "usr_1"))
SESSION = Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", "s1"))
ORG = Scope(ScopeKind.ORG, ("org_1",))
BOB = Scope(ScopeKind.USER, ("org_2", "usr_2"))
PUBLIC = Audience.parse("public")
DAY, HOUR = 86_400, 3_600


class CountingWrapper(FileKeyWrapper):
    opened = 0

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        self.opened += 1
        return super().unwrap(wrapped, context)


@dataclass
class House:
    """A registry, a root key, a broker, and their clocks."""

    registry: SqlRegistry
    wrapper: CountingWrapper
    key_file: Path
    now: float = 1_800_000_000.0
    passed: float = 0.0
    broker: KeyBroker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = self.another()

    def another(self, lease_seconds: int = 300) -> KeyBroker:
        return KeyBroker(
            self.registry,
            self.wrapper,
            Authority({SIGNER.key_id: verifier(SIGNER.public_key)}, HERE),
            Retention(),
            lease_seconds=lease_seconds,
            clock=lambda: self.now,
            monotonic=lambda: self.passed,
        )

    def note(self, *scopes: Scope, epoch: int = 0) -> list[Note]:
        wanted = [ScopeEpoch(scope, epoch) for scope in scopes]
        return scope_keys.note(self.registry, self.wrapper, SECRET, wanted, self.now)

    def ticket(self, *scopes: Scope, epoch: int = 0, group: str = "default") -> str:
        ends = [*range(1, len(scopes)), None]
        ticket = Ticket(
            key_id=SIGNER.key_id,
            issued_ms=int(self.now * 1000),
            ttl_ms=30_000,
            audience=audience_id(group),
            namespace=Fingerprint(secrets.token_bytes(32)),
            principal=Pseudonym(bytes(16)),
            nonce=secrets.token_bytes(16),
            uses=1,
            grants=tuple(
                Grant(end, scope.id(SECRET), epoch, b"" if end is None else bytes(32))
                for scope, end in zip(scopes, ends, strict=True)
            ),
        )
        return mint(ticket, SIGNER.sign)

    def leased(self, *scopes: Scope, epoch: int = 0) -> list[bytes]:
        return [one.scope for one in self.broker.lease(self.ticket(*scopes, epoch=epoch))]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    registry = open_registry(f"sqlite:///{tmp_path / 'registry.db'}")
    path = tmp_path / "wrap.key"
    yield House(registry, CountingWrapper(path), path)
    registry.close()


def test_t10_a_ticket_opens_its_own_scopes_and_no_other(house: House) -> None:
    house.note(ALICE, ORG, BOB)
    assert house.leased(ALICE) == [ALICE.id(SECRET)]
    assert house.leased(ORG, ALICE) == [ORG.id(SECRET), ALICE.id(SECRET)]
    assert house.leased(BOB) == [BOB.id(SECRET)]
    keys = {one.key for one in house.broker.lease(house.ticket(ORG, ALICE, BOB))}
    assert len(keys) == 3, "each scope has a key of its own"
    assert len(house.broker.lease(house.ticket(ALICE, ORG, ALICE))) == 2, "each scope once"


def test_a_lease_says_how_long_and_whose(house: House) -> None:
    house.note(ALICE, SESSION)
    user, session = house.broker.lease(house.ticket(ALICE, SESSION))
    assert (user.retention_seconds, session.retention_seconds) == (DAY, 4 * HOUR)
    assert user.account == session.account == account_of(SECRET, "org_1")
    assert user.account != account_of(SECRET, "org_2")
    assert house.another(60).lease(house.ticket(ALICE))[0].lease_seconds == 60
    assert user.key not in repr(user).encode()


def test_a_documents_account_is_its_owners(house: House) -> None:
    with house.registry.write() as tx:
        org = tx.orgs.create("acme")
        own = tx.documents.publish("", "own", PUBLIC, "text").document
        theirs = tx.documents.publish(org.uid, "theirs", PUBLIC, "text").document
    house.note(own.scope, theirs.scope)
    accounts = [one.account for one in house.broker.lease(house.ticket(own.scope, theirs.scope))]
    assert accounts == [bytes(16), account_of(SECRET, org.uid)]


def test_a_scope_that_nobody_noted_has_no_lease(house: House) -> None:
    house.note(ALICE)
    assert house.leased(ORG, ALICE, BOB) == [ALICE.id(SECRET)]
    assert house.leased(ALICE, epoch=1) == []


def test_a_ticket_that_does_not_hold_is_refused(house: House) -> None:
    house.note(ALICE)
    good = house.ticket(ALICE)
    other = house.ticket(ALICE, group="elsewhere")
    for bad, reason in (
        (good[:-4], "malformed"),
        (good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"), "bad_signature"),
        (other, "other_audience"),
        (None, "malformed"),
        ("x" * 10_000, "malformed"),
    ):
        with pytest.raises(TicketInvalid) as refusal:
            house.broker.lease(bad)
        assert refusal.value.reason == reason
    house.now += 36
    with pytest.raises(TicketExpired):
        house.broker.lease(good)


@pytest.mark.parametrize("scope", [ALICE, SESSION])
def test_an_epoch_that_is_over_has_no_lease_though_its_key_was_open(
    house: House, scope: Scope
) -> None:
    house.note(scope, ORG)
    assert house.leased(ORG, scope) == [ORG.id(SECRET), scope.id(SECRET)]
    with house.registry.write() as tx:
        ended = scope_keys.end_epoch(tx, scope)
    assert ended.epoch == 1
    assert [record.scope for record in ended.records] == [scope.id(SECRET)]
    assert len(ended.tags) == 1
    assert house.leased(ORG, scope) == [ORG.id(SECRET)]
    assert house.note(scope) == [Note.OVER], "a ticket of before brings nothing back"
    assert house.note(scope, epoch=1) == [Note.KEPT]
    assert house.leased(scope, epoch=1) == [scope.id(SECRET)]


def test_a_raised_epoch_alone_fences_before_any_key_is_destroyed(house: House) -> None:
    house.note(ALICE)
    assert house.leased(ALICE)
    house.registry.bump_epoch(ALICE)
    assert house.leased(ALICE) == []
    with house.registry.write() as tx:
        assert len(scope_keys.erase_ended(tx, ALICE).records) == 1
        assert scope_keys.erase_ended(tx, ALICE).records == ()


def test_the_next_epoch_has_another_key(house: House) -> None:
    house.note(ALICE)
    before = house.broker.lease(house.ticket(ALICE))[0].key
    with house.registry.write() as tx:
        scope_keys.end_epoch(tx, ALICE)
    house.note(ALICE, epoch=1)
    assert house.broker.lease(house.ticket(ALICE, epoch=1))[0].key != before


def test_an_open_key_is_kept_for_a_minute_and_no_change_of_epochs(house: House) -> None:
    house.note(ALICE, ORG)
    for passed, opened in ((0.0, 1), (59.0, 1), (61.0, 2), (62.0, 2)):
        house.passed = passed
        assert house.leased(ALICE)
        assert house.wrapper.opened == opened
    house.registry.bump_epoch(BOB)
    assert house.leased(ALICE)
    assert house.wrapper.opened == 3
    house.passed += 61
    house.broker.sweep()
    assert not house.broker._kept


def test_an_altered_record_opens_nothing_and_says_so_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever writes the registry cannot give one scope's key to another, or move its account."""
    house.note(ALICE, ORG, BOB)
    with house.registry.write() as tx:
        bob = tx.scope_keys.get(BOB.id(SECRET), 0)
        assert bob is not None
        tx.scope_keys.rewrap(ALICE.id(SECRET), 0, bob.wrapped, bob.root_version)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert house.leased(ALICE, ORG) == [ORG.id(SECRET)]
    assert len(caplog.records) == 1


def test_out_of_reach_is_unavailable(house: House) -> None:
    house.note(ALICE)
    aside = house.key_file.with_name("aside")
    os.rename(house.key_file, aside)
    with pytest.raises(Unavailable):
        house.leased(ALICE)
    assert house.note(ALICE, BOB) == [Note.KEPT, Note.KEYLESS], "known scopes need no root key"
    os.rename(aside, house.key_file)
    assert house.leased(ALICE)
    assert house.note(BOB) == [Note.KEPT]


def test_keys_go_when_nobody_used_them_for_their_retention(house: House) -> None:
    house.note(ALICE, SESSION)
    house.now += 4 * HOUR + 1
    house.note(ORG)
    gone = house.broker.expire_keys(house.now)
    assert [record.kind for record in gone] == ["session"]
    house.note(ALICE)
    house.now += DAY - 1
    assert house.broker.expire_keys(house.now) == []
    house.now += 2
    assert [record.kind for record in house.broker.expire_keys(house.now)] == ["user"]
    assert house.leased(ORG, ALICE, SESSION) == [ORG.id(SECRET)]


def test_rewrapping_keeps_every_key_and_lets_the_old_root_key_go(house: House) -> None:
    scopes = [Scope(ScopeKind.USER, ("org_1", f"usr_{n}")) for n in range(23)]
    house.note(*scopes)
    before = [one.key for one in house.broker.lease(house.ticket(*scopes[:8]))]
    house.wrapper.rotate()
    assert house.note(*scopes) == [Note.KEPT] * 23
    steps: list[tuple[int, int]] = []
    done = scope_keys.rewrap(
        house.registry,
        house.wrapper,
        drop_unreadable=False,
        progress=lambda moved, left: steps.append((moved, left)),
    )
    assert done == (23, 0, 0)
    assert steps == [(23, 0)]
    assert house.wrapper.retire() == 1
    fresh = house.another()
    assert [one.key for one in fresh.lease(house.ticket(*scopes[:8]))] == before


def test_a_lost_root_key_costs_the_cache_and_no_more(house: House) -> None:
    house.note(ALICE, ORG)
    house.key_file.unlink()
    house.wrapper = CountingWrapper(house.key_file)
    house.broker = house.another()
    assert house.leased(ALICE) == []
    rewrap = scope_keys.rewrap
    assert rewrap(house.registry, house.wrapper, drop_unreadable=False) == (0, 2, 0)
    assert rewrap(house.registry, house.wrapper, drop_unreadable=True) == (0, 2, 2)
    assert house.another().lease(house.ticket(ALICE, ORG)), "each scope has a new key at once"


def test_opened_keys_have_a_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopekv.store.broker.KEPT_MAX", 2)
    house.note(ALICE, ORG, BOB)
    for _ in range(2):
        assert len(house.leased(ALICE, ORG, BOB)) == 3
    assert len(house.broker._kept) == 2


@pytest.mark.parametrize("kind", list(ScopeKind))
def test_retention_out_of_bounds_is_refused(kind: ScopeKind) -> None:
    assert Retention(**{kind.value: 60}).seconds(kind) == 60
    for seconds in (0, -1, 400 * DAY):
        with pytest.raises(ConfigError, match=kind.value):
            Retention(**{kind.value: seconds})
