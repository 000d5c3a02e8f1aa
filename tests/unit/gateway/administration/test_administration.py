"""The administration service over a real SQLite registry: rights and silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scopekv.core.scopes import Principal
from scopekv.errors import Conflict, Misuse, NotFound, ScopeDenied, TooLarge
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.administration.views import AccountView

if TYPE_CHECKING:
    from tests.unit.gateway.administration.conftest import World

Attempt = Callable[["World", Principal, str], Any]
ELSEWHERE: dict[str, Attempt] = {
    "org.show": lambda w, p, org: w.service.orgs.show(p, org),
    "account.list": lambda w, p, org: w.service.accounts.list(
        p, org, service=False, after="", limit=9
    ),
    "account.show": lambda w, p, org: w.service.accounts.show(p, org, "mia", service=False),
    "account.create": lambda w, p, org: w.service.accounts.create(p, org, "eve", service=False),
    "account.delete": lambda w, p, org: w.service.accounts.delete(p, org, "mia", service=False),
    "role.grant": lambda w, p, org: w.service.accounts.set_role(
        p, org, "mia", "publisher", held=True
    ),
    "group.create": lambda w, p, org: w.service.groups.create(p, org, "ops"),
    "group.add": lambda w, p, org: w.service.groups.set_member(p, org, "eng", "mia", inside=True),
    "group.delete": lambda w, p, org: w.service.groups.delete(p, org, "eng"),
    "key.create": lambda w, p, org: w.service.keys.create(p, org, "mia", label="", expires_at=None),
    "key.list": lambda w, p, org: w.service.keys.list(p, org, owner="mia", after="", limit=9),
    "rules.show": lambda w, p, org: w.service.rules.show(p, org),
    "rules.set": lambda w, p, org: w.service.rules.set(
        p, org, tools="user", system=None, messages=None
    ),
    "epoch.bump": lambda w, p, org: w.service.epochs.bump(p, f"user:{org}/mia"),
    "publish": lambda w, p, org: w.service.documents.publish(
        p, name="d", audience=f"group:{org}/eng", text="x", org=None
    ),
}


@pytest.mark.parametrize("act", ELSEWHERE)
@pytest.mark.parametrize("caller", ["ada", "pat", "mia"])
def test_another_organisation_looks_like_none(world: World, act: str, caller: str) -> None:
    """L10, I8: the same error, but for the name, whether the organisation exists or not."""
    said = []
    for org in ("globex", "nobody"):
        with pytest.raises((NotFound, ScopeDenied)) as caught:
            ELSEWHERE[act](world, world.who(caller), org)
        said.append((type(caught.value), str(caught.value).replace(org, "ORG")))
        assert world.last()[1] == "denied"
    assert said[0] == said[1]


@pytest.mark.parametrize("act", [act for act in ELSEWHERE if act != "publish"])
def test_the_same_acts_work_at_home(world: World, act: str) -> None:
    """I3: each negative above is paired with a positive."""
    ELSEWHERE[act](world, world.who("ada"), "acme")


@pytest.mark.parametrize(
    "act", [act for act in ELSEWHERE if act not in ("org.show", "rules.show", "key.list")]
)
def test_a_member_changes_nothing_at_home(world: World, act: str) -> None:
    before = world.registry.versions()
    with pytest.raises(ScopeDenied):
        ELSEWHERE[act](world, world.who("mia"), "acme")
    assert world.registry.versions() == before
    assert world.last()[1] == "denied"


def test_documents_and_keys_elsewhere_look_like_none(world: World) -> None:
    document = world.publish("secret", "org:globex")
    key = world.key("mia", "globex").key.id
    ada = world.who("ada")
    service = world.service
    attempts: tuple[Callable[[str], object], ...] = (
        lambda uid: service.documents.show(ada, uid),
        lambda uid: service.documents.text(ada, uid),
        lambda uid: service.documents.revise(ada, uid, "mine"),
        lambda uid: service.documents.withdraw(ada, uid),
        lambda uid: service.epochs.bump(ada, f"document:{uid}"),
        lambda uid: service.keys.rotate(ada, uid, overlap_seconds=0),
        lambda uid: service.keys.delete(ada, uid),
    )
    for attempt in attempts:
        said = set()
        for uid in (document, key, "doc_" + "0" * 32):
            with pytest.raises(NotFound) as caught:
                attempt(uid)
            said.add(str(caught.value).replace(uid, "ID"))
        assert len(said) == 1


def test_a_member_sees_the_documents_it_may_read(world: World) -> None:
    world.service.groups.set_member(LOCAL_OPERATOR, "acme", "eng", "mia", inside=True)
    seen = {world.publish("a", "public"), world.publish("b", "org:acme")}
    seen |= {world.publish("c", "group:acme/eng"), world.publish("d", "user:acme/mia")}
    world.publish("e", "org:globex")
    hidden = world.publish("f", "user:acme/ada")
    mia = world.who("mia")
    page = world.service.documents.list(mia, after="", limit=100, withdrawn=False)
    assert {item["id"] for item in msgspec.to_builtins(page)["data"]} == seen
    assert world.service.documents.text(mia, "c").text == "text"
    with pytest.raises(NotFound):
        world.service.documents.show(mia, hidden)
    # The publisher sees that it exists, and not what it says.
    assert world.service.documents.show(world.who("pat"), hidden).document.name == "f"
    with pytest.raises(ScopeDenied):
        world.service.documents.text(world.who("pat"), hidden)


def test_pages_of_documents_meet(world: World) -> None:
    ids = [world.publish(f"d{number}", "public") for number in range(5)]
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = world.service.documents.list(LOCAL_OPERATOR, after=after, limit=2, withdrawn=False)
        seen += [item["id"] for item in msgspec.to_builtins(page)["data"]]
        after = page.next
    assert seen == ids


def test_publishing_needs_the_right_to_every_audience(world: World) -> None:
    pat, service = world.who("pat"), world.service
    mine = service.documents.publish(pat, name="handbook", audience="org:acme", text="x", org=None)
    assert mine.org == "acme"
    for audience in ("public", "org:globex", "user:globex/mia"):
        with pytest.raises(ScopeDenied):
            service.documents.publish(pat, name="d", audience=audience, text="x", org=None)
        with pytest.raises(ScopeDenied):
            service.documents.set_audience(pat, mine.id, audience)
    with pytest.raises(NotFound):
        service.documents.publish(pat, name="d", audience="org:acme", text="x", org="globex")
    service.accounts.set_role(LOCAL_OPERATOR, "acme", "pat", "public_publisher", held=True)
    assert service.documents.set_audience(pat, mine.id, "public").audience == "public"
    service.accounts.set_role(LOCAL_OPERATOR, "acme", "pat", "public_publisher", held=False)
    changes: tuple[Callable[[], object], ...] = (
        lambda: service.documents.revise(pat, mine.id, "y"),
        lambda: service.documents.set_audience(pat, mine.id, "org:acme"),
        lambda: service.documents.withdraw(pat, mine.id),
    )
    for change in changes:
        with pytest.raises(ScopeDenied, match="public_publisher"):
            change()


def test_an_org_admin_makes_no_operator_and_takes_none_over(world: World) -> None:
    ada, service = world.who("ada"), world.service
    for role in ("operator", "public_publisher"):
        with pytest.raises(ScopeDenied):
            service.accounts.set_role(ada, "acme", "ada", role, held=True)
    roots_key = world.key("root").key.id
    for attempt in (
        lambda: service.keys.create(ada, "acme", "root", label="", expires_at=None),
        lambda: service.keys.rotate(ada, roots_key, overlap_seconds=0),
        lambda: service.accounts.set_blocked(ada, "acme", "root", service=False, blocked=True),
        lambda: service.accounts.delete(ada, "acme", "root", service=False),
        lambda: service.orgs.set_blocked(ada, "acme", True),
        lambda: service.orgs.delete(ada, "acme"),
        lambda: service.orgs.create(ada, "new"),
        lambda: service.audit.list(ada, after=0, limit=1),
    ):
        with pytest.raises(ScopeDenied):
            attempt()
    service.orgs.create(world.who("root"), "new")


def test_a_right_does_not_outlive_its_removal(world: World) -> None:
    """I14: the caller was authenticated before the role went, the group left, the block came."""
    ada, pat = world.who("ada"), world.who("pat")
    service = world.service
    service.accounts.set_role(LOCAL_OPERATOR, "acme", "ada", "org_admin", held=False)
    with pytest.raises(ScopeDenied):
        service.accounts.create(ada, "acme", "eve", service=False)
    service.accounts.set_blocked(LOCAL_OPERATOR, "acme", "pat", service=False, blocked=True)
    with pytest.raises(ScopeDenied, match="blocked or deleted"):
        service.documents.publish(pat, name="d", audience="org:acme", text="x", org=None)
    root = world.who("root")
    service.accounts.delete(LOCAL_OPERATOR, "acme", "root", service=False)
    service.accounts.create(LOCAL_OPERATOR, "acme", "root", service=False)
    with pytest.raises(ScopeDenied, match="blocked or deleted"):
        service.orgs.list(root, after="", limit=9)
    assert world.last() == ("org.show", "denied", "denied_principal_gone")
    service.orgs.set_blocked(LOCAL_OPERATOR, "globex", True)
    for name in ("root", "mia"):
        with pytest.raises(ScopeDenied, match="blocked or deleted"):
            service.documents.list(world.who(name, "globex"), after="", limit=9, withdrawn=False)


def test_a_bare_name_that_fits_several_asks_for_an_id(world: World) -> None:
    one, other = world.publish("handbook", "org:acme"), world.publish("handbook", "org:globex")
    with pytest.raises(Conflict) as caught:
        world.service.documents.show(LOCAL_OPERATOR, "handbook")
    assert one in str(caught.value)
    assert other in str(caught.value)
    assert world.service.documents.show(LOCAL_OPERATOR, "acme/handbook").document.id == one
    assert world.service.documents.show(world.who("mia"), "handbook").document.id == one


def test_limits_are_stated(world: World) -> None:
    with pytest.raises(TooLarge, match="4194304"):
        world.publish("d", "public", "x" * (4 * 1024 * 1024 + 1))
    with pytest.raises(Misuse, match="at least one character"):
        world.publish("d", "public", "")
    with pytest.raises(Misuse, match=r"group:ORG/GROUP"):
        world.publish("d", "everybody")


def test_rules_change_one_at_a_time(world: World) -> None:
    ada = world.who("ada")
    changed = world.service.rules.set(ada, "acme", tools=None, system="user", messages=None)
    assert (changed.tools, changed.system, changed.messages) == ("org", "user", "user")
    assert world.service.rules.show(world.who("mia"), "acme") == changed
    with pytest.raises(Misuse, match="`org` or `user`"):
        world.service.rules.set(ada, "acme", tools="public", system=None, messages=None)


def test_me_is_the_registrys_word(world: World) -> None:
    me = world.service.accounts.me(world.who("pat"))
    assert isinstance(me, AccountView)
    assert me.roles == ["member", "publisher"]
    assert world.service.accounts.me(LOCAL_OPERATOR).name == "local"
