"""Bearer tokens of an identity provider, through a whole gateway."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from scopekv.compose import ProviderSettings
from scopekv.core.administration import Role
from scopekv.core.identity import ClaimRules, Provision
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.identity import IdentitySettings
from scopekv.gateway.oidc_settings import OidcSettings
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.browser import Browser
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of
from tests.http.identity_provider import AUDIENCE, IdentityProvider, private_key, signed

pytest.importorskip("jwt", reason="needs the oidc extra")
pytestmark = pytest.mark.asyncio(loop_scope="module")
KEYS, ME = "/admin/v1/keys", "/admin/v1/me"
BLOCK = 32
KEY_SECONDS = 1000


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel, provider: IdentityProvider
) -> AsyncIterator[Stage]:
    rules = ClaimRules(
        provider.issuer,
        AUDIENCE,
        organisation_claim="org",
        groups_claim="groups",
        roles_claim="roles",
        roles={"kv-admin": Role.ORG_ADMIN},
        leeway_seconds=0,
        key_seconds=KEY_SECONDS,
    )
    oidc = OidcSettings(ProviderSettings(provider.issuer), IdentitySettings(rules, Provision.USERS))
    settings = GatewaySettings((), port=0, stop_seconds_max=0.5, oidc=oidc)
    async with Stage(tmp_path_factory.mktemp("stage"), model, settings=settings) as made:
        made.deployment.account("acme", "made-by-hand")
        made.deployment.group("acme", "eng")
        yield made


async def me(stage: Stage, token: str) -> Any:
    answer = await stage.client.send("GET", ME, key=token)
    assert answer.status == 200, answer.content
    return answer.json


async def test_every_refused_token_looks_the_same(stage: Stage, provider: IdentityProvider) -> None:
    """Forged, foreign, late, early, of nobody: one answer, that of an unknown key (L10)."""
    now = int(time.time())
    tokens = stage.deployment.administration.accounts
    gone, blocked = provider.token(sub="gone"), provider.token(sub="blocked")
    await me(stage, gone)
    await me(stage, blocked)
    tokens.delete(LOCAL_OPERATOR, "acme", "gone", service=False)
    tokens.set_blocked(LOCAL_OPERATOR, "acme", "blocked", service=False, blocked=True)
    good = provider.token()
    body = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "eve", "org": "acme", "exp": now + 60}
    refused = {
        "unknown key": "sk-scopekv-" + "x" * 43,
        "no token": "no.such.token",
        "none": signed({"alg": "none", "kid": "one"}, body, private_key("rsa")).rsplit(".", 1)[0]
        + ".",
        "hmac": signed({"alg": "HS256", "kid": "one"}, body, private_key("rsa")),
        "forged": signed({"alg": "RS256", "kid": "one"}, body, private_key("rsa", 1)),
        "altered": good[:-8] + "AAAAAAAA",
        "unknown kid": signed({"alg": "RS256", "kid": "new"}, body, private_key("rsa")),
        "issuer": provider.token(iss="https://other"),
        "audience": provider.token(aud="other"),
        "expired": provider.token(exp=now - 1),
        "early": provider.token(nbf=now + 60),
        "without end": provider.token(exp=None),
        "without subject": provider.token(sub=None),
        "no such organisation": provider.token(org="globex"),
        "no organisation": provider.token(org=None),
        "another's name": provider.token(sub="made-by-hand"),
        "gone": gone,
        "blocked": blocked,
    }
    answers = {}
    for what, token in refused.items():
        for path in ("/v1/models", ME):
            answer = await stage.client.send("GET", path, key=token)
            assert answer.status == 401, (what, path)
            assert token not in answer.content.decode()
            names = sorted(name for name, _ in answer.headers)
            answers[what, path] = (answer.content, names)
    assert len(set(map(str, answers.values()))) == 1, answers
    text = stage.deployment.gateway.metrics.text().decode()
    assert 'scopekv_bearer_tokens_refused_total{reason="bad_signature"}' in text
    assert "alice" not in text


async def test_a_membership_the_token_no_longer_has_counts_no_more(
    stage: Stage, provider: IdentityProvider
) -> None:
    document = text_of("handbook", 100)
    stage.deployment.publish("handbook", "group:acme/eng", document)
    inside = {name: provider.token(sub=name, groups=["eng"]) for name in ("alice", "ann")}
    outside = provider.token(sub="ann", groups=["sales"])
    question = iter(range(100))

    async def cached(token: str) -> int:
        return (await stage.client.chat(token, f"{document} q{next(question)}")).cached

    assert await cached(inside["alice"]) == 0
    assert await cached(inside["ann"]) > 3 * BLOCK, "shared by two who signed in"
    assert await cached(outside) == 0
    assert await cached(inside["alice"]) > 3 * BLOCK
    assert await cached(provider.token(sub="alice", groups=None)) == 0
    assert (await me(stage, outside))["groups"] == []
    assert (await me(stage, inside["ann"]))["groups"] == ["eng"]


async def test_nothing_outlives_the_token(
    stage: Stage, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = int(time.time()) + 60
    token = provider.token(exp=ends)
    assert (await stage.client.chat(token, "hi")).status == 200
    monkeypatch.setattr(stage.deployment.gateway.identities, "_clock", lambda: float(ends))
    assert (await stage.client.chat(token, "hi")).status == 401


async def test_a_block_counts_from_the_next_request_on(
    stage: Stage, provider: IdentityProvider
) -> None:
    token = provider.token(sub="ben")
    assert (await stage.client.chat(token, "hi")).status == 200
    accounts = stage.deployment.administration.accounts
    for blocked, status in ((True, 401), (False, 200)):
        accounts.set_blocked(LOCAL_OPERATOR, "acme", "ben", service=False, blocked=blocked)
        assert (await stage.client.chat(token, "hi")).status == status


async def test_a_role_of_the_token_counts_while_it_lasts(
    stage: Stage, provider: IdentityProvider
) -> None:
    send, path = stage.client.send, "/admin/v1/orgs/acme/users"
    admin, plain = provider.token(sub="ada", roles=["kv-admin", "operator"]), provider.token("two")
    assert (await send("GET", path, key=admin)).status == 200
    assert (await me(stage, admin))["roles"] == ["member", "org_admin"]
    assert (await send("GET", path, key=plain)).status == 403
    assert (await send("GET", path, key=provider.token(sub="ada"))).status == 403
    assert (await send("GET", "/metrics", key=admin)).status == 403, "no token makes an operator"
    # What an administrator by token may not do is hand the role on with a key.
    made = await send("POST", KEYS, {"label": "ci"}, key=admin)
    assert (await send("GET", path, key=made.json["secret"])).status == 403


async def test_own_keys_are_made_rotated_and_revoked(
    stage: Stage, provider: IdentityProvider
) -> None:
    send = stage.client.send
    ends = int(time.time()) + 600
    token = provider.token(sub="kim", exp=ends)
    made = await send("POST", KEYS, {"label": "laptop"}, key=token)
    assert (made.status, made.json["key"]["owner"]) == (201, "kim")
    assert made.json["key"]["expires_at"] == ends + KEY_SECONDS, "not for ever"
    late = await send("POST", KEYS, {"expires_at": ends + KEY_SECONDS + 1}, key=token)
    assert (late.status, late.error["code"]) == (400, "invalid_request")
    key = made.json["secret"]
    assert (await stage.client.chat(key, "hi")).status == 200
    second = await send("POST", KEYS, {}, key=key)
    assert second.json["key"]["expires_at"] == ends + KEY_SECONDS, "a key makes none that is longer"
    rotated = await send("POST", f"{KEYS}/{made.json['key']['id']}/rotate", {}, key=key)
    assert (await stage.client.chat(key, "hi")).status == 401
    other = await send("POST", KEYS, {}, key=provider.token(sub="lee"))
    foreign = await send("DELETE", f"{KEYS}/{other.json['key']['id']}", key=token)
    assert foreign.status == 404
    for one in (rotated, second):
        gone = await send("DELETE", f"{KEYS}/{one.json['key']['id']}", key=token)
        assert gone.status == 200
        assert (await stage.client.chat(one.json["secret"], "hi")).status == 401
    assert (await send("GET", KEYS, key=token)).json["data"] == []
    service = stage.deployment.administration.audit
    entries: list[Any] = list(service.list(LOCAL_OPERATOR, after=0, limit=1000).data)
    done = [entry for entry in entries if entry.outcome == "allowed"]
    kims = [entry.action for entry in done if "acme/kim" in entry.actor]
    assert kims == ["key.create", "key.create", "key.rotate", "key.delete", "key.delete"]


async def test_a_provider_that_is_out_of_reach_does_not_stop_known_keys_or_api_keys(
    stage: Stage, provider: IdentityProvider
) -> None:
    await me(stage, provider.token())
    provider.status = 503
    try:
        assert (await me(stage, provider.token()))["name"] == "alice"
        key = stage.deployment.key("acme", "made-by-hand")
        assert (await stage.client.chat(key, "hi")).status == 200
    finally:
        provider.status = 200


async def test_an_administrator_links_a_person_to_an_account(
    stage: Stage, provider: IdentityProvider
) -> None:
    send, path = stage.client.send, "/admin/v1/orgs/acme/users/made-by-hand/identity"
    body = {"issuer": provider.issuer, "subject": "made-by-hand"}
    token = provider.token(sub="made-by-hand")
    assert (await send("GET", ME, key=token)).status == 401
    assert (await send("PUT", path, body, key=provider.token())).status == 403
    admin = provider.token(sub="ada", roles=["kv-admin"])
    assert (await send("PUT", path, body, key=admin)).status == 200
    assert (await me(stage, token))["name"] == "made-by-hand"


async def test_a_token_is_no_key_of_the_console_however_lately_it_was_verified(
    stage: Stage, provider: IdentityProvider
) -> None:
    """The console asks the registry alone, which does not know whether the provider still lists
    the key that signed a token.
    """
    token = provider.token(sub="kate", roles=["kv-admin"])
    await me(stage, token)
    answer = await Browser(stage.deployment.url).log_in(token)
    assert answer.status == 401
    assert b"kate" not in answer.content


async def test_without_a_provider_a_token_is_an_unknown_key(
    tmp_path: Any, model: SimulatedModel, provider: IdentityProvider
) -> None:
    async with Stage(tmp_path, model) as plain:
        plain.deployment.account("acme", "alice")
        assert (await plain.client.send("GET", ME, key=provider.token())).status == 401
