"""`/v1/cachedContents` over HTTP: the forms, what it shares, and that it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scopekv.gateway.cached_contents.pace import CHANGES_MAX
from scopekv.simulate.client import Answer
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
PATH = "/v1beta/cachedContents"


async def create(stage: Stage, key: str, text: str, **more: Any) -> Answer:
    body = {"model": f"models/{stage.model.name}", "contents": [{"parts": [{"text": text}]}]}
    return await stage.client.send("POST", PATH, body | more, key=key)


async def cached(stage: Stage, key: str, text: str, question: str, **headers: str) -> int:
    own = [(name.encode(), value.encode()) for name, value in headers.items()]
    return (await stage.client.chat(key, text, question, headers=own)).cached


async def test_its_life_in_geminis_form(stage: Stage, keys: Keys) -> None:
    text = text_of("life", 60)
    made = await create(stage, keys["alice"], text, displayName="manual", ttl="90s")
    assert made.status == 200
    view = made.json
    assert view["name"].startswith("cachedContents/")
    assert view["displayName"] == "manual"
    assert view["usageMetadata"]["totalTokenCount"] > 60
    assert text.encode() not in made.content
    one = f"/v1/{view['name']}"
    assert (await stage.client.send("GET", one, key=keys["alice"])).json == view
    google = [(b"x-goog-api-key", keys["alice"].encode())]
    listed = await stage.client.send("GET", PATH, key=None, headers=google)
    assert view in listed.json["cachedContents"]
    later = await stage.client.send("PATCH", one, {"ttl": "600s"}, key=keys["alice"])
    assert later.json["expireTime"] > view["expireTime"]
    for key in (keys["ann"], keys["bob"]):
        for method, body in (("GET", None), ("PATCH", {"ttl": "9s"}), ("DELETE", None)):
            refused = await stage.client.send(method, one, body, key=key)
            assert refused.status == 404
            assert refused.json["error"]["status"] == "NOT_FOUND"
    assert (await stage.client.send("DELETE", one, key=keys["alice"])).status == 200
    assert (await stage.client.send("GET", one, key=keys["alice"])).status == 404


async def test_pages_of_a_list(stage: Stage, keys: Keys) -> None:
    for number in range(3):
        await create(stage, keys["pat"], text_of(f"page {number}", 9))
    whole = (await stage.client.send("GET", PATH, key=keys["pat"])).json["cachedContents"]
    found, token = [], ""
    while True:
        page = await stage.client.send(
            "GET", f"{PATH}?pageSize=2&pageToken={token}", key=keys["pat"]
        )
        found += page.json["cachedContents"]
        token = page.json.get("nextPageToken", "")
        if not token:
            break
    assert found == whole
    assert len(whole) == 3


async def test_sessions_of_one_account_share_it_until_it_ends(stage: Stage, keys: Keys) -> None:
    """Text in a session's messages is the session's; kept, it is the account's."""
    text = text_of("sessions", 150)

    async def both() -> tuple[int, int]:
        """What the second session, then another user, finds of what the first one sent."""
        counts = []
        for key, session in (("desk", "s1"), ("desk", "s2"), ("ann", "s2")):
            answer = await stage.client.chat(
                keys[key], text + "\n\n" + key, headers=[(b"x-scopekv-session", session.encode())]
            )
            counts.append(answer.cached)
        return counts[1], counts[2]

    assert await both() == (0, 0)
    name = (await create(stage, keys["desk"], text)).json["name"]
    mine, others = await both()
    assert mine > 100
    assert others > 0  # ann's own of the round before, in her own session
    await stage.client.send("PATCH", f"/v1/{name}", {"ttl": "0.05s"}, key=keys["desk"])
    await asyncio.sleep(0.1)
    assert (await stage.client.send("GET", f"/v1/{name}", key=keys["desk"])).status == 404
    headers = [(b"x-scopekv-session", b"s3")]
    ended = await stage.client.chat(keys["desk"], text + "\n\ndesk", headers=headers)
    assert ended.cached == 0


async def test_what_ends_while_no_gateway_runs_is_ended_by_the_next_one(
    stage: Stage, keys: Keys
) -> None:
    made = await create(stage, keys["ann"], text_of("restart", 30), ttl="0.05s")
    uid = made.json["name"].partition("/")[2]
    await asyncio.sleep(0.1)
    await stage.deployment.gateway.ender.end_due()
    with stage.deployment.world.registry.read() as view:
        assert view.documents.get(uid) is None
        entries = view.audit.list(0, 10_000)
    assert any(e.action == "cached_content.expire" and uid in e.resource for e in entries)


async def test_publishers_keep_for_their_organisation(stage: Stage, keys: Keys) -> None:
    refused = await create(stage, keys["alice"], text_of("wide", 20), audience="org")
    assert refused.status == 403
    assert refused.json["error"]["status"] == "PERMISSION_DENIED"
    made = await create(stage, keys["pat"], text_of("wide", 20), audience="org")
    assert made.json["audience"] == "org"


@pytest.mark.parametrize(
    "body",
    [
        {"contents": []},
        {"contents": [{"parts": [{"text": "a"}, {"text": "b"}]}]},
        {"contents": [{"parts": [{"text": ""}]}]},
        {"contents": [{"parts": [{"inlineData": {}}]}]},
        {"tools": []},
        {"ttl": "60"},
        {"ttl": "-5s"},
        {"ttl": "99999999s"},
        {"expireTime": "2020-01-01T00:00:00Z"},
        {"expireTime": "tomorrow"},
        {"ttl": "60s", "expireTime": "2099-01-01T00:00:00Z"},
        {"displayName": "x" * 129},
        {"displayName": "a\0b"},  # which PostgreSQL could not keep
        {"audience": "public"},
        {"model": ""},
    ],
)
async def test_what_is_wrong_is_said(stage: Stage, keys: Keys, body: dict[str, Any]) -> None:
    answer = await create(stage, keys["bob"], "a text", **body)
    assert answer.status == 400
    assert answer.json["error"]["status"] == "INVALID_ARGUMENT"
    assert answer.json["error"]["message"]


async def test_who_changes_them_too_fast_is_told_when_to_come_back(stage: Stage) -> None:
    key = stage.deployment.account("acme", "hasty")
    refused = await stage.client.send("DELETE", f"{PATH}/none", key=key)
    for _ in range(4 * CHANGES_MAX):  # one more is free each second
        if refused.status == 429:
            break
        refused = await stage.client.send("DELETE", f"{PATH}/none", key=key)
    assert refused.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert int(dict(refused.headers)[b"retry-after"]) >= 1


async def test_an_end_user_cannot_be_narrowed_to(stage: Stage, keys: Keys) -> None:
    headers = [(b"x-scopekv-user", b"u-1")]
    body = {"model": stage.model.name, "contents": [{"parts": [{"text": "a"}]}]}
    answer = await stage.client.send("POST", PATH, body, key=keys["desk"], headers=headers)
    assert answer.status == 400
    assert (await stage.client.send("GET", PATH, key=None)).status == 401
    assert (await stage.client.send("POST", f"{PATH}/x", {}, key=keys["desk"])).status == 400
