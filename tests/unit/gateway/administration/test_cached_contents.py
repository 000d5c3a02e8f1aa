"""Cached contents: whose they are, what bounds them, and that they end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scopekv.core.scopes import Scope, ScopeKind
from scopekv.errors import Misuse, NotFound, ScopeDenied, TooLarge
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.administration.cached_contents import Limits, NewContent
from scopekv.gateway.documents import DocumentIndex
from scopekv.ports import CachedContent

if TYPE_CHECKING:
    from tests.unit.gateway.administration.conftest import World

LIMITS = Limits(*(2, 1000, 600), org_count_max=3, org_bytes_max=1500)
TEXT = "the manual of the lantern " * 4
CONTENT = NewContent("m", "manual", TEXT, 30, ttl_seconds=60.0, wide=False)


def made(world: World, who: str = "mia", content: NewContent = CONTENT) -> CachedContent:
    return world.service.cached_contents.create(world.who(who), content, LIMITS)


def test_it_is_its_makers_alone(world: World) -> None:
    own = made(world)
    assert str(own.record.document.audience) == "user:acme/mia"
    uid = own.record.document.uid
    assert world.service.cached_contents.show(world.who("mia"), uid) == own
    service = world.service.cached_contents
    for org, name in (("acme", "pat"), ("acme", "ada"), ("globex", "mia")):
        other = world.who(name, org)
        assert service.list(other) == []
        for act in (
            lambda who=other: service.show(who, uid),
            lambda who=other: service.delete(who, uid),
            lambda who=other: service.extend(who, uid, 60.0, LIMITS),
        ):
            with pytest.raises(NotFound) as found:
                act()
            with pytest.raises(NotFound) as never:
                service.show(other, "doc_none")
            assert str(found.value) == str(never.value).replace("doc_none", uid)


def test_only_who_may_publish_keeps_one_for_the_organisation(world: World) -> None:
    wide = replace(CONTENT, wide=True)
    with pytest.raises(ScopeDenied):
        made(world, "mia", wide)
    assert world.last() == ("cached_content.create", "denied", "denied_no_role")
    assert str(made(world, "pat", wide).record.document.audience) == "org:acme"
    assert world.last() == ("cached_content.create", "allowed", "publisher")


def test_it_ends_and_is_revoked_with_a_receipt(world: World) -> None:
    document = made(world).record.document
    world.now += 59.0
    assert world.service.cached_contents.expire() == 0
    world.now += 1.0
    with pytest.raises(NotFound):
        world.service.cached_contents.show(world.who("mia"), document.uid)
    assert world.service.cached_contents.expire() == 1
    assert world.service.cached_contents.expire() == 0
    assert world.last() == ("cached_content.expire", "allowed", "operator")
    assert list(world.registry.documents()) == []
    assert world.registry.epoch(Scope(ScopeKind.DOCUMENT, (document.uid,))) == 1
    receipts = world.service.receipts.list(LOCAL_OPERATOR, after="", limit=10)
    assert len(receipts.data) == 1


def test_from_its_end_on_no_prompt_matches_it_whatever_the_registry_says(world: World) -> None:
    made(world)
    mia = world.who("mia")
    index = DocumentIndex(world.registry.documents(), clock=lambda: world.now)
    assert len(index.matches(TEXT, mia)) == 1
    assert index.matches(TEXT, world.who("pat")) == []
    world.now += 60.0
    assert index.matches(TEXT, mia) == []


def test_extending_moves_the_end_both_ways_and_within_the_limit(world: World) -> None:
    uid = made(world).record.document.uid
    service, mia = world.service.cached_contents, world.who("mia")
    assert service.extend(mia, uid, 300.0, LIMITS).expires_at == world.now + 300.0
    assert service.extend(mia, uid, 5.0, LIMITS).expires_at == world.now + 5.0
    for wrong in (0.0, -1.0, 601.0, float("inf"), float("nan")):
        with pytest.raises(Misuse, match="600"):
            service.extend(mia, uid, wrong, LIMITS)


def test_one_account_has_a_limit_of_pieces_and_of_bytes(world: World) -> None:
    made(world)
    with pytest.raises(TooLarge, match="1000"):
        made(world, content=replace(CONTENT, text="x" * 900))
    made(world, content=replace(CONTENT, text="other"))
    with pytest.raises(TooLarge, match="limit is 2"):
        made(world, content=replace(CONTENT, text="third"))
    made(world, "pat")


def test_all_accounts_of_an_organisation_have_a_limit_together(world: World) -> None:
    """Each keeps to its own limit, and all gateways would hold all of their texts (L11)."""
    made(world)
    made(world, "pat", replace(CONTENT, text="x" * 900))
    service, ada = world.service.cached_contents, world.who("ada")
    large = replace(CONTENT, text="y" * 900)
    for act in (service.check_room, service.create):
        with pytest.raises(TooLarge, match="bytes_per_org_max = 1500") as refused:
            act(ada, large, LIMITS)
        assert "1004" not in str(refused.value), "what others have is not told (L10)"
    made(world, "ada", replace(CONTENT, text="small"))
    with pytest.raises(TooLarge, match="per_org_max = 3"):
        made(world, "ada", replace(CONTENT, text="tiny"))
    service.create(world.who("mia", "globex"), large, LIMITS)
    uid = service.list(world.who("pat"))[0].record.document.uid
    service.delete(world.who("pat"), uid)
    made(world, "ada", replace(CONTENT, text="tiny"))


def test_deleting_ends_it_now_and_the_account_can_go_with_its_own(world: World) -> None:
    service, mia = world.service.cached_contents, world.who("mia")
    first, second = made(world), made(world, content=replace(CONTENT, text="other"))
    receipt = service.delete(mia, first.record.document.uid)
    assert world.service.receipts.show(mia, receipt).state == "pending"
    assert [one.record.document.uid for one in service.list(mia)] == [second.record.document.uid]
    world.service.accounts.delete(LOCAL_OPERATOR, "acme", "mia", service=False)
    assert list(world.registry.documents()) == []


def test_erasing_an_account_ends_its_own(world: World) -> None:
    made(world)
    revocations = world.service.revocations
    revocations.user(LOCAL_OPERATOR, "acme", "mia")
    assert len(list(world.registry.documents())) == 1  # anew from its next use
    revocations.user(LOCAL_OPERATOR, "acme", "mia", erase=True)
    assert list(world.registry.documents()) == []


def test_what_cannot_be_kept_is_told_before_it_is_read(world: World) -> None:
    """The same refusals as of `create`, and nothing is made."""
    service, mia = world.service.cached_contents, world.who("mia")
    wrongs = {
        TooLarge: replace(CONTENT, text="x" * 1001),
        Misuse: replace(CONTENT, ttl_seconds=601.0),
        ScopeDenied: replace(CONTENT, wide=True),
    }
    for kind, content in wrongs.items():
        for act in (service.check_room, service.create):
            with pytest.raises(kind):
                act(mia, content, LIMITS)
    service.check_room(mia, CONTENT, LIMITS)
    assert service.list(mia) == []
