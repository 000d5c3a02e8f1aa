"""OpenAI's Responses with the real package: usage, streams, and no memory on the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from scopekv.simulate.stage import Stage, text_of
from tests.http.official_clients import openai_client

if TYPE_CHECKING:  # importing it takes a second of whoever only collects
    import openai

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice(stage: Stage, keys: Keys) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(stage.deployment.url, keys["alice"]) as made:
        yield made


async def test_cached_tokens_whole_and_streamed(stage: Stage, alice: openai.AsyncOpenAI) -> None:
    ask: dict[str, Any] = {
        "model": stage.model.name,
        "instructions": text_of("responses rules", 60),
        "input": [{"role": "user", "content": text_of("responses", 60)}],
        "max_output_tokens": 4,
        "prompt_cache_key": "anything",
    }
    first = await alice.responses.create(**ask)
    assert first.usage is not None
    assert first.usage.input_tokens_details.cached_tokens == 0
    stream = await alice.responses.create(**ask, stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    assert last.response.usage is not None
    cached = last.response.usage.input_tokens_details.cached_tokens
    assert cached == first.usage.input_tokens // 32 * 32
    call = stage.engine.seen.calls[-1]
    assert call.body["store"] is False
    assert "prompt_cache_key" not in call.body


async def test_the_cache_is_the_callers_own(stage: Stage, keys: Keys) -> None:
    body = {"model": stage.model.name, "input": text_of("responses own", 90)}
    cached = []
    for who in ("alice", "ann", "bob", "alice"):
        answer = await stage.client.send("POST", "/v1/responses", body, key=keys[who])
        cached.append(answer.json["usage"]["input_tokens_details"]["cached_tokens"])
    assert cached[:3] == [0, 0, 0]
    assert cached[3] > 0


@pytest.mark.parametrize(
    "field",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
        {"input": []},
        {"input": None},
        {"prompt_cache_retention": "forever"},
    ],
)
async def test_what_would_read_another_answer_is_refused(
    stage: Stage, keys: Keys, field: dict[str, Any]
) -> None:
    body = {"model": stage.model.name, "input": "hi", **field}
    before = len(stage.engine.seen.calls)
    answer = await stage.client.send("POST", "/v1/responses", body, key=keys["alice"])
    assert answer.status == 400
    assert answer.error["message"]
    assert len(stage.engine.seen.calls) == before
