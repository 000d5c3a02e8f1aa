"""The contract of `ports.CachedContents`, over SQLite and a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scopekv.adapters.registry import SqlRegistry
from scopekv.errors import Conflict, Misuse, NotFound
from scopekv.ports import CachedContent

if TYPE_CHECKING:
    from tests.contracts.conftest import Filler


def add(registry: SqlRegistry, uid: str, account: str, expires_at: float) -> CachedContent:
    with registry.write() as tx:
        return tx.cached_contents.add(
            uid, account, model="m", display_name="한글", tokens=7, expires_at=expires_at
        )


def test_what_is_added_is_found_by_account_organisation_and_end(
    registry: SqlRegistry, fill: Filler
) -> None:
    org = fill.org()
    alice, ann = (fill.account(org, name).principal.uid for name in ("alice", "ann"))
    one = fill.document(org.uid, "one", "user:acme/alice").document.uid
    two = fill.document(org.uid, "two", "user:acme/ann").document.uid
    fill.document(org.uid, "plain", "org:acme")
    before = registry.versions().documents
    made = add(registry, one, alice, 100.5)
    add(registry, two, ann, 200.0)
    assert registry.versions().documents > before
    assert (made.model, made.display_name, made.tokens, made.expires_at) == ("m", "한글", 7, 100.5)
    with registry.read() as view:
        assert view.cached_contents.get(one) == made
        assert view.cached_contents.get("doc_none") is None
        assert [c.record.document.uid for c in view.cached_contents.of_account(alice)] == [one]
        assert {c.record.document.uid for c in view.cached_contents.of_org(org.uid)} == {one, two}
        assert [c.record.document.uid for c in view.cached_contents.due(100.5)] == [one]
        assert view.cached_contents.due(100.4) == []
    ends = {found.name: found.expires_at for found in registry.documents()}
    assert ends == {"one": 100.5, "two": 200.0, "plain": None}


def test_another_end_counts_at_once(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    alice = fill.account(org).principal.uid
    uid = fill.document(org.uid, "one", "user:acme/alice").document.uid
    add(registry, uid, alice, 100.0)
    before = registry.versions().documents
    with registry.write() as tx:
        assert tx.cached_contents.extend(uid, 300.0).expires_at == 300.0
        with pytest.raises(NotFound):
            tx.cached_contents.extend("doc_none", 1.0)
    assert registry.versions().documents > before
    assert [found.expires_at for found in registry.documents()] == [300.0]


def test_a_withdrawn_one_shows_nowhere_and_can_be_forgotten(
    registry: SqlRegistry, fill: Filler
) -> None:
    org = fill.org()
    alice = fill.account(org).principal.uid
    uid = fill.document(org.uid, "one", "user:acme/alice").document.uid
    add(registry, uid, alice, 100.0)
    with registry.write() as tx, pytest.raises(Conflict):
        tx.cached_contents.drop(uid)
    with registry.write() as tx:
        tx.documents.withdraw(uid)
        assert tx.cached_contents.due(1e12) == []
        assert tx.cached_contents.get(uid) is None
        tx.cached_contents.drop(uid)
        assert tx.documents.get(uid) is None
        tx.accounts.delete(alice)


def test_reading_changes_nothing(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    uid = fill.document(org.uid, "one", "org:acme").document.uid
    with registry.read() as view:
        for act in (
            lambda: view.cached_contents.extend(uid, 1.0),
            lambda: view.cached_contents.drop(uid),
            lambda: view.cached_contents.add(
                uid, "usr_x", model="m", display_name="", tokens=None, expires_at=1.0
            ),
        ):
            with pytest.raises(Misuse):
                act()
