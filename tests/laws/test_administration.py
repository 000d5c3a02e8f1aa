"""Laws of administration, and the rule against its 20-line reference."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.administration import (
    KEY_PREFIX,
    ON_ACCOUNTS,
    PUBLISHES,
    RESERVED_ROLES,
    Action,
    AdminReason,
    Resource,
    Role,
    api_key,
    api_key_digest,
    may,
)
from scopekv.core.policy import Document
from scopekv.core.scopes import Audience, Principal

_spec = importlib.util.spec_from_file_location(
    "reference_administration", Path(__file__).parents[1] / "reference" / "administration.py"
)
assert _spec
assert _spec.loader
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

# Names and uids that join alike: org "a" + name "bc" and org "ab" + name "c" (I7).
ORGS = ("a", "ab")
NAMES = ("bc", "c", "A")
uids = st.builds(lambda org: f"org_{org}", st.sampled_from(ORGS))


@st.composite
def principals(draw: st.DrawFn) -> Principal:
    org, name = draw(st.sampled_from(ORGS)), draw(st.sampled_from(NAMES))
    return Principal(
        org=org,
        name=name,
        org_uid=f"org_{org}",
        uid=f"usr_{org}/{name}",
        groups=draw(st.frozensets(st.sampled_from(NAMES), max_size=2)),
        roles=draw(st.frozensets(st.sampled_from([role.value for role in Role]), max_size=3)),
        service=draw(st.booleans()),
    )


audiences = st.one_of(
    st.just("public"),
    st.builds(lambda org: f"org:{org}", st.sampled_from(ORGS)),
    st.builds(
        lambda kind, org, name: f"{kind}:{org}/{name}",
        st.sampled_from(["group", "user"]),
        st.sampled_from(ORGS),
        st.sampled_from(NAMES),
    ),
).map(Audience.parse)
documents = st.builds(Document, uid=st.just("doc_1"), audience=audiences, withdrawn=st.booleans())
resources = st.builds(
    Resource,
    org_uid=st.one_of(st.just(""), uids),
    account=st.one_of(st.none(), principals()),
    role=st.one_of(st.none(), st.sampled_from(Role)),
    audiences=st.lists(audiences, max_size=2).map(tuple),
    document=st.one_of(st.none(), documents),
)
actions = st.sampled_from(Action)
READS = {Action.DOCUMENT_SHOW, Action.DOCUMENT_READ}


@given(principals(), actions, resources)
def test_the_rule_equals_its_reference(who: Principal, action: Action, what: Resource) -> None:
    assert may(who, action, what).allowed == reference.allowed(who, action, what)


def test_the_rule_equals_its_reference_case_by_case() -> None:
    """Every kind of caller, act and resource once: no line of the rule can be left out."""
    me = Principal("a", "me", "org_a", "usr_me")
    colleague, stranger = replace(me, uid="usr_2"), replace(me, org_uid="org_b", uid="usr_3")
    privileged = [replace(colleague, roles=frozenset({role})) for role in sorted(RESERVED_ROLES)]
    accounts = (None, me, replace(me, org_uid="org_b"), colleague, stranger, *privileged)
    lists: tuple[list[str], ...] = (
        [],
        ["public"],
        ["org:a"],
        ["group:a/g"],
        ["user:b/me"],
        ["user:a/me"],
        ["org:a", "public"],
    )
    reaches = [tuple(Audience.parse(text) for text in texts) for texts in lists]
    papers = [None, *(Document("doc_1", reach[0]) for reach in reaches if reach)]
    whos = [
        replace(me, org_uid=home, roles=frozenset(held))
        for home in ("org_a", "")
        for count in range(len(Role) + 1)
        for held in combinations([role.value for role in Role], count)
    ]
    for who, action, org_uid in product(whos, Action, ("", "org_a", "org_b")):
        if action.value.startswith("document."):
            whats = [
                Resource(org_uid, audiences=reach, document=paper)
                for reach, paper in product(reaches, papers)
            ]
        elif action.value.startswith("cached_content."):
            whats = [
                Resource(org_uid, account=account, audiences=reach)
                for account, reach in product(accounts, reaches)
            ]
        else:
            whats = [
                Resource(org_uid, account=account, role=role)
                for account, role in product(accounts, (None, *Role))
            ]
        for what in whats:
            assert may(who, action, what).allowed == reference.allowed(who, action, what), what


@given(principals(), actions, resources)
def test_no_role_reaches_another_organisation(
    who: Principal, action: Action, what: Resource
) -> None:
    """Save an operator's, and reading what one is in the audience of."""
    permission = may(who, action, what)
    if Role.OPERATOR in who.roles or permission.reason is AdminReason.IN_AUDIENCE:
        return
    if what.org_uid != who.org_uid:
        assert not permission.allowed
    if permission.allowed and action.value.startswith("document.") and action not in READS:
        assert all(not a.path or a.path[0] == who.org for a in what.audiences)
    if permission.allowed and action in ON_ACCOUNTS:
        assert what.account
        assert what.account.org_uid == who.org_uid


@given(principals(), principals(), actions)
def test_names_that_join_alike_stay_distinct(
    who: Principal, other: Principal, action: Action
) -> None:
    """I7: whose org and name only join to the same text is somebody else."""
    if Role.OPERATOR in who.roles or who.org == other.org:
        return
    assert not may(who, action, Resource(other.org_uid, account=other)).allowed
    if action in ON_ACCOUNTS:
        assert not may(who, action, Resource(who.org_uid, account=other)).allowed


@given(principals(), actions, resources)
def test_nobody_without_roles_changes_anything(
    who: Principal, action: Action, what: Resource
) -> None:
    bare = Principal(who.org, who.name, who.org_uid, who.uid, who.groups)
    permission = may(bare, action, what)
    assert not permission.allowed or permission.reason is AdminReason.IN_AUDIENCE


@given(principals(), actions, resources)
def test_no_one_but_an_operator_makes_an_operator(
    who: Principal, action: Action, what: Resource
) -> None:
    """Neither by a role, nor by a key for an account that holds one."""
    if Role.OPERATOR in who.roles or not may(who, action, what).allowed:
        return
    if action in (Action.ROLE_GRANT, Action.ROLE_REVOKE):
        assert what.role not in (None, Role.OPERATOR, Role.PUBLIC_PUBLISHER)
    if action in (Action.KEY_CREATE, Action.KEY_ROTATE) and what.account:
        reserved = {Role.OPERATOR.value, Role.PUBLIC_PUBLISHER.value}
        assert what.account.uid == who.uid or not what.account.roles & reserved


@given(principals(), actions, resources)
def test_leaving_a_field_out_never_allows_more(
    who: Principal, action: Action, what: Resource
) -> None:
    """No optional argument is a way round a check."""
    if Role.OPERATOR in who.roles:
        return
    if may(who, action, replace(what, document=None)).allowed:
        assert may(who, action, what).allowed
    if action in ON_ACCOUNTS:
        assert not may(who, action, replace(what, account=None)).allowed
    if action in (Action.ROLE_GRANT, Action.ROLE_REVOKE):
        assert not may(who, action, replace(what, role=None)).allowed
    if action in PUBLISHES:
        assert not may(who, action, replace(what, audiences=())).allowed


@given(principals(), actions, resources)
def test_every_denial_says_why(who: Principal, action: Action, what: Resource) -> None:
    permission = may(who, action, what)
    assert permission.reason.value.startswith("denied_") != permission.allowed


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_distinct_secrets_have_distinct_keys(one: bytes, two: bytes) -> None:
    key = api_key(one)
    assert key.startswith(KEY_PREFIX)
    assert len(key) - len(KEY_PREFIX) >= 32
    assert (key == api_key(two)) == (one == two)
    assert (api_key_digest(key) == api_key_digest(api_key(two))) == (one == two)
