"""Two users of two organisations on a real engine: they share what is public, and nothing else."""

from __future__ import annotations

import pytest
from openai import AsyncOpenAI

from scopekv.gateway.bodies import STRIPPED
from scopekv.simulate.client import PlainClient
from scopekv.simulate.isolation import assert_isolated
from scopekv.simulate.stage import text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
BLOCK = 32
OBJECTS = {"kv_transfer_params", "vllm_xargs", "kv_hints"}
Keys = dict[str, str]


async def test_the_public_document_is_shared_and_what_follows_is_not(
    client: PlainClient, keys: Keys, document: str
) -> None:
    question = text_of("budget", 30)
    detail = [(b"x-scopekv-detail", b"1")]
    answers = [
        await client.chat(keys[name], document, question, headers=detail)
        for name in ("first", "second", "first", "second")
    ]
    segments = answers[0].json["scopekv"]["segments"]
    shared = segments[0]["tokens"] // BLOCK * BLOCK
    assert shared > 3 * BLOCK
    assert [answer.cached for answer in answers[:2]] == [shared, shared]
    assert all(answer.cached > shared for answer in answers[2:])
    assert [row["scope"] for row in segments] == ["document", "user"]
    assert len({answer.text for answer in answers}) == 1, "the answer never changes (L7)"


async def test_i1_nothing_a_client_sends_reaches_another(client: PlainClient, keys: Keys) -> None:
    """Bob says in every field and header what could name Alice; she says the same."""
    fields: dict[str, object] = {name: {"scopekv": "x"} for name in OBJECTS}
    fields |= dict.fromkeys(STRIPPED - OBJECTS - {"priority"}, "alice")
    headers = [
        (b"x-scopekv-user", b"alice"),
        (b"x-scopekv-org", b"acme"),
        (b"x-data-parallel-rank", b"0"),
        (b"x-session-id", b"alice"),
        (b"openai-organization", b"acme"),
    ]
    prompt = text_of("secret plan", 40)

    async def ask(name: str) -> int:
        answer = await client.chat(keys[name], prompt, headers=headers, priority=0, **fields)
        return answer.cached

    await assert_isolated(ask, owner="alice", others=["bob", "ann"])


async def test_end_users_and_sessions_of_a_service_account_are_apart(
    client: PlainClient, keys: Keys
) -> None:
    prompt = text_of("medical record", 40)

    async def ask(user: str) -> int:
        name, _, session = user.partition("/")
        headers = [(b"x-scopekv-session", session.encode())] if session else []
        return (await client.chat(keys["desk"], prompt, user=name, headers=headers)).cached

    await assert_isolated(ask, owner="eve", others=["dan", "eve/one"])
    await assert_isolated(ask, owner="fay/one", others=["fay/two", "fay"])


async def test_system_text_is_shared_within_the_organisation(
    client: PlainClient, keys: Keys
) -> None:
    instructions = text_of("house rules", 60)
    await client.chat(keys["alice"], instructions, text_of("q1", 20))
    within = (await client.chat(keys["ann"], instructions, text_of("q2", 20))).cached
    across = (await client.chat(keys["bob"], instructions, text_of("q3", 20))).cached
    assert within > 3 * BLOCK
    assert across == 0


async def test_plain_completions_share_the_document_too(
    client: PlainClient, keys: Keys, document: str
) -> None:
    prompt = document + "\n\n" + text_of("task", 30)

    async def ask(name: str) -> int:
        return (await client.complete(keys[name], prompt)).cached

    shared = await ask("alice")
    assert shared > 3 * BLOCK
    await assert_isolated(ask, owner="alice", others=["bob"], shared_tokens=shared)


async def test_the_openai_package_streams_and_counts(
    openai: AsyncOpenAI, client: PlainClient, keys: Keys, document: str
) -> None:
    user = openai.with_options(api_key=keys["alice"])
    chunks = await user.chat.completions.create(
        model=client.model,
        messages=[
            {"role": "system", "content": document},
            {"role": "user", "content": text_of("stream", 20)},
        ],
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    last = [chunk async for chunk in chunks][-1]
    assert last.usage is not None
    assert last.usage.prompt_tokens_details is not None
    assert (last.usage.prompt_tokens_details.cached_tokens or 0) > 3 * BLOCK
    assert [model.id async for model in user.models.list()] == [client.model]


async def test_every_sequence_of_one_request_has_its_ticket(
    client: PlainClient, keys: Keys, status: object
) -> None:
    assert callable(status)
    before = (await status())["tickets"]
    answer = await client.chat(keys["alice"], text_of("three", 40), n=3, temperature=1.0)
    after = (await status())["tickets"]
    assert len(answer.json["choices"]) == 3
    assert after["ok"] - before["ok"] == 3
    assert {k: v for k, v in after.items() if k != "ok"} == {
        k: v for k, v in before.items() if k != "ok"
    }
