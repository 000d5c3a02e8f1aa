"""What the matrix expects of each caller, against the policy that the gateway decides by."""

from __future__ import annotations

import itertools

import pytest

from scopekv.audit.endpoint import CHAT, COMPLETIONS, MESSAGES
from scopekv.audit.isolation.asking import audience
from scopekv.audit.isolation.matrix import Batch, Caller, Kind, batches, callers_of, scope_of
from scopekv.audit.isolation.target import IsolationTarget, Member, Place
from scopekv.cli.audit.registrar import members_of
from scopekv.core.policy import Document, PartRole, RoleRules, decide
from scopekv.core.scopes import Audience, Narrowing, Principal, Scope
from scopekv.errors import ConfigError

MEMBERS = members_of("unit")
TARGET = IsolationTarget(
    "http://gateway", "model", MEMBERS, {member.seat: "key" for member in MEMBERS}
)
CALLERS = callers_of(TARGET)


def principal(caller: Caller) -> Principal:
    org, name = caller.seat
    return Principal(org, name, f"uid-{org}", f"uid-{org}-{name}", caller.member.groups)


def decided(kind: Kind, owner: Caller, caller: Caller) -> Scope:
    """The scope that the real policy gives to the caller's copy of the owner's text."""
    document = None
    if kind.document and kind is not Kind.PUBLIC_TAIL:
        document = Document("doc", Audience.parse(audience(kind, owner)))
    return decide(
        principal(caller),
        Narrowing(caller.end_user, caller.session),
        RoleRules(),
        PartRole.SYSTEM if kind is Kind.ORG_TEXT else PartRole.MESSAGES,
        document,
        private_before=False,
    ).scope


@pytest.mark.parametrize("kind", list(Kind))
def test_it_expects_a_hit_where_the_policy_gives_one_scope_and_nowhere_else(kind: Kind) -> None:
    for owner, one, other in itertools.product(CALLERS, repeat=3):
        if kind is Kind.GROUP_DOCUMENT and not owner.member.groups:
            continue
        expected = scope_of(kind, owner, one) == scope_of(kind, owner, other)
        real = decided(kind, owner, one) == decided(kind, owner, other)
        assert expected == real, (kind, str(owner), str(one), str(other))


def test_nobody_who_must_not_hit_could_hit_what_another_of_them_left() -> None:
    for kind, owner in itertools.product(Kind, CALLERS):
        rest = tuple(caller for caller in CALLERS if caller != owner)
        batch = Batch(Place.ENGINE, kind, CHAT, "model", owner, rest)
        scopes = [scope_of(kind, owner, caller) for caller in batch.forbidden()]
        assert len(set(scopes)) == len(scopes)
        assert batch.readers()[-1] == owner
        assert not set(batch.forbidden()) & set(batch.readers())


def test_the_callers_use_the_same_names_in_both_organisations() -> None:
    narrowed = [(c.member.org, c.end_user, c.session) for c in CALLERS if c.end_user]
    home, away = MEMBERS[0].org, MEMBERS[-1].org
    assert {(e, s) for org, e, s in narrowed if org == away} <= {
        (e, s) for org, e, s in narrowed if org == home
    }
    assert len({str(caller) for caller in CALLERS}) == len(CALLERS) == 10


def test_every_kind_owner_and_endpoint_comes_in_every_tier() -> None:
    found = batches(TARGET, (Place.ENGINE, Place.S3), (CHAT, COMPLETIONS, MESSAGES))
    kinds = {(one.place, one.endpoint, one.kind) for one in found}
    private = {Kind.USER, Kind.END_USER, Kind.SESSION}
    assert {
        (place, endpoint, kind)
        for place in (Place.ENGINE, Place.S3)
        for endpoint in (CHAT, COMPLETIONS)
        for kind in private
    } <= kinds
    assert (Place.ENGINE, CHAT, Kind.ORG_TEXT) in kinds
    assert not any(o.endpoint == COMPLETIONS for o in found if o.kind is Kind.ORG_TEXT)
    assert {one.place for one in found if one.endpoint == MESSAGES} == {Place.ENGINE}


def test_it_takes_two_accounts() -> None:
    one = Member("acme", "alice")
    with pytest.raises(ConfigError, match="another caller"):
        IsolationTarget("http://gateway", "model", (one,), {one.seat: "key"})
    with pytest.raises(ConfigError, match="a key of each"):
        IsolationTarget("http://gateway", "model", MEMBERS, {})
