"""Who may call at all: every way a credential can be wrong is a refusal, at the next request."""

from __future__ import annotations

import time

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.client import CHAT
from scopekv.simulate.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
BODY = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "hi"}]}


async def status(stage: Stage, key: str) -> int:
    answer = await stage.client.chat(key, "hi")
    if answer.status != 200:
        assert answer.status == 401
        assert answer.error["code"] == "invalid_api_key"
        assert answer.error["type"] == "authentication_error"
        assert key not in answer.content.decode()
    return answer.status


@pytest.mark.parametrize(
    "value", [b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"sk-scopekv-x", b"Bearer \xff\xfe", b"\t"]
)
async def test_odd_credentials_are_refused(stage: Stage, value: bytes) -> None:
    headers = [(b"authorization", value)]
    answer = await stage.client.send("POST", CHAT, BODY, key=None, headers=headers)
    assert answer.status == 401
    assert answer.error["message"]


async def test_no_credential_says_how_to_get_one(stage: Stage) -> None:
    answer = await stage.client.send("POST", CHAT, BODY, key=None)
    assert answer.status == 401
    assert "Authorization: Bearer" in answer.error["message"]


async def test_two_authorization_headers_are_refused_even_if_equal(
    stage: Stage, keys: Keys
) -> None:
    for other in (keys["bob"], keys["alice"]):
        second = [(b"authorization", b"Bearer " + other.encode())]
        answer = await stage.client.send("POST", CHAT, BODY, key=keys["alice"], headers=second)
        assert answer.status == 401
        assert "two" in answer.error["message"]


async def test_unknown_blocked_and_deleted_keys(stage: Stage, keys: Keys) -> None:
    service = stage.deployment.administration.keys
    made = service.create(LOCAL_OPERATOR, "acme", "alice", label="", expires_at=None)
    assert await status(stage, made.secret) == 200
    assert await status(stage, made.secret + "x") == 401
    assert await status(stage, made.secret[:-1]) == 401
    service.set_blocked(LOCAL_OPERATOR, made.key.id, True)
    assert await status(stage, made.secret) == 401
    service.set_blocked(LOCAL_OPERATOR, made.key.id, False)
    assert await status(stage, made.secret) == 200
    service.delete(LOCAL_OPERATOR, made.key.id)
    assert await status(stage, made.secret) == 401
    assert await status(stage, keys["alice"]) == 200, "her other key goes on"


async def test_a_key_expires_while_it_is_remembered(
    stage: Stage, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = int(time.time()) + 60
    key = stage.deployment.key("acme", "alice", expires_at=soon)
    assert await status(stage, key) == 200
    monkeypatch.setattr(time, "time", lambda: float(soon))
    assert await status(stage, key) == 401


async def test_blocked_and_deleted_users_and_organisations(stage: Stage) -> None:
    administration = stage.deployment.administration
    key = stage.deployment.account("initech", "peter")
    accounts, orgs = administration.accounts, administration.orgs
    for block in (
        lambda on: accounts.set_blocked(
            LOCAL_OPERATOR, "initech", "peter", service=False, blocked=on
        ),
        lambda on: orgs.set_blocked(LOCAL_OPERATOR, "initech", on),
    ):
        assert await status(stage, key) == 200
        block(True)
        assert await status(stage, key) == 401
        block(False)
    assert await status(stage, key) == 200
    accounts.delete(LOCAL_OPERATOR, "initech", "peter", service=False)
    assert await status(stage, key) == 401
    again = stage.deployment.account("initech", "peter")
    assert await status(stage, key) == 401, "a new user of the old name does not revive its key"
    assert await status(stage, again) == 200


async def test_models_need_a_key_and_health_does_not(stage: Stage, keys: Keys) -> None:
    assert (await stage.client.send("GET", "/v1/models", key=None)).status == 401
    models = await stage.client.send("GET", "/v1/models", key=keys["bob"])
    assert [one["id"] for one in models.json["data"]] == [BODY["model"]]
    assert (await stage.client.send("GET", "/healthz", key=None)).status == 200
    ready = await stage.client.send("GET", "/readyz", key=None)
    assert (ready.status, ready.json["status"]) == (200, "ready")


async def test_metrics_are_the_operators_and_name_nobody(stage: Stage, keys: Keys) -> None:
    await stage.client.chat(keys["alice"], "hi", user="eve")
    for key, expected in ((None, 401), (keys["alice"], 403), (keys["pat"], 403)):
        answer = await stage.client.send("GET", "/metrics", key=key)
        assert answer.status == expected
        assert answer.error["message"]
    answer = await stage.client.send("GET", "/metrics", key=keys["root"])
    text = answer.content.decode()
    assert answer.status == 200
    assert 'scopekv_requests_total{endpoint="/v1/chat/completions",status="200"}' in text
    assert "scopekv_input_tokens_total" in text
    for name in ("acme", "alice", "eve", "globex", "sk-scopekv", "hi"):
        assert f'"{name}' not in text


async def test_administration_over_http_is_by_role(stage: Stage, keys: Keys) -> None:
    send = stage.client.send
    me = await send("GET", "/admin/v1/me", key=keys["pat"])
    assert (me.json["org"], me.json["name"]) == ("acme", "pat")
    assert (await send("GET", "/admin/v1/me", key=None)).status == 401
    assert (await send("POST", "/admin/v1/orgs", {"name": "new"}, key=keys["pat"])).status == 403
    assert (await send("POST", "/admin/v1/orgs", {"name": "new"}, key=keys["root"])).status == 201
    document = {"name": "note", "audience": "org:acme", "text": "of ours"}
    assert (await send("POST", "/admin/v1/documents", document, key=keys["pat"])).status == 201
    for audience in ("public", "org:globex", "group:globex/eng", "user:globex/bob"):
        theirs = document | {"name": "other", "audience": audience}
        answer = await send("POST", "/admin/v1/documents", theirs, key=keys["pat"])
        assert answer.status in (403, 404), audience
        assert answer.error["message"]
    answer = await send("POST", "/admin/v1/documents", document, key=keys["alice"])
    assert (answer.status, answer.error["code"]) == (403, "permission_denied")
    for ref in ("nothing", "acme%2Fnote", "globex%2Fnote"):
        answer = await send("GET", f"/admin/v1/documents/{ref}/text", key=keys["bob"])
        assert answer.status in (403, 404), ref
    answer = await send("GET", "/admin/v1/documents/nothing", key=keys["pat"])
    assert (answer.status, answer.error["code"]) == (404, "not_found")
