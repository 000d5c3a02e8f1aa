"""Every act and its audit entry come together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scopekv.core.administration import Action
from scopekv.errors import Conflict, Misuse, NotFound, ScopeDenied
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.administration.gate import Gate

if TYPE_CHECKING:
    from tests.unit.gateway.administration.conftest import World


def test_acts_and_their_entries_come_together(world: World) -> None:
    world.service.orgs.create(LOCAL_OPERATOR, "new")
    assert world.last() == ("org.create", "allowed", "operator")
    assert world.entries()[-1].actor.startswith("local ")
    with pytest.raises(Conflict):
        world.service.orgs.create(LOCAL_OPERATOR, "new")
    assert world.last() == ("org.create", "failed", "conflict")
    with pytest.raises(ScopeDenied):
        world.service.orgs.create(world.who("mia"), "other")
    assert world.last() == ("org.create", "denied", "denied_operator_only")
    assert world.entries()[-1].actor.startswith("acme/mia (usr_")
    count = len(world.entries())
    world.service.orgs.list(LOCAL_OPERATOR, after="", limit=9)
    assert len(world.entries()) == count, "an allowed look leaves none"
    world.service.documents.text(LOCAL_OPERATOR, world.publish("d", "public"))
    assert world.last() == ("document.read", "allowed", "operator")


def test_an_act_that_cannot_be_noted_does_not_happen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no room for the entry")

    with monkeypatch.context() as patch:
        patch.setattr("scopekv.adapters.registry.audit.SqlAuditLog.append", fail)
        with pytest.raises(OSError, match="no room"):
            world.service.orgs.create(LOCAL_OPERATOR, "new")
    with pytest.raises(NotFound):
        world.service.orgs.show(LOCAL_OPERATOR, "new")


def test_the_audit_check_tells_a_rewritten_log(world: World) -> None:
    check = world.service.audit.verify(LOCAL_OPERATOR, None)
    assert check.intact
    assert world.service.audit.verify(LOCAL_OPERATOR, check.head).intact
    seq, _, _ = check.head.partition(":")
    assert not world.service.audit.verify(LOCAL_OPERATOR, f"{seq}:{'0' * 64}").intact
    assert not world.service.audit.verify(LOCAL_OPERATOR, f"9999:{'0' * 64}").intact
    for head in ("nonsense", f"{'9' * 5000}:{'0' * 64}"):
        with pytest.raises(Misuse, match="SEQ:DIGEST"):
            world.service.audit.verify(LOCAL_OPERATOR, head)


def test_an_act_that_forgot_to_ask_does_not_happen(world: World) -> None:
    """Fail closed on our own mistake."""
    with pytest.raises(ScopeDenied, match="no permission was checked"):
        with Gate(world.registry).act(LOCAL_OPERATOR, Action.ORG_CREATE, "org:new") as act:
            act.tx.orgs.create("new")
    with pytest.raises(NotFound):
        world.service.orgs.show(LOCAL_OPERATOR, "new")


def test_the_newest_entries_come_first_page_by_page(world: World) -> None:
    audit = world.service.audit
    whole = audit.list(LOCAL_OPERATOR, after=0, limit=1000).data
    found: list[object] = []
    before: int | None = None
    while True:
        page = audit.newest(LOCAL_OPERATOR, before=before, limit=4)
        found += page.data
        if page.next is None:
            break
        before = int(page.next)
    assert found == whole[::-1]
    assert len(found) > 8
