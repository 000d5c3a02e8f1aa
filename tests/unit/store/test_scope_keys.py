"""Scope keys in the registry: what a wrapped key is bound to, and who overtakes whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.chains import Link
from scopekv.core.leases import Lease
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.errors import Corrupt
from scopekv.ports import ScopeKeyRecord
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Note, ScopeEpoch, context_of
from tests.unit.store.test_broker import ALICE, BOB, ORG, SECRET, CountingWrapper, House


class Overtaken(CountingWrapper):
    """A root key in whose unwrapping somebody else goes on."""

    meanwhile: Callable[[], object] | None = None

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        key = super().unwrap(wrapped, context)
        then, self.meanwhile = self.meanwhile, None
        if then is not None:
            then()
        return key


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SqlRegistry]:
    made = open_registry(f"sqlite:///{tmp_path / 'registry.db'}")
    yield made
    made.close()


@pytest.fixture
def house(tmp_path: Path, registry: SqlRegistry) -> House:
    path = tmp_path / "wrap.key"
    return House(registry, Overtaken(path), path)


def kept(registry: SqlRegistry, scope: Scope) -> ScopeKeyRecord | None:
    with registry.read() as view:
        return view.scope_keys.get(scope.id(SECRET), 0)


def made_anew(house: House) -> None:
    """Alice's key is destroyed and another made, as after her retention."""
    with house.registry.write() as tx:
        assert tx.scope_keys.destroy_idle("user", house.now + 1)
    assert house.note(ALICE) == [Note.KEPT]


@pytest.mark.parametrize(
    "changed",
    [
        {"scope": ScopeId(bytes(16))},
        {"epoch": 1},
        {"kind": "session"},
        {"owner": BOB},
        {"owner": ORG},
        {"account": bytes(16)},
    ],
)
def test_a_wrapped_key_opens_with_its_own_row_alone(house: House, changed: dict[str, Any]) -> None:
    house.note(ALICE)
    record = kept(house.registry, ALICE)
    assert record is not None
    assert len(house.wrapper.unwrap(record.wrapped, context_of(record))) == 32
    with pytest.raises(Corrupt):
        house.wrapper.unwrap(record.wrapped, context_of(replace(record, **changed)))


def test_an_epoch_that_ends_while_its_key_is_opened_is_not_leased(house: House) -> None:
    house.note(ALICE, ORG)
    assert isinstance(house.wrapper, Overtaken)
    house.wrapper.meanwhile = lambda: house.registry.bump_epoch(ALICE)
    assert house.leased(ALICE, ORG) == [ORG.id(SECRET)]


def test_a_key_that_was_opened_under_older_epochs_is_not_kept(house: House) -> None:
    lease = Lease(ALICE.id(SECRET), 0, b"k" * 32, 300, 3600, b"a" * 16)
    assert house.broker._known([], 5) == {}
    house.broker._keep({Link(lease.scope, 0): lease}, 4)
    assert not house.broker._kept


def test_a_row_that_goes_while_it_is_noted_does_not_come_back(house: House) -> None:
    house.note(ALICE)
    write, registry = house.registry.write, house.registry

    class Raced:
        def __getattr__(self, name: str) -> Any:
            return getattr(registry, name)

        def write(self) -> Any:
            with write() as tx:
                tx.scope_keys.destroy_idle("user", house.now + 1)
            return write()

    wanted = [ScopeEpoch(ALICE, 0)]
    raced: Any = Raced()
    assert scope_keys.note(raced, house.wrapper, SECRET, wanted, house.now) == [Note.OVER]
    assert kept(registry, ALICE) is None


@pytest.mark.parametrize("readable", [True, False])
def test_rewrapping_leaves_a_key_alone_that_was_made_meanwhile(
    house: House, readable: bool
) -> None:
    """Else the new row would get the old key, or one that nobody has leased."""
    house.note(ALICE)
    wrapper = house.wrapper
    assert isinstance(wrapper, Overtaken)
    if readable:
        wrapper.rotate()
        wrapper.meanwhile = lambda: made_anew(house)
    else:
        house.key_file.unlink()
        house.wrapper = wrapper = Later(house.key_file)
        wrapper.before_wrap = lambda: made_anew(house)
    done = scope_keys.rewrap(house.registry, wrapper, drop_unreadable=True)
    assert (done.moved, done.dropped) == (0, 0)
    record = kept(house.registry, ALICE)
    assert record is not None
    assert record.root_version == wrapper.version
    assert [one.key for one in house.another().lease(house.ticket(ALICE))] == [
        FileKeyWrapper(house.key_file).unwrap(record.wrapped, context_of(record))
    ]


class Later(Overtaken):
    """A root key before whose next wrapping somebody else goes on."""

    before_wrap: Callable[[], object] | None = None

    def wrap(self, key: bytes, context: bytes) -> bytes:
        then, self.before_wrap = self.before_wrap, None
        if then is not None:
            then()
        return super().wrap(key, context)


def test_the_kinds_of_scope_are_all_in_the_binding(house: House) -> None:
    session = Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", "s1"))
    house.note(ALICE, session)
    one, other = (kept(house.registry, scope) for scope in (ALICE, session))
    assert one is not None
    assert other is not None
    assert one.owner == other.owner
    assert context_of(replace(one, scope=other.scope)) != context_of(other)
