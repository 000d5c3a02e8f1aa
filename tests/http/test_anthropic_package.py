"""The anthropic package on the gateway: messages, streams, tools, cache_control, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from scopekv.simulate.stage import Stage, text_of
from tests.http.official_clients import anthropic_client

if TYPE_CHECKING:  # importing it takes a second of whoever only collects
    import anthropic

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
TOOL: Any = {
    "name": "look_up",
    "description": "Finds a word's meaning.",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
}


def client(stage: Stage, key: str) -> anthropic.AsyncAnthropic:
    return anthropic_client(stage.deployment.url, key)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice(stage: Stage, keys: Keys) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client(stage, keys["alice"]) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bob(stage: Stage, keys: Keys) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client(stage, keys["bob"]) as made:
        yield made


def cached_system(text: str) -> Any:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]


async def test_usage_excludes_the_cached_tokens_and_counts_them_apart(
    stage: Stage, alice: anthropic.AsyncAnthropic
) -> None:
    ask: dict[str, Any] = {
        "model": stage.model.name,
        "max_tokens": 4,
        "system": cached_system(text_of("anthropic rules", 90)),
        "messages": [{"role": "user", "content": "hi"}],
    }
    first = await alice.messages.create(**ask)
    second = await alice.messages.create(**ask)
    counted = await alice.messages.count_tokens(
        model=ask["model"], system=ask["system"], messages=ask["messages"]
    )
    assert second.content[0].type == "text"
    assert first.usage.cache_read_input_tokens == 0
    assert first.usage.input_tokens == counted.input_tokens
    cached = second.usage.cache_read_input_tokens or 0
    assert cached > 0
    assert cached % 32 == 0
    assert second.usage.input_tokens + cached == counted.input_tokens


async def test_the_same_words_are_the_same_blocks_in_every_api(
    stage: Stage, keys: Keys, alice: anthropic.AsyncAnthropic
) -> None:
    system = text_of("every api", 90)
    first = await stage.client.chat(keys["alice"], system, "hi")
    second = await alice.messages.create(
        model=stage.model.name,
        max_tokens=4,
        system=system,
        messages=[{"role": "user", "content": "hi"}],
    )
    body = {"model": stage.model.name, "instructions": system, "input": "hi"}
    third = await stage.client.send("POST", "/v1/responses", body, key=keys["alice"])
    whole = first.json["usage"]["prompt_tokens"] // 32 * 32
    assert second.usage.cache_read_input_tokens == whole
    assert third.json["usage"]["input_tokens_details"]["cached_tokens"] == whole


async def test_another_organisation_shares_the_document_and_nothing_else(
    stage: Stage, alice: anthropic.AsyncAnthropic, bob: anthropic.AsyncAnthropic
) -> None:
    text = text_of("anthropic handbook", 120)
    document = stage.deployment.publish("anthropic-handbook", "public", text)
    await stage.look()
    ask: dict[str, Any] = {
        "model": stage.model.name,
        "max_tokens": 2,
        "system": [{"type": "text", "text": text}, {"type": "text", "text": text_of("own", 90)}],
        "messages": [{"role": "user", "content": "hi"}],
    }
    mine = await alice.messages.create(**ask)
    again = await alice.messages.create(**ask)
    other = await bob.messages.create(**ask)
    assert document
    shared = mine.usage.cache_read_input_tokens or 0
    assert shared > 0
    assert (again.usage.cache_read_input_tokens or 0) > shared
    assert other.usage.cache_read_input_tokens == shared


async def test_a_stream_tells_the_usage_once_at_its_end(
    stage: Stage, alice: anthropic.AsyncAnthropic
) -> None:
    ask: dict[str, Any] = {
        "model": stage.model.name,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": text_of("anthropic stream", 80)}],
    }
    counted = await alice.messages.count_tokens(model=ask["model"], messages=ask["messages"])
    for expected in (False, True):
        async with alice.messages.stream(**ask, extra_headers={"X-ScopeKV-Detail": "1"}) as stream:
            words = [text async for text in stream.text_stream]
            last = await stream.get_final_message()
        cached = last.usage.cache_read_input_tokens or 0
        assert len(words) == 5
        assert bool(cached) is expected
        assert last.usage.input_tokens + cached == counted.input_tokens


async def test_an_agent_loop_with_tools_keeps_its_prefix(
    stage: Stage, alice: anthropic.AsyncAnthropic
) -> None:
    messages: list[Any] = [{"role": "user", "content": text_of("task", 90)}]
    shares = []
    for turn in range(8):
        answer = await alice.messages.create(
            model=stage.model.name,
            max_tokens=2,
            system=text_of("agent", 90),
            tools=[TOOL],
            messages=messages,
        )
        cached = answer.usage.cache_read_input_tokens or 0
        shares.append((cached, cached + answer.usage.input_tokens))
        use = {"type": "tool_use", "id": f"t{turn}", "name": "look_up", "input": {"word": "cat"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "a pet"}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert sum(c for c, _ in shares[1:]) / sum(n for _, n in shares[1:]) > 0.9


async def test_prewarming_answers_without_words(
    stage: Stage, alice: anthropic.AsyncAnthropic
) -> None:
    ask: dict[str, Any] = {
        "model": stage.model.name,
        "messages": [{"role": "user", "content": text_of("prewarm", 80)}],
    }
    warm = await alice.messages.create(**ask, max_tokens=0)
    used = await alice.messages.create(**ask, max_tokens=2)
    assert warm.content == []
    assert (warm.usage.output_tokens, warm.stop_reason) == (0, "max_tokens")
    assert (used.usage.cache_read_input_tokens or 0) > 0


async def test_metadata_narrows_a_service_accounts_end_users(stage: Stage, keys: Keys) -> None:
    text = text_of("desk", 80)

    async def ask(desk: anthropic.AsyncAnthropic, user: str) -> int:
        answer = await desk.messages.create(
            model=stage.model.name,
            max_tokens=2,
            messages=[{"role": "user", "content": text}],
            metadata={"user_id": user},
        )
        return answer.usage.cache_read_input_tokens or 0

    async with client(stage, keys["desk"]) as desk:
        assert [await ask(desk, who) for who in ("u1", "u2")] == [0, 0]
        assert await ask(desk, "u1") > 0
    call = stage.engine.seen.calls[-1]
    assert "metadata" not in call.body
    assert text not in str(call.body)


async def test_errors_are_the_packages_own(stage: Stage, alice: anthropic.AsyncAnthropic) -> None:
    import anthropic

    hi: list[Any] = [{"role": "user", "content": "hi"}]
    create = alice.messages.create
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await create(model="gpt-9", messages=hi, max_tokens=4)
    told: Any = unknown.value.body
    assert (told["type"], told["error"]["type"]) == ("error", "not_found_error")
    assert told["error"]["message"]
    with pytest.raises(anthropic.AuthenticationError):
        await alice.with_options(api_key="sk-nobody").messages.create(
            model=stage.model.name, messages=hi, max_tokens=4
        )
    part: Any = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    with pytest.raises(anthropic.BadRequestError) as many:
        await create(
            model=stage.model.name,
            max_tokens=4,
            messages=[{"role": "user", "content": [part] * 5}],
        )
    assert "4" in many.value.message


async def test_a_stream_that_breaks_raises_in_the_package(
    stage: Stage, alice: anthropic.AsyncAnthropic
) -> None:
    import anthropic

    stage.engine.behaviour.dies_after_events = 3
    try:
        stream = await alice.messages.create(
            model=stage.model.name,
            max_tokens=5,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
        )
        with pytest.raises(anthropic.APIError):
            async for _ in stream:
                pass
    finally:
        stage.engine.behaviour.dies_after_events = None
