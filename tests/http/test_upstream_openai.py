"""OpenAI's own client on OpenAI's API behind the gateway: usage, streams, tools, refusals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from scopekv.simulate.stage import text_of
from tests.http.providers_stage import CLAUDE, GPT, GPT_NEW, OWN, SHARED

if TYPE_CHECKING:
    from tests.http.providers_stage import ProvidersStage

pytestmark = pytest.mark.asyncio(loop_scope="module")
FUNCTION: Any = {
    "name": "look_up",
    "description": "Finds a word's meaning.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_usage_is_the_providers_in_steps_of_128(providers: ProvidersStage) -> None:
    messages = [user(text_of("steps", 1300))]
    first = (await providers.chat("alice", messages)).usage
    second = (await providers.chat("alice", messages)).usage
    assert first.prompt_tokens_details.cached_tokens == 0
    assert second.prompt_tokens == first.prompt_tokens
    assert second.prompt_tokens_details.cached_tokens == first.prompt_tokens // 128 * 128
    short = [user(text_of("short", 900))]
    for _ in range(2):
        assert (await providers.chat("alice", short)).usage.prompt_tokens_details.cached_tokens == 0


async def test_breakpoints_stand_where_another_scope_begins(providers: ProvidersStage) -> None:
    """GPT-5.6 finds a stable head again at a breakpoint alone."""
    text = text_of("breakpoints", 20)
    providers.deployment.publish("breakpoints", "public", text)
    own = {"type": "text", "text": "b", "prompt_cache_breakpoint": {"mode": "explicit"}}
    messages = [{"role": "system", "content": f"{text}\n\nrules"}, user("a")]
    answer = await providers.chat("alice", messages, model=GPT_NEW)
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 0  # too short
    manual, rules = providers.provider.last["messages"][0]["content"]
    assert manual["text"] == text
    assert "prompt_cache_breakpoint" in manual
    assert "prompt_cache_breakpoint" in rules
    (asked,) = providers.provider.last["messages"][1]["content"]
    assert asked.keys() == {"type", "text"}
    for count, ours in ((1, 2), (2, 1), (3, 0), (4, 0)):
        messages[1] = {"role": "user", "content": [own] * count}
        await providers.chat("alice", messages, model=GPT_NEW)
        system, last = (m["content"] for m in providers.provider.last["messages"])
        assert sum("prompt_cache_breakpoint" in part for part in system) == ours
        assert sum("prompt_cache_breakpoint" in part for part in last) == count


async def test_streams_tell_the_usage_to_who_asked(providers: ProvidersStage) -> None:
    messages: Any = [user(text_of("streamed chat", 1300))]
    await providers.chat("alice", messages)
    async with providers.openai("alice") as client:
        for asked in (True, False):
            options: Any = {"stream_options": {"include_usage": True}} if asked else {}
            stream = await client.chat.completions.create(
                model=GPT, messages=messages, stream=True, **options
            )
            chunks = [chunk async for chunk in stream]
            words = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert words.split() == ["four", "words", "of", "answer"]
            usages = [chunk.usage for chunk in chunks if chunk.usage]
            assert len(usages) == asked
            assert all(one.prompt_tokens_details.cached_tokens >= 1280 for one in usages)


async def test_tools_whole_and_streamed(providers: ProvidersStage) -> None:
    tools: Any = [{"type": "function", "function": FUNCTION}]
    ask: Any = {"tools": tools, "tool_choice": "required"}
    answer = await providers.chat("alice", [user("what is a lamp?")], **ask)
    call = answer.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("look_up", '{"word": "lamp"}')
    sent = providers.provider.last["tools"][0]["function"]
    assert sent["description"].endswith("]\nFinds a word's meaning.")
    result = {"role": "tool", "tool_call_id": call.id, "content": "a light"}
    turn = answer.choices[0].message.model_dump(exclude_none=True)
    whole = await providers.chat("alice", [user("what is a lamp?"), turn, result], tools=tools)
    assert whole.choices[0].message.content == "four words of answer"
    assert providers.provider.last["messages"][2]["content"] == "a light"
    async with providers.openai("alice") as client:
        messages: Any = [user("hi")]
        stream = await client.chat.completions.create(
            model=GPT, messages=messages, stream=True, **ask
        )
        deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    called = [call for delta in deltas for call in delta.tool_calls or ()]
    assert called[0].function is not None
    assert called[0].function.arguments == '{"word": "lamp"}'


async def test_responses_whole_streamed_and_with_a_tool(providers: ProvidersStage) -> None:
    ask: Any = {"model": GPT, "instructions": text_of("instructions", 1300), "input": "hi"}
    async with providers.openai("alice") as client:
        first = await client.responses.create(**ask)
        assert first.usage is not None
        assert first.usage.input_tokens_details.cached_tokens == 0
        second = await client.responses.create(**ask)
        assert second.usage is not None
        assert second.usage.input_tokens_details.cached_tokens >= 1280
        assert second.output_text == "four words of answer"
        async with client.responses.stream(**ask) as stream:
            kinds = [event.type async for event in stream]
            last = await stream.get_final_response()
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert last.usage is not None
        assert last.usage.input_tokens_details.cached_tokens >= 1280
        tools: Any = [{"type": "function", "strict": False} | FUNCTION]
        called = await client.responses.create(**ask, tools=tools, tool_choice="required")
        assert called.output[0].type == "function_call"
        items: Any = [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "a light"},
        ]
        await client.responses.create(model=GPT, input=items, tools=tools)
    sent = providers.provider.last
    assert sent["store"] is False
    assert sent["input"][0]["content"][0]["text"].endswith("]\nhi")
    assert sent["input"][1:] == items[1:]


async def test_the_credential_is_the_organisations(providers: ProvidersStage) -> None:
    await providers.chat("alice", [user("hi")])
    assert providers.provider.seen[-1][0].header(b"authorization") == f"Bearer {SHARED}".encode()
    await providers.chat("ian", [user("hi")])
    assert providers.provider.seen[-1][0].header(b"authorization") == f"Bearer {OWN}".encode()


async def test_what_a_client_claims_or_names_does_not_reach_the_provider(
    providers: ProvidersStage,
) -> None:
    headers = {"OpenAI-Organization": "org-of-others", "OpenAI-Project": "p", "Cookie": "c=1"}
    headers |= {"Idempotency-Key": "guessed", "X-Forwarded-For": "10.0.0.1", "X-Own": "1"}
    await providers.chat(
        "desk",
        [user("hi")],
        user="u-1",
        safety_identifier="u-1",
        metadata={"who": "u-1"},
        prompt_cache_key="mine",
        extra_headers=headers,
    )
    request, body = providers.provider.seen[-1]
    assert not {name for name, _ in request.headers} & {
        *(b"openai-organization", b"openai-project", b"cookie"),
        *(b"idempotency-key", b"x-forwarded-for", b"x-own"),
    }
    assert providers.keys["desk"].encode() not in b" ".join(v for _, v in request.headers)
    assert not {"user", "safety_identifier", "metadata"} & body.keys()
    assert body["store"] is False
    assert body["prompt_cache_key"] != "mine"
    assert len(body["prompt_cache_key"]) == 32


async def test_what_describes_an_answer_is_marked_without_a_schema_too(
    providers: ProvidersStage,
) -> None:
    form = {"name": "s", "description": "an organisation's words"}
    json_schema = {"type": "json_schema", "json_schema": form}
    await providers.chat("alice", [user("hi")], response_format=json_schema)
    sent = providers.provider.last["response_format"]["json_schema"]
    assert sent["description"].startswith("[s:")
    assert "schema" not in sent


@pytest.mark.parametrize(
    "more",
    [
        {"store": True},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        {"tools": [{"type": "mcp", "server_label": "x"}]},
        {"functions": [FUNCTION]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"id": "msg_1"}]},
        {"input": [{"type": None, "id": "msg_1"}]},
        {"input": [{"type": "message", "id": "msg_1", "role": "assistant"}]},
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {"input": "hi", "prompt": {"id": "pmpt_1"}},
        {"input": "hi", "previous_response_id": "resp_1"},
        {"prompt_cache_key": {"not": "a string"}},
    ],
)
async def test_what_names_something_at_the_provider_is_refused(
    providers: ProvidersStage, more: dict[str, Any]
) -> None:
    count = len(providers.provider.seen)
    plain = providers.plain()
    body = {"model": GPT, "messages": [user("hi")]} | more
    path = "/v1/responses" if "input" in more else "/v1/chat/completions"
    answer = await plain.send("POST", path, body, key=providers.keys["alice"])
    await plain.close()
    assert answer.status == 400
    assert len(providers.provider.seen) == count


async def test_nothing_of_the_workspace_is_told(
    providers: ProvidersStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Rate limits count all customers; a key is ours; both stay here (L10)."""
    import openai

    caplog.set_level(logging.DEBUG, logger="scopekv")
    async with providers.openai("alice") as client:
        messages: Any = [user("a secret question")]
        raw = await client.chat.completions.with_raw_response.create(model=GPT, messages=messages)
        assert not [name for name in raw.headers if "ratelimit" in name or "organization" in name]
        for status, expected in ((429, 429), (401, 503), (403, 503), (500, 503), (400, 400)):
            providers.provider.fails = [status]
            with pytest.raises(openai.APIStatusError) as failed:
                await client.chat.completions.create(model=GPT, messages=messages)
            assert failed.value.status_code == expected
            told = failed.value.response.text + str(dict(failed.value.response.headers))
            assert SHARED not in told
            assert "ratelimit" not in told
            assert expected == 400 or "90 of 100" not in told
    logged = caplog.text
    assert SHARED not in logged
    assert "secret question" not in logged


async def test_models_are_those_with_a_credential_and_each_has_its_api(
    providers: ProvidersStage,
) -> None:
    import openai

    async with providers.openai("alice") as client:
        assert [model.id async for model in client.models.list()] == [CLAUDE, GPT, GPT_NEW]
        messages: Any = [user("hi")]
        with pytest.raises(openai.BadRequestError, match="/v1/messages"):
            await client.chat.completions.create(model=CLAUDE, messages=messages)
    await providers.chat("alice", [user("hi")])
    plain = providers.plain()
    metrics = (await plain.send("GET", "/metrics", key=providers.keys["root"])).content.decode()
    await plain.close()
    assert 'scopekv_upstream_cached_tokens_total{upstream="gpt"}' in metrics
