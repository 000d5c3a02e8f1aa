"""Anthropic's own client on Anthropic's API behind the gateway: breakpoints, usage, streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scopekv.simulate.stage import text_of
from tests.http.providers_stage import CLAUDE

if TYPE_CHECKING:
    from tests.http.providers_stage import ProvidersStage

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOL: Any = {
    "name": "look_up",
    "description": "Finds a word's meaning.",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
}


def controls(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The head of each block that is a breakpoint, and its TTL, in the prompt's order."""
    blocks = [*body.get("tools", []), *body.get("system", [])]
    for message in body["messages"]:
        blocks += message["content"]
    return [
        (str(block.get("text") or block.get("name"))[:12], block["cache_control"]["ttl"])
        for block in blocks
        if "cache_control" in block
    ]


async def test_usage_is_the_providers_to_the_token(providers: ProvidersStage) -> None:
    text, rules = text_of("usage public", 1400), text_of("usage rules", 1200)
    providers.deployment.publish("usage-public", "public", text)
    system = f"{text}\n\n{rules}"
    first = (await providers.message("alice", system, "hi")).usage
    second = (await providers.message("ann", system, "hello")).usage
    other = (await providers.message("bob", system, "hi")).usage
    async with providers.anthropic("alice") as client:
        asked: Any = [{"role": "user", "content": "hi"}]
        counted = await client.messages.count_tokens(model=CLAUDE, system=system, messages=asked)
    written = first.cache_creation_input_tokens
    assert first.cache_read_input_tokens == 0
    assert written > 2600
    assert first.input_tokens + written == counted.input_tokens
    assert second.cache_read_input_tokens == written
    assert second.cache_creation_input_tokens == 0
    assert other.cache_read_input_tokens + other.cache_creation_input_tokens == written
    assert 1400 <= other.cache_read_input_tokens < 1500
    assert other.cache_creation.ephemeral_5m_input_tokens == other.cache_creation_input_tokens


async def test_breakpoints_stand_where_another_scope_begins(providers: ProvidersStage) -> None:
    text = text_of("points", 30)
    providers.deployment.publish("points", "public", text)
    await providers.message("alice", f"{text}\n\nour rules", "hi")
    body = providers.provider.last
    manual, rules = body["system"]
    assert manual["text"] == text
    assert rules["text"].endswith("]\n\n\nour rules")
    assert controls(body) == [(text[:12], "5m"), (rules["text"][:12], "5m")]
    assert body["messages"][0]["content"][0]["text"].endswith("]\nhi")
    await providers.message("alice", "our rules", "hi", tools=[TOOL])
    body = providers.provider.last
    assert controls(body) == [("look_up", "5m"), (body["system"][0]["text"][:12], "5m")]
    assert body["tools"][0]["description"].endswith("]\nFinds a word's meaning.")


async def test_the_clients_breakpoints_stay_and_four_is_the_limit(
    providers: ProvidersStage,
) -> None:
    text = text_of("four", 30)
    providers.deployment.publish("four", "public", text)

    def block(words: str, ttl: str) -> dict[str, Any]:
        return {"type": "text", "text": words, "cache_control": {"type": "ephemeral", "ttl": ttl}}

    system: Any = [{"type": "text", "text": text}, block("rules", "1h")]
    await providers.message("alice", system, [block("a", "5m"), block("b", "5m")])
    body = providers.provider.last
    assert [ttl for _, ttl in controls(body)] == ["1h", "1h", "5m", "5m"]
    assert body["system"][0]["cache_control"]["ttl"] == "1h"  # ours, before an hour of theirs
    await providers.message(
        "alice", system, [block("a", "5m")], cache_control={"type": "ephemeral"}
    )
    assert [ttl for _, ttl in controls(providers.provider.last)] == ["1h", "1h", "5m"]
    full = [block("a", "5m"), block("b", "5m"), block("c", "5m")]
    await providers.message("alice", system, full)
    assert [ttl for _, ttl in controls(providers.provider.last)] == ["1h", "5m", "5m", "5m"]


async def test_an_agent_loop_with_tools_reads_its_own_turns(providers: ProvidersStage) -> None:
    """Ten turns with a tool: 90 % or more of the input is read from the cache."""
    system, turns = text_of("agent rules", 1600), [text_of("agent task", 200)]
    messages: list[Any] = [{"role": "user", "content": turns[0]}]
    read = total = 0
    async with providers.anthropic("alice") as client:
        for _ in range(10):
            answer = await client.messages.create(
                model=CLAUDE,
                max_tokens=50,
                system=system,
                tools=[TOOL],
                tool_choice={"type": "tool", "name": "look_up"},
                messages=messages,
                cache_control={"type": "ephemeral"},
            )
            usage = answer.usage
            cached, fresh = usage.cache_read_input_tokens or 0, usage.input_tokens
            read += cached
            total += cached + fresh + (usage.cache_creation_input_tokens or 0)
            call = answer.content[0]
            assert call.type == "tool_use"
            assert call.input == {"word": "lamp"}
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "a light"}
            messages += [
                {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
                {"role": "user", "content": [result]},
            ]
    assert read / total >= 0.88  # of ten turns the first one writes
    assert read / (total - total / 10) >= 0.9


async def test_a_stream_and_its_usage(providers: ProvidersStage) -> None:
    ask: Any = {
        "model": CLAUDE,
        "max_tokens": 8,
        "cache_control": {"type": "ephemeral"},
        "messages": [{"role": "user", "content": text_of("streamed", 1300)}],
    }
    async with providers.anthropic("alice") as client:
        for expected in (False, True):
            async with client.messages.stream(**ask) as stream:
                words = "".join([text async for text in stream.text_stream])
                last = await stream.get_final_message()
            assert words.split() == ["four", "words", "of", "answer"]
            assert ((last.usage.cache_read_input_tokens or 0) > 1300) == expected
        choice: Any = {"type": "tool", "name": "look_up"}
        async with client.messages.stream(**ask, tools=[TOOL], tool_choice=choice) as stream:
            called = (await stream.get_final_message()).content[0]
    assert called.type == "tool_use"
    assert called.input == {"word": "lamp"}


async def test_a_prompt_is_read_into_the_cache_alone(providers: ProvidersStage) -> None:
    rules = text_of("warm rules", 1400)
    warm = await providers.message("alice", rules, "hi", max_tokens=0)
    assert warm.content == []
    assert warm.usage.cache_creation_input_tokens > 1400
    answer = await providers.message("ann", rules, "hello")
    assert answer.usage.cache_read_input_tokens == warm.usage.cache_creation_input_tokens


async def test_the_time_of_an_entry(providers: ProvidersStage) -> None:
    rules = text_of("timed rules", 1400)
    for passed, found in ((0.0, False), (290.0, True), (290.0, True), (301.0, False)):
        providers.clock.now += passed
        usage = (await providers.message("alice", rules, "hi")).usage
        assert (usage.cache_read_input_tokens > 0) == found


async def test_errors_are_in_anthropics_form(providers: ProvidersStage) -> None:
    import anthropic

    providers.provider.fails = [529]
    with pytest.raises(anthropic.RateLimitError) as busy:
        await providers.message("alice", "x", "hi")
    assert busy.value.response.headers["retry-after"] == "7"
    assert "90 of 100" not in str(busy.value)
    providers.provider.fails = [401]
    with pytest.raises(anthropic.InternalServerError) as refused:
        await providers.message("alice", "x", "hi")
    assert refused.value.status_code == 503
    assert "key-of" not in str(refused.value)
    order: Any = [
        {"type": "text", "text": ttl, "cache_control": {"type": "ephemeral", "ttl": ttl}}
        for ttl in ("5m", "1h")
    ]
    with pytest.raises(anthropic.BadRequestError, match="must not come after"):
        await providers.message("alice", "x", order)
