"""The contract of `ports.Registry`, over SQLite and a real PostgreSQL."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.policy import Level, RoleRules
from scopekv.core.scopes import Audience, Scope, ScopeKind
from scopekv.errors import Conflict, Misuse, NotFound
from scopekv.ports import RegistryTransaction, Versions

if TYPE_CHECKING:
    from tests.contracts.conftest import Filler

PUBLIC = Audience.parse("public")
DIGEST = hashlib.sha256(b"a key").digest()


def test_a_key_stands_for_its_account_with_groups_and_roles(
    registry: SqlRegistry, fill: Filler
) -> None:
    org = fill.org()
    alice = fill.account(org).principal
    eng = fill.group(org)
    with registry.write() as tx:
        tx.groups.add(eng.uid, alice.uid)
        tx.accounts.grant(alice.uid, "publisher")
        tx.accounts.grant(alice.uid, "publisher")
        tx.keys.create(alice.uid, DIGEST, "laptop", 99.5)
    record = registry.key(DIGEST)
    assert record is not None
    assert record.principal.org == "acme"
    assert record.principal.org_uid == org.uid
    assert record.principal.name == "alice"
    assert record.principal.groups == {"eng"}
    assert record.principal.roles == {"publisher"}
    assert (record.expires_at, record.blocked) == (99.5, False)
    assert registry.key(hashlib.sha256(b"other").digest()) is None


def test_what_is_made_anew_under_an_old_name_is_another(
    registry: SqlRegistry, fill: Filler
) -> None:
    org = fill.org()
    old = fill.account(org).principal
    with registry.write() as tx:
        tx.accounts.grant(old.uid, "org_admin")
        tx.keys.create(old.uid, DIGEST, "", None)
        tx.accounts.delete(old.uid)
    new = fill.account(org).principal
    assert new.uid != old.uid
    assert new.roles == frozenset()
    assert registry.key(DIGEST) is None
    with registry.write() as tx:
        tx.orgs.delete(org.uid)
    assert fill.org().uid != org.uid


@pytest.mark.parametrize("what", ["key", "account", "org"])
def test_blocking_blocks_the_key_and_unblocking_frees_it(
    registry: SqlRegistry, fill: Filler, what: str
) -> None:
    org = fill.org()
    alice = fill.account(org).principal
    with registry.write() as tx:
        key = tx.keys.create(alice.uid, DIGEST, "", None)
    for blocked in (True, False):
        before = registry.versions()
        with registry.write() as tx:
            if what == "key":
                tx.keys.set_blocked(key.uid, blocked)
            elif what == "account":
                tx.accounts.set_blocked(alice.uid, blocked)
            else:
                tx.orgs.set_blocked(org.uid, blocked)
        record = registry.key(DIGEST)
        assert record is not None
        assert record.blocked is blocked
        assert registry.versions().principals > before.principals


def test_versions_rise_with_the_commit_and_not_without(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    before = registry.versions()

    def half() -> None:
        with registry.write() as tx:
            tx.accounts.create(org.uid, "bob", False)
            tx.orgs.create("acme")

    with pytest.raises(Conflict):
        half()
    assert registry.versions() == before
    fill.document(org.uid, "handbook", "org:acme")
    after = registry.versions()
    assert after == Versions(before.principals, before.documents + 1, before.rules, before.epochs)
    with registry.read() as view:
        assert view.accounts.get(org.uid, "bob") is None


def test_another_connection_sees_a_change_at_once(
    url: str, registry: SqlRegistry, fill: Filler
) -> None:
    gateway = open_registry(url)
    before = gateway.versions()
    fill.org()
    assert gateway.versions().principals == before.principals + 1
    gateway.close()


def test_names_are_unique_where_they_name(registry: SqlRegistry, fill: Filler) -> None:
    acme, globex = fill.org("acme"), fill.org("globex")
    fill.account(acme, "alice")
    fill.account(globex, "alice")
    fill.account(acme, "Alice")
    with pytest.raises(Conflict, match="exists already"):
        fill.org("acme")
    # A service account may not take a user's name: audiences name both alike.
    with pytest.raises(Conflict, match="exists already"), registry.write() as tx:
        tx.accounts.create(acme.uid, "alice", True)
    with pytest.raises(Misuse, match="is not a name"):
        fill.org("a/b")


def test_lists_come_in_pages(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    names = [f"user{number:02}" for number in range(7)]
    for name in names:
        fill.account(org, name)
    seen: list[str] = []
    with registry.read() as view:
        while page := view.accounts.list(org.uid, False, seen[-1] if seen else "", 3):
            seen += [account.principal.name for account in page]
        assert view.accounts.list(org.uid, True, "", 3) == []
    assert seen == names


def test_a_group_takes_members_of_its_organisation_alone(
    registry: SqlRegistry, fill: Filler
) -> None:
    acme, globex = fill.org("acme"), fill.org("globex")
    eng = fill.group(acme)
    mallory = fill.account(globex, "mallory").principal
    with pytest.raises(NotFound), registry.write() as tx:
        tx.groups.add(eng.uid, mallory.uid)


def test_rules_default_and_change(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    assert registry.rules("acme") == RoleRules() == registry.rules("nobody")
    narrow = RoleRules(system=Level.USER)
    for rules in (narrow, RoleRules(messages=Level.ORG)):
        before = registry.versions().rules
        with registry.write() as tx:
            tx.rules.set(org.uid, rules)
        assert registry.rules("acme") == rules
        assert registry.versions().rules == before + 1


def test_epochs_belong_to_the_owner(registry: SqlRegistry) -> None:
    user = Scope(ScopeKind.USER, ("org_1", "usr_1"))
    session = Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", "s"))
    assert registry.epoch(session) == 0
    assert registry.bump_epoch(session) == 1
    assert registry.bump_epoch(user) == 2
    assert registry.epoch(session) == 2
    assert registry.epoch(Scope(ScopeKind.ORG, ("org_1",))) == 0


def test_names_that_join_alike_stay_distinct(registry: SqlRegistry) -> None:
    """I7."""
    registry.bump_epoch(Scope(ScopeKind.USER, ("org_1", "2345")))
    assert registry.epoch(Scope(ScopeKind.USER, ("org_12345", ""))) == 0
    assert registry.epoch(Scope(ScopeKind.USER, ("org_12", "345"))) == 0
    assert registry.epoch(Scope(ScopeKind.USER, ("org_1", "2345"))) == 1


def test_a_read_transaction_changes_nothing(registry: SqlRegistry, fill: Filler) -> None:
    org = fill.org()
    before = registry.versions()
    attempts: tuple[Callable[[RegistryTransaction], object], ...] = (
        lambda tx: tx.orgs.create("globex"),
        lambda tx: tx.accounts.set_blocked("usr_1", True),
        lambda tx: tx.documents.publish(org.uid, "a", PUBLIC, "x"),
        lambda tx: tx.documents.withdraw("doc_1"),
        lambda tx: tx.rules.set(org.uid, RoleRules()),
        lambda tx: tx.epochs.bump(Scope(ScopeKind.ORG, (org.uid,))),
        lambda tx: tx.keys.delete("key_1"),
        lambda tx: tx.audit.append(actor="", action="", resource="", outcome="", reason=""),
    )
    for attempt in attempts:
        with pytest.raises(Misuse, match="read transaction"), registry.read() as tx:
            attempt(tx)
    assert registry.versions() == before


def test_keys_expire_earlier_and_never_later(registry: SqlRegistry, fill: Filler) -> None:
    alice = fill.account(fill.org()).principal
    with registry.write() as tx:
        key = tx.keys.create(alice.uid, DIGEST, "", 100.0)
        tx.keys.expire(key.uid, 200.0)
        assert tx.keys.get(key.uid) == key
        tx.keys.expire(key.uid, 50.0)
    record = registry.key(DIGEST)
    assert record is not None
    assert record.expires_at == 50.0
    with pytest.raises(Misuse, match="label"), registry.write() as tx:
        tx.keys.create(alice.uid, b"y" * 32, "x" * 129, None)
    with pytest.raises(Conflict), registry.write() as tx:
        tx.keys.create(alice.uid, DIGEST, "the same secret twice", None)


def test_versions_may_be_read_from_any_thread(registry: SqlRegistry, fill: Filler) -> None:
    """Two threads, as in the gateway, while a third writes: each sees counters that only rise."""
    org = fill.org()
    seen: list[list[int]] = [[], []]

    def look(into: list[int]) -> None:
        into.extend(registry.versions().principals for _ in range(300))

    threads = [threading.Thread(target=look, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for number in range(10):
        fill.account(org, f"user{number}")
    for thread in threads:
        thread.join()
    for values in seen:
        assert len(values) == 300
        assert values == sorted(values)
    assert registry.versions().principals == 11


def test_versions_are_read_in_less_than_a_millisecond(registry: SqlRegistry) -> None:
    registry.versions()
    spent = []
    for _ in range(200):
        start = time.perf_counter()
        registry.versions()
        spent.append(time.perf_counter() - start)
    assert sorted(spent)[100] < 0.001


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000, "%", "'; DROP TABLE", ""])
def test_a_name_that_cannot_be_is_not_there(registry: SqlRegistry, name: str) -> None:
    """Neither a fault of the database, nor a way around it."""

    def seen(look: Callable[[], object]) -> object:
        try:
            return look()
        except Misuse:
            return "refused"

    assert seen(lambda: registry.rules(name)) in (RoleRules(), "refused")
    assert seen(lambda: registry.epoch(Scope(ScopeKind.ORG, (name,)))) in (0, "refused")
    with pytest.raises((Misuse, NotFound)), registry.write() as tx:
        tx.orgs.create(name)
