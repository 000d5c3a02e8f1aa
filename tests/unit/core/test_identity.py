"""What the claims of a token say, and every way in which they say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.administration import Role
from scopekv.core.identity import (
    ClaimRules,
    IdentityReason,
    TokenRefused,
    account_name,
    identity_key,
    identity_of,
)
from scopekv.core.scopes import check_name
from scopekv.errors import ConfigError

NOW = 1_800_000_000.0
ISSUER = "https://login.example.com"
RULES = ClaimRules(
    ISSUER,
    "scopekv",
    organisation_claim="org",
    groups_claim="groups",
    roles_claim="/realm_access/roles",
    roles={"kv-admin": Role.ORG_ADMIN},
    leeway_seconds=30,
    key_seconds=100,
)
GOOD: dict[str, Any] = {
    "iss": ISSUER,
    "aud": "scopekv",
    "sub": "248289761001",
    "org": "acme",
    "iat": NOW,
    "exp": NOW + 600,
}


def reason(claims: dict[str, Any], rules: ClaimRules = RULES, now: float = NOW) -> str:
    with pytest.raises(TokenRefused) as refused:
        identity_of(claims, rules, now)
    return str(refused.value.reason)


def test_a_good_token_says_who_calls() -> None:
    claims = GOOD | {"groups": ["eng", "law"], "realm_access": {"roles": ["kv-admin", "operator"]}}
    found = identity_of(claims, RULES, NOW)
    assert (found.org, found.name, found.subject) == ("acme", "248289761001", "248289761001")
    assert found.groups == frozenset({"eng", "law"})
    assert found.roles == {"org_admin"}, "a role that is not listed is none"
    assert (found.not_before, found.ends_at) == (NOW - 30, NOW + 630)
    assert found.keys_end_at == NOW + 700
    several = identity_of(GOOD | {"aud": ["other", "scopekv"]}, RULES, NOW)
    assert several.groups == frozenset()
    assert several.key == found.key


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"iss": ISSUER + "/"}, "other_issuer"),
        ({"iss": [ISSUER]}, "other_issuer"),
        ({"iss": None}, "other_issuer"),
        ({"aud": "scopekv2"}, "other_audience"),
        ({"aud": []}, "other_audience"),
        ({"aud": {"scopekv": 1}}, "other_audience"),
        ({"aud": None}, "other_audience"),
        ({"exp": None}, "bad_claim"),
        ({"exp": True}, "bad_claim"),
        ({"exp": "1900000000"}, "bad_claim"),
        ({"exp": float("inf")}, "bad_claim"),
        ({"exp": float("nan")}, "bad_claim"),
        ({"exp": 10**400}, "bad_claim"),
        ({"exp": -1}, "bad_claim"),
        ({"exp": NOW - 30}, "expired"),
        ({"nbf": NOW + 31}, "not_yet"),
        ({"iat": NOW + 31}, "not_yet"),
        ({"nbf": "now"}, "bad_claim"),
        ({"sub": None}, "bad_claim"),
        ({"sub": ""}, "bad_claim"),
        ({"sub": "a" * 256}, "bad_claim"),
        ({"sub": "al\nice"}, "bad_claim"),
        ({"sub": "ålice"}, "bad_claim"),
        ({"sub": 7}, "bad_claim"),
        ({"org": None}, "bad_claim"),
        ({"org": "a/b"}, "bad_claim"),
        ({"org": ["acme"]}, "bad_claim"),
        ({"org": ""}, "bad_claim"),
        ({"groups": [1]}, "bad_claim"),
        ({"groups": {"eng": 1}}, "bad_claim"),
        ({"groups": ["g"] * 1001}, "bad_claim"),
        ({"realm_access": {"roles": 3}}, "bad_claim"),
    ],
    ids=str,
)
def test_a_claim_that_is_wrong_refuses_the_token(change: dict[str, Any], expected: str) -> None:
    claims = {name: value for name, value in (GOOD | change).items() if value is not None}
    assert reason(claims) == expected


def test_time_is_looked_at_again_later() -> None:
    found = identity_of(GOOD, RULES, NOW)
    found.check_time(NOW + 629)
    for now, expected in ((NOW + 630, "expired"), (NOW - 31, "not_yet")):
        with pytest.raises(TokenRefused) as refused:
            found.check_time(now)
        assert refused.value.reason == expected


def test_a_pointer_finds_what_is_nested_and_nothing_else() -> None:
    realms: tuple[Any, ...] = (None, [], "kv-admin", {"roles": None}, {"role": ["kv-admin"]})
    for realm in realms:
        assert identity_of(GOOD | {"realm_access": realm}, RULES, NOW).roles == frozenset()
    dotted = ClaimRules(ISSUER, "scopekv", organisation_claim="https://acme.example/org")
    found = identity_of(GOOD | {"https://acme.example/org": "globex"}, dotted, NOW)
    assert (found.org, found.groups) == ("globex", None)
    fixed = ClaimRules(ISSUER, "scopekv", organisation="acme")
    assert identity_of(GOOD | {"org": "globex"}, fixed, NOW).org == "acme"


@given(st.text(min_size=1), st.binary(min_size=32, max_size=32))
def test_every_account_name_is_a_name(text: str, key: bytes) -> None:
    assert check_name(account_name(text, key), "user")


def test_names_that_lose_their_signs_stay_apart() -> None:
    keys = [identity_key(ISSUER, subject, "acme") for subject in ("1", "2")]
    first, second = account_name("a@b", keys[0]), account_name("a+b", keys[1])
    assert first.startswith("a-b-")
    assert first != second
    assert account_name("alice", keys[0]) == "alice"


def test_an_identity_is_of_one_issuer_subject_and_organisation() -> None:
    """Fields that join alike included (I7)."""
    keys = {
        identity_key(*parts)
        for parts in (
            (ISSUER, "1", "acme"),
            (ISSUER, "1a", "cme"),
            (ISSUER + "1", "", "acme"),
            (ISSUER, "1", "globex"),
            ("https://other", "1", "acme"),
        )
    }
    assert len(keys) == 5
    pinned = "581e56d5a390785d1e2cd1478725b9e27084a74896402d981b44b97cc38e33e4"
    assert identity_key("https://login.example.com", "1", "acme").hex() == pinned


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"audience": ""}, "audience"),
        ({"organisation": "acme"}, "one of organisation"),
        ({"organisation_claim": ""}, "one of organisation"),
        ({"user_claim": ""}, "user_claim"),
        ({"roles": {"r": Role.OPERATOR}, "roles_claim": "roles"}, "operator"),
        ({"roles": {"r": Role.PUBLIC_PUBLISHER}, "roles_claim": "r"}, "public_publisher"),
        ({"roles_claim": "roles"}, "go together"),
        ({"leeway_seconds": 301}, "leeway_seconds"),
        ({"leeway_seconds": float("nan")}, "leeway_seconds"),
        ({"key_seconds": -1}, "key_seconds"),
        ({"organisation": "a b", "organisation_claim": ""}, "organisation"),
    ],
    ids=str,
)
def test_rules_that_cannot_work_are_refused(change: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"issuer": ISSUER, "audience": "scopekv", "organisation_claim": "org"}
    with pytest.raises(ConfigError, match=named):
        ClaimRules(**(given | change))


def test_reasons_are_words_and_say_nothing_of_the_token() -> None:
    for one in IdentityReason:
        assert str(TokenRefused(one)) == f"bearer token refused: {one.value}"
