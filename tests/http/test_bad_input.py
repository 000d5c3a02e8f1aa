"""Whatever is sent: OpenAI's error shape, a message that helps, and the server serves on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scopekv.gateway.http import RequestLimits
from scopekv.simulate.client import CHAT, COMPLETIONS, Answer
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
HI = [{"role": "user", "content": "hi"}]
MODEL = "SmolLM2-135M-Instruct"


async def refused(stage: Stage, key: str, body: object, path: str = CHAT) -> Answer:
    """Send it, expect a refusal that reached no engine, and see that the gateway serves on."""
    before = len(stage.engine.seen.calls)
    answer = await stage.client.send("POST", path, body, key=key)
    assert 400 <= answer.status < 500, answer.content[:300]
    assert len(stage.engine.seen.calls) == before
    assert answer.error["message"]
    assert answer.error["type"] == "invalid_request_error"
    assert (await stage.client.chat(key, "hi")).status == 200
    return answer


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"model": "m", "messages": [}', "byte 28"),
        (b'{"model": "m"', "truncated"),
        (b"", "JSON"),
        (b"\xff\xfe{}", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        (b'"text"', "object"),
        (b"null", "object"),
        (b'{"model": "m", "messages": []} trailing', "byte 32"),
        (b'{"model": "\xed\xa0\x80"}', "JSON"),
        (b'{"a": NaN}', "byte 6"),
    ],
)
async def test_malformed_json_is_refused_with_its_place(
    stage: Stage, keys: Keys, body: bytes, says: str
) -> None:
    answer = await refused(stage, keys["alice"], body)
    assert says in answer.error["message"]
    assert answer.status == 400


@pytest.mark.parametrize(
    "field",
    [
        {"model": 5},
        {"model": ""},
        {"model": None},
        {"model": ["a"]},
        {"messages": "hi"},
        {"messages": {}},
        {"messages": []},
        {"messages": None},
        {"messages": ["hi"]},
        {"messages": [None]},
        {"messages": [{"content": "hi"}]},
        {"messages": [{"role": 5, "content": "hi"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"stream": "yes"},
        {"stream": 1},
        {"stream_options": True},
        {"stream": True, "stream_options": {"include_usage": "yes"}},
        {"tools": "search"},
        {"tools": [5]},
        {"n": 0},
        {"n": -1},
        {"n": "two"},
        {"n": 1.5},
        {"n": True},
        {"n": 10**9},
        {"user": 5},
        {"user": {"id": "eve"}},
        {"user": "x" * 600},
    ],
    ids=json.dumps,
)
async def test_wrong_types_are_refused_by_name(
    stage: Stage, keys: Keys, field: dict[str, Any]
) -> None:
    answer = await refused(stage, keys["desk"], {"model": MODEL, "messages": HI} | field)
    assert answer.status == 400
    named = answer.error["message"].lower()
    words = [*field, "message", "content", "text part"]
    assert any(word in named for word in words), named


@pytest.mark.parametrize("prompt", [None, 5, "", {}, [], True], ids=json.dumps)
async def test_wrong_prompts_are_refused(stage: Stage, keys: Keys, prompt: object) -> None:
    body = {"model": MODEL, "prompt": prompt}
    answer = await stage.client.send("POST", COMPLETIONS, body, key=keys["alice"])
    assert answer.status == 400
    assert "prompt" in answer.error["message"]


async def test_too_many_prompts_are_refused(stage: Stage, keys: Keys) -> None:
    answer = await refused(
        stage, keys["alice"], {"model": MODEL, "prompt": ["a"] * 129}, COMPLETIONS
    )
    assert "128" in answer.error["message"]


async def test_the_engines_own_refusal_passes_and_names_the_field(stage: Stage, keys: Keys) -> None:
    answer = await stage.client.chat(keys["alice"], "hi", max_tokens="many")
    assert answer.status == 400
    assert "max_tokens" in answer.error["message"]
    odd: dict[str, Any] = {"messages": [{"role": "user", "content": [5]}]}
    assert (await stage.client.chat(keys["alice"], "hi", **odd)).status == 400


@pytest.mark.parametrize("without", ["model", "messages"])
async def test_missing_fields_are_named(stage: Stage, keys: Keys, without: str) -> None:
    body = {"model": MODEL, "messages": HI}
    del body[without]
    answer = await refused(stage, keys["alice"], body)
    assert without in answer.error["message"]


async def test_an_unknown_model_is_a_404_that_lists_the_known_ones(
    stage: Stage, keys: Keys
) -> None:
    answer = await refused(stage, keys["alice"], {"model": "gpt-9", "messages": HI})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert MODEL in answer.error["message"]


async def test_a_body_over_the_limit_is_a_413(stage: Stage, keys: Keys) -> None:
    limit = RequestLimits().body_bytes_max
    answer = await stage.client.send("POST", CHAT, b"x" * (limit + 1), key=keys["alice"])
    assert answer.status == 413
    assert str(limit) in answer.error["message"]
    assert (await stage.client.chat(keys["alice"], "hi")).status == 200


@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "f"}}]])
async def test_a_prompt_over_the_context_says_how_much_fits(
    stage: Stage, keys: Keys, tools: object
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text_of("long", 900)}]}
    answer = await refused(stage, keys["alice"], body | ({"tools": tools} if tools else {}))
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "2048" in answer.error["message"]


async def test_a_prompt_that_leaves_no_room_for_one_token_is_over_the_context(
    stage: Stage, keys: Keys
) -> None:
    (instance,) = stage.deployment.gateway.fleet.instances
    length = instance.max_model_len
    answer = await stage.client.chat(keys["alice"], "exactly so long")
    tokens = answer.json["usage"]["prompt_tokens"]
    try:
        for most, status in ((tokens, 400), (tokens + 1, 200)):
            instance.max_model_len = most
            assert (await stage.client.chat(keys["alice"], "exactly so long")).status == status
    finally:
        instance.max_model_len = length


async def test_unknown_paths_and_methods(stage: Stage, keys: Keys) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("POST", "/tokenize", 404),
        ("POST", "/v1/scopekv/pin", 404),
        ("GET", "/v1/scopekv/status", 404),
        ("GET", CHAT, 400),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1//chat/completions", 404),
        ("POST", "/v1/chat%2Fcompletions", 404),
    ):
        answer = await stage.client.send(method, path, key=keys["alice"])
        assert answer.status == status, path
        assert answer.error["message"]
