"""Audiences as people write them, names, and what a scope refuses."""

from __future__ import annotations

import pytest

from scopekv.core.scopes import (
    Audience,
    AudienceKind,
    Narrowing,
    Principal,
    Scope,
    ScopeKind,
    check_name,
    private_scope,
)
from scopekv.errors import Misuse

ANN = Principal("acme", "ann", "org_1", "usr_2")


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("public", AudienceKind.PUBLIC, ()),
        ("org:acme", AudienceKind.ORG, ("acme",)),
        ("group:acme/eng", AudienceKind.GROUP, ("acme", "eng")),
        ("user:acme/a.b-c_1", AudienceKind.USER, ("acme", "a.b-c_1")),
    ],
)
def test_an_audience_reads_as_it_is_written(
    text: str, kind: AudienceKind, path: tuple[str, ...]
) -> None:
    audience = Audience.parse(text)
    assert (audience.kind, audience.path, str(audience)) == (kind, path, text)


@pytest.mark.parametrize(
    "text",
    ["", "all", "PUBLIC", "public:acme", "org", "org:", "org:a/b", "group:acme", "group:/x",
     "user:acme/", "user:acme/a/b", "org:acme ", "org:-a", "org:é", "org:a\n", "session:a/b"],
)  # fmt: skip
def test_any_other_audience_is_refused_with_the_four_forms(text: str) -> None:
    with pytest.raises(Misuse, match="public, org:ORG, group:ORG/GROUP, user:ORG/USER"):
        Audience.parse(text)


@pytest.mark.parametrize("name", ["a", "A1", "a" * 64, "0.b_c-d"])
def test_a_name(name: str) -> None:
    assert check_name(name, "user") == name


@pytest.mark.parametrize("name", ["", "a" * 65, ".a", "_a", "a b", "a/b", "a\0", "a\n", "ä"])
def test_no_name(name: str) -> None:
    with pytest.raises(Misuse, match="user"):
        check_name(name, "user")


def test_a_message_never_holds_all_of_a_long_name() -> None:
    with pytest.raises(Misuse) as refusal:
        check_name("secret" * 1000, "user")
    assert len(str(refusal.value)) < 250


def test_the_narrowest_name_wins() -> None:
    assert private_scope(ANN, Narrowing()).kind is ScopeKind.USER
    assert private_scope(ANN, Narrowing(end_user="kim")).kind is ScopeKind.END_USER
    assert private_scope(ANN, Narrowing(session="s")).path == ("org_1", "usr_2", "", "s")
    both = private_scope(ANN, Narrowing("kim", "s"))
    assert both == Scope(ScopeKind.SESSION, ("org_1", "usr_2", "kim", "s"))
    assert both.epoch_owner == Scope(ScopeKind.USER, ("org_1", "usr_2"))


def test_other_scopes_own_their_epoch() -> None:
    for scope in (Scope(ScopeKind.DOCUMENT, ("d",)), Scope(ScopeKind.ORG, ("o",))):
        assert scope.epoch_owner == scope


def test_a_principal_is_known_by_its_uids_alone() -> None:
    secret = b"s" * 32
    renamed = Principal("other", "name", "org_1", "usr_2")
    anew = Principal("acme", "ann", "org_1", "usr_3")
    assert ANN.pseudonym(secret) == renamed.pseudonym(secret) != anew.pseudonym(secret)
    assert len(ANN.pseudonym(secret)) == 16
    user = Scope(ScopeKind.USER, ("org_1", "usr_2"))
    assert bytes(ANN.pseudonym(secret)) != bytes(user.id(secret))  # a purpose of its own
