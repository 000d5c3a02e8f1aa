"""What a revocation commits: epochs, keys, receipt, audit entry; and who may."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.core.administration import Role
from scopekv.core.receipts import read_pair
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.errors import Conflict, Misuse, NotFound, ScopeDenied
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.ports import Receipt, ReceiptLine
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Note, ScopeEpoch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.gateway.administration.conftest import World

SECRET = b"s" * 32


class Noted:
    """Scopes with keys, as a gateway notes them."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self._wrapper = FileKeyWrapper(folder / "wrap.key")

    def note(self, *scopes: Scope) -> None:
        epochs = [self.world.registry.epoch(scope) for scope in scopes]
        wanted = [ScopeEpoch(*pair) for pair in zip(scopes, epochs, strict=True)]
        made = scope_keys.note(self.world.registry, self._wrapper, SECRET, wanted, time.time())
        assert set(made) == {Note.KEPT}

    def keys(self) -> int:
        return sum(scope_keys.counts(self.world.registry).values())

    def receipt(self, uid: str) -> Receipt:
        with self.world.registry.read() as view:
            found = view.receipts.get(uid)
        assert found
        return found

    def reaches(self, uid: str, scope: Scope, epoch: int) -> bool:
        pairs = {read_pair(name, SECRET) for name in self.receipt(uid).tags}
        return (scope.id(SECRET), epoch) in pairs


@pytest.fixture
def noted(world: World, tmp_path: Path) -> Noted:
    return Noted(world, tmp_path)


def user_scope(world: World, name: str, kind: ScopeKind = ScopeKind.USER, *more: str) -> Scope:
    who = world.who(name)
    return Scope(kind, (who.org_uid, who.uid, *more))


def document_scope(uid: str) -> Scope:
    return Scope(ScopeKind.DOCUMENT, (uid,))


def test_a_user_goes_with_end_users_and_sessions_and_nobody_else(
    world: World, noted: Noted
) -> None:
    mia = user_scope(world, "mia")
    session = user_scope(world, "mia", ScopeKind.SESSION, "", "s1")
    end_user = user_scope(world, "mia", ScopeKind.END_USER, "e")
    other = user_scope(world, "ada")
    noted.note(mia, session, end_user, other)
    made = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    assert made.keys_destroyed == 3
    assert noted.keys() == 1
    assert made.receipt.state == "pending"
    for scope in (mia, session, end_user):
        assert world.registry.epoch(scope) == 1
        assert noted.reaches(made.receipt.id, scope, 0)
    assert not noted.reaches(made.receipt.id, other, 0)
    assert world.registry.epoch(other) == 0
    assert made.receipt.subject == "user:acme/mia"
    entry = world.entries()[-1]
    assert (entry.action, entry.outcome) == ("scope.revoke", "allowed")
    assert made.receipt.id in entry.resource


def test_a_second_revocation_waits_for_what_the_first_still_does(
    world: World, noted: Noted
) -> None:
    """Else its success would say more than is true: requests may be reading the first epoch."""
    session = user_scope(world, "mia", ScopeKind.SESSION, "", "s1")
    noted.note(session, user_scope(world, "ada"))
    world.service.revocations.user(LOCAL_OPERATOR, "acme", "ada")
    first = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    second = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    for epoch, scope in (
        (0, session),
        (0, user_scope(world, "mia")),
        (1, user_scope(world, "mia")),
    ):
        assert noted.reaches(second.receipt.id, scope, epoch)
    assert not noted.reaches(second.receipt.id, user_scope(world, "ada"), 0)
    with world.registry.write() as transaction:
        for one in (first, second):
            transaction.receipts.update(one.receipt.id, "done", [])
    third = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    assert not noted.reaches(third.receipt.id, session, 0), "that is done"


def test_a_scope_without_a_key_is_purged_too(world: World, noted: Noted) -> None:
    """The root key was out of reach: nothing sealed, but engine memory may hold blocks."""
    made = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    assert made.keys_destroyed == 0
    assert noted.reaches(made.receipt.id, user_scope(world, "mia"), 0)


def test_a_session_takes_its_account_along_and_says_so(world: World, noted: Noted) -> None:
    scope = user_scope(world, "mia", ScopeKind.SESSION, "", "s1")
    noted.note(scope, user_scope(world, "mia"))
    made = world.service.revocations.session(LOCAL_OPERATOR, "acme", "mia", "s1")
    assert made.keys_destroyed == 2
    assert "shares its account's epoch" in made.effect
    assert "s1" not in made.receipt.subject, "a client's words stay out of the registry"
    assert noted.reaches(made.receipt.id, scope, 0)
    for wrong in ("", "x" * 513):
        with pytest.raises(Misuse):
            world.service.revocations.session(LOCAL_OPERATOR, "acme", "mia", wrong)


def test_erasing_a_user_reaches_the_documents_for_it_alone(world: World, noted: Noted) -> None:
    own = world.publish("own", "user:acme/mia")
    shared = world.publish("shared", "org:acme")
    noted.note(document_scope(own), document_scope(shared))
    plain = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia")
    assert not noted.reaches(plain.receipt.id, document_scope(own), 0)
    made = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia", erase=True)
    assert noted.reaches(made.receipt.id, document_scope(own), 0)
    assert made.keys_destroyed == 1
    assert noted.keys() == 1


def test_a_document_stays_published(world: World, noted: Noted) -> None:
    uid = world.publish("handbook", "org:acme")
    noted.note(document_scope(uid))
    made = world.service.revocations.document(LOCAL_OPERATOR, "handbook")
    assert made.keys_destroyed == 1
    shown = world.service.documents.show(LOCAL_OPERATOR, uid)
    assert (shown.document.withdrawn, shown.epoch) == (False, 1)


def test_a_membership_ends_the_groups_documents_alone(world: World, noted: Noted) -> None:
    world.service.groups.set_member(LOCAL_OPERATOR, "acme", "eng", "mia", inside=True)
    inside, outside = world.publish("in", "group:acme/eng"), world.publish("out", "org:acme")
    noted.note(document_scope(inside), document_scope(outside))
    made = world.service.revocations.membership(LOCAL_OPERATOR, "acme", "eng", "mia")
    assert world.who("mia").groups == frozenset()
    assert world.registry.epoch(document_scope(inside)) == 1
    assert world.registry.epoch(document_scope(outside)) == 0
    assert made.keys_destroyed == 1


def test_an_organisation_goes_whole_and_alone(world: World, noted: Noted) -> None:
    org = Scope(ScopeKind.ORG, (world.who("mia").org_uid,))
    own = world.publish("own", "org:acme")
    theirs = world.publish("theirs", "org:globex")
    noted.note(org, user_scope(world, "mia"), document_scope(own), document_scope(theirs))
    made = world.service.revocations.org(LOCAL_OPERATOR, "acme")
    assert made.keys_destroyed == 3
    assert noted.keys() == 1
    assert noted.reaches(made.receipt.id, org, 0)
    assert world.registry.epoch(document_scope(theirs)) == 0


def test_acts_that_take_something_away_leave_a_receipt(world: World, noted: Noted) -> None:
    uid = world.publish("handbook", "group:acme/eng")
    documents, groups = world.service.documents, world.service.groups
    noted.note(document_scope(uid))
    revised = documents.revise(LOCAL_OPERATOR, uid, "new text")
    assert revised.receipt
    assert noted.reaches(revised.receipt, document_scope(uid), 0)
    assert noted.keys() == 0
    assert documents.revise(LOCAL_OPERATOR, uid, "new text").receipt is None, "nothing changed"
    assert documents.set_audience(LOCAL_OPERATOR, uid, "org:acme").receipt
    assert documents.set_audience(LOCAL_OPERATOR, uid, "group:acme/eng").receipt
    assert groups.set_member(LOCAL_OPERATOR, "acme", "eng", "mia", inside=True).receipt is None
    assert groups.set_member(LOCAL_OPERATOR, "acme", "eng", "mia", inside=False).receipt
    assert groups.set_member(LOCAL_OPERATOR, "acme", "eng", "mia", inside=False).receipt is None
    assert documents.withdraw(LOCAL_OPERATOR, uid).receipt
    scope = user_scope(world, "mia")
    noted.note(scope)
    deleted = world.service.accounts.delete(LOCAL_OPERATOR, "acme", "mia", service=False)
    assert deleted.receipt
    assert noted.reaches(deleted.receipt, scope, 0)
    scope = user_scope(world, "ada")
    assert noted.reaches(str(world.service.orgs.delete(LOCAL_OPERATOR, "acme").receipt), scope, 0)


def test_revoking_is_the_administrators_within_the_organisation(world: World) -> None:
    revoke = world.service.revocations
    ada, mia, pat = world.who("ada"), world.who("mia"), world.who("pat")
    assert revoke.user(ada, "acme", "mia").receipt.state == "pending"
    for who in (mia, pat):
        with pytest.raises(ScopeDenied):
            revoke.user(who, "acme", "mia")
        with pytest.raises(ScopeDenied):
            revoke.org(who, "acme")
        with pytest.raises(ScopeDenied):
            revoke.membership(who, "acme", "eng", "mia")
    for name in ("globex", "nowhere"):
        with pytest.raises(NotFound, match="does not exist"):
            revoke.org(ada, name)
    with pytest.raises(NotFound):
        revoke.user(ada, "acme", "nobody")
    with pytest.raises(NotFound):
        revoke.membership(ada, "acme", "nogroup", "mia")
    theirs = world.publish("theirs", "org:globex")
    with pytest.raises(NotFound):
        revoke.document(ada, theirs)
    public = world.publish("public", "public")
    with pytest.raises(ScopeDenied):
        revoke.document(ada, public)
    assert world.last() == ("scope.revoke", "denied", "denied_other_org")


def test_receipts_are_seen_by_whose_they_are(world: World) -> None:
    revoke, receipts = world.service.revocations, world.service.receipts
    ada, mia, pat = world.who("ada"), world.who("mia"), world.who("pat")
    theirs = revoke.user(LOCAL_OPERATOR, "globex", "mia").receipt.id
    ours = [revoke.user(ada, "acme", "mia").receipt.id for _ in range(3)]
    world.service.documents.publish(pat, name="d", audience="org:acme", text="t", org=None)
    made = world.service.documents.withdraw(pat, "d").receipt
    assert made
    assert receipts.show(pat, made).state == "pending", "of one's own act"
    page = receipts.list(ada, after="", limit=3)
    again = receipts.list(ada, after=str(page.next), limit=3)
    listed = [getattr(one, "id", "") for one in (*page.data, *again.data)]
    assert sorted(listed) == sorted([*ours, made])
    everything = receipts.list(LOCAL_OPERATOR, after="", limit=1000).data
    assert theirs in {getattr(one, "id", "") for one in everything}
    for who, uid in ((ada, theirs), (mia, ours[0]), (pat, ours[0]), (ada, "rcp_none")):
        with pytest.raises(NotFound, match="list them to see their ids"):
            receipts.show(who, uid)
    with pytest.raises(ScopeDenied):
        receipts.list(mia, after="", limit=10)
    with pytest.raises(NotFound):
        receipts.list(ada, after=theirs, limit=10)


def test_closing_is_an_operators_and_is_written_down(world: World) -> None:
    receipts = world.service.receipts
    uid = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia").receipt.id
    with world.registry.write() as tx:
        lines = [
            ReceiptLine("a", "engine", "done", 1, "", 1.0),
            ReceiptLine("b", "all", "incomplete", 0, "gone", 1.0),
        ]
        tx.receipts.update(uid, "incomplete", lines)
    shown = receipts.show(LOCAL_OPERATOR, uid)
    assert shown.state == "incomplete"
    assert any("receipts close" in text for text in shown.advice)
    with pytest.raises(ScopeDenied):
        receipts.close(world.who("ada"), uid, "trust me")
    for wrong in ("", " ", "x" * 201):
        with pytest.raises(Misuse):
            receipts.close(LOCAL_OPERATOR, uid, wrong)
    closed = receipts.close(LOCAL_OPERATOR, uid, "b was wiped")
    assert (closed.state, [line.state for line in closed.lines]) == ("closed", ["done", "closed"])
    assert "b was wiped" in world.entries()[-1].resource
    with pytest.raises(Conflict):
        receipts.close(LOCAL_OPERATOR, uid, "again")
    fresh = world.service.revocations.user(LOCAL_OPERATOR, "acme", "mia").receipt.id
    assert receipts.close(LOCAL_OPERATOR, fresh, "no engines any more").state == "closed"


def test_a_failed_act_leaves_neither_epoch_nor_receipt(world: World) -> None:
    world.publish("own", "user:acme/mia")
    before = world.registry.versions()
    with pytest.raises(Conflict):
        world.service.accounts.delete(LOCAL_OPERATOR, "acme", "mia", service=False)
    assert world.registry.versions() == before
    assert world.service.receipts.list(LOCAL_OPERATOR, after="", limit=10).data == []
    assert Role.MEMBER in world.who("mia").roles
