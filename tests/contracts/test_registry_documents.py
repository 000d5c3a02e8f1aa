"""The contract of the registry's documents, over SQLite and a real PostgreSQL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from scopekv.adapters.registry import SqlRegistry
from scopekv.core.scopes import Audience, Scope, ScopeKind
from scopekv.errors import Conflict, Misuse, NotFound, TooLarge
from scopekv.ports import RegistryTransaction

if TYPE_CHECKING:
    from tests.contracts.conftest import Filler

PUBLIC = Audience.parse("public")


@pytest.mark.parametrize("text", ["x", "a\0b", "a\r\nb\rc\n", "\ufeff\U0001f600é ", " " * 5])
def test_text_is_stored_exactly(registry: SqlRegistry, fill: Filler, text: str) -> None:
    record = fill.document("", "handbook", "public", text)
    (current,) = registry.documents()
    assert current.text == text
    assert current.document == record.document
    assert record.digest == hashlib.sha256(text.encode()).digest()


def test_text_out_of_bounds_is_refused(fill: Filler) -> None:
    with pytest.raises(Misuse, match="at least one character"):
        fill.document("", "a", "public", "")
    with pytest.raises(TooLarge, match="4194304"):
        fill.document("", "a", "public", "é" * (2 * 1024 * 1024 + 1))
    with pytest.raises(Misuse, match="surrogate"):
        fill.document("", "a", "public", "\ud800")
    assert fill.document("", "a", "public", "é" * (2 * 1024 * 1024)).size_bytes == 4 * 1024**2


def test_every_change_of_a_document_raises_its_epoch(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    uid = fill.document(org.uid, "handbook", "org:acme").document.uid
    scope = Scope(ScopeKind.DOCUMENT, (uid,))
    assert registry.epoch(scope) == 0
    with registry.write() as tx:
        assert tx.documents.revise(uid, "new text").revision == 2
    assert registry.epoch(scope) == 1
    before = registry.versions()
    with registry.write() as tx:
        assert tx.documents.revise(uid, "new text").revision == 2
        tx.documents.set_audience(uid, Audience.parse("org:acme"))
    assert registry.versions() == before, "the same again changes nothing"
    with registry.write() as tx:
        tx.documents.set_audience(uid, PUBLIC)
    assert registry.epoch(scope) == 2
    with registry.write() as tx:
        assert tx.documents.withdraw(uid).document.withdrawn
    assert registry.epoch(scope) == 3
    after = registry.versions()
    assert (after.documents, after.epochs) == (before.documents + 2, before.epochs + 2)


def test_withdrawn_is_for_good(registry: SqlRegistry, fill: Filler) -> None:
    uid = fill.document("", "handbook", "public").document.uid
    with registry.write() as tx:
        tx.documents.withdraw(uid)
    assert list(registry.documents()) == []
    with registry.read() as view:
        assert view.documents.text(uid) == ""
        assert [item.revision for item in view.documents.revisions(uid)] == [1]
    attempts: tuple[Callable[[RegistryTransaction], object], ...] = (
        lambda tx: tx.documents.revise(uid, "x"),
        lambda tx: tx.documents.set_audience(uid, PUBLIC),
        lambda tx: tx.documents.withdraw(uid),
    )
    for attempt in attempts:
        with pytest.raises(Conflict, match="withdrawn"), registry.write() as tx:
            attempt(tx)
    assert fill.document("", "handbook", "public").document.uid != uid


def test_a_name_is_one_live_document_per_owner(fill: Filler) -> None:
    acme, globex = fill.org("acme"), fill.org("globex")
    fill.document(acme.uid, "handbook", "public")
    fill.document(globex.uid, "handbook", "public")
    fill.document("", "handbook", "public")
    with pytest.raises(Conflict, match="new revision"):
        fill.document(acme.uid, "handbook", "org:acme")


@pytest.mark.parametrize("audience", ["org:nobody", "group:acme/nobody", "user:acme/nobody"])
def test_an_audience_must_exist(registry: SqlRegistry, fill: Filler, audience: str) -> None:
    org = fill.org()
    with pytest.raises(NotFound, match="create it first"):
        fill.document(org.uid, "handbook", audience)
    uid = fill.document(org.uid, "handbook", "org:acme").document.uid
    with pytest.raises(NotFound, match="create it first"), registry.write() as tx:
        tx.documents.set_audience(uid, Audience.parse(audience))


@pytest.mark.parametrize("audience", ["group:acme/eng", "user:acme/alice", "org:acme"])
def test_what_a_document_is_for_is_not_deleted(
    registry: SqlRegistry, fill: Filler, audience: str
) -> None:
    org = fill.org()
    alice = fill.account(org).principal
    eng = fill.group(org)
    uid = fill.document("", "handbook", audience).document.uid

    with pytest.raises(Conflict, match=r"handbook.*withdraw"), registry.write() as tx:
        tx.orgs.delete(org.uid)

    def delete() -> None:
        with registry.write() as tx:
            if audience.startswith("group"):
                tx.groups.delete(eng.uid)
            elif audience.startswith("user"):
                tx.accounts.delete(alice.uid)
            tx.orgs.delete(org.uid)

    with pytest.raises(Conflict, match=r"handbook.*withdraw"):
        delete()
    with registry.write() as tx:
        tx.documents.withdraw(uid)
    delete()


def test_deleting_an_organisation_counts_its_own_documents_alone(
    registry: SqlRegistry, fill: Filler
) -> None:
    """I7: `acme` is neither `ACME` nor `acme-2`, whatever a pattern match makes of it."""
    org = fill.org("acme")
    for other in ("ACME", "acme-2", "a_me"):
        home = fill.org(other)
        fill.group(home)
        fill.document(home.uid, "handbook", f"group:{other}/eng")
    with registry.write() as tx:
        tx.orgs.delete(org.uid)
