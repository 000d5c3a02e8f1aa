"""Scopes noted without the root key: no lease, but a revocation reaches what engines hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.ports import ScopeKeyRecord
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Note, Retention, ScopeEpoch
from tests.unit.store.test_broker import CountingWrapper
from tests.unit.store.test_broker import House as BrokerHouse

SECRET = b"s" * 32
USER = Scope(ScopeKind.USER, ("org_1", "usr_1"))
SESSION = Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", "s1"))


@dataclass
class House:
    folder: Path
    registry: SqlRegistry
    wrapper: FileKeyWrapper

    def note(self, *scopes: Scope, at: float = 100.0) -> list[Note]:
        wanted = [ScopeEpoch(scope, 0) for scope in scopes]
        return scope_keys.note(self.registry, self.wrapper, SECRET, wanted, at)

    def record(self, scope: Scope) -> ScopeKeyRecord | None:
        with self.registry.read() as view:
            return view.scope_keys.get(scope.id(SECRET), 0)

    def take_root_key(self) -> None:
        os.rename(self.folder / "wrap.key", self.folder / "aside")

    def bring_root_key(self) -> None:
        os.rename(self.folder / "aside", self.folder / "wrap.key")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    registry = open_registry(f"sqlite:///{tmp_path / 'registry.db'}")
    yield House(tmp_path, registry, FileKeyWrapper(tmp_path / "wrap.key"))
    registry.close()


def test_a_scope_is_known_before_it_has_a_key_and_gets_one_later(house: House) -> None:
    house.take_root_key()
    assert house.note(USER, SESSION) == [Note.KEYLESS, Note.KEYLESS]
    bare = house.record(SESSION)
    assert bare is not None
    assert (bare.wrapped, bare.root_version, bare.noted_at) == (b"", "", 100.0)
    assert house.note(SESSION, at=200.0) == [Note.KEYLESS]
    house.bring_root_key()
    assert house.note(SESSION, at=50.0) == [Note.KEPT], "also by a clock that lags"
    made = house.record(SESSION)
    assert made is not None
    assert (made.root_version, made.noted_at) == (house.wrapper.version, 200.0)
    assert len(house.wrapper.unwrap(made.wrapped, scope_keys.context_of(made))) == 32
    assert house.note(SESSION, at=300.0) == [Note.KEPT]
    again = house.record(SESSION)
    assert again is not None
    assert again.wrapped == made.wrapped, "the first key stays"


def test_a_revocation_names_scopes_without_a_key(house: House) -> None:
    house.take_root_key()
    house.note(USER, SESSION)
    with house.registry.write() as tx:
        ended = scope_keys.end_epoch(tx, USER)
    assert {record.scope for record in ended.records} == {USER.id(SECRET), SESSION.id(SECRET)}
    assert house.note(SESSION) == [Note.OVER]
    assert house.record(SESSION) is None


def test_a_scope_without_a_key_is_nothing_to_rewrap_and_no_key_to_count(house: House) -> None:
    house.note(USER)
    house.take_root_key()
    house.note(SESSION)
    house.bring_root_key()
    assert sum(scope_keys.counts(house.registry).values()) == 1
    house.wrapper.rotate()
    done = scope_keys.rewrap(house.registry, house.wrapper, drop_unreadable=True)
    assert (done.moved, done.unreadable, done.dropped) == (1, 0, 0)
    assert house.record(SESSION) is not None


def test_a_scope_without_a_key_goes_after_its_retention(house: House) -> None:
    house.take_root_key()
    house.note(SESSION)
    retention = Retention()
    gone = scope_keys.expire(house.registry, retention, 100.0 + retention.session + 1)
    assert [record.scope for record in gone] == [SESSION.id(SECRET)]


def test_the_broker_leases_nothing_for_it_until_its_key_is_there(tmp_path: Path) -> None:
    registry = open_registry(f"sqlite:///{tmp_path / 'registry.db'}")
    path = tmp_path / "wrap.key"
    house = BrokerHouse(registry, CountingWrapper(path), path)
    assert house.note(USER) == [Note.KEPT]
    path.rename(tmp_path / "aside")
    assert house.note(SESSION) == [Note.KEYLESS]
    (tmp_path / "aside").rename(path)
    assert house.leased(USER, SESSION) == [USER.id(SECRET)]
    assert house.note(SESSION) == [Note.KEPT]
    assert house.leased(USER, SESSION) == [USER.id(SECRET), SESSION.id(SECRET)], "at once"
    registry.close()


def test_a_revocation_names_scopes_whose_key_was_given_up(house: House) -> None:
    """Gateways note a scope anew after hours only: until then nobody would bring its row back."""
    house.note(USER, SESSION)
    (house.folder / "wrap.key").unlink()
    lost = FileKeyWrapper(house.folder / "wrap.key")
    assert scope_keys.rewrap(house.registry, lost, drop_unreadable=True).dropped == 2
    made = house.record(SESSION)
    assert made is not None
    assert (made.root_version, made.noted_at) == (lost.version, 100.0)
    assert len(lost.unwrap(made.wrapped, scope_keys.context_of(made))) == 32
    with house.registry.write() as tx:
        ended = scope_keys.end_epoch(tx, USER)
    assert {record.scope for record in ended.records} == {USER.id(SECRET), SESSION.id(SECRET)}
