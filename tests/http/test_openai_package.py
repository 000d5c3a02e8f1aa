"""The openai package on the gateway: sync and async, streaming and not, raw, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from scopekv.simulate.stage import Stage, text_of
from tests.http.official_clients import openai_client

if TYPE_CHECKING:  # importing it takes a second of whoever only collects
    import openai
    from openai.types.chat import ChatCompletionMessageParam

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]


def messages(*texts: str) -> list[ChatCompletionMessageParam]:
    if len(texts) == 1:
        return [{"role": "user", "content": texts[0]}]
    return [{"role": "system", "content": texts[0]}, {"role": "user", "content": texts[1]}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice(stage: Stage, keys: Keys) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(stage.deployment.url, keys["alice"]) as made:
        yield made


async def test_async_chat_with_raw_response(stage: Stage, alice: openai.AsyncOpenAI) -> None:
    raw = await alice.chat.completions.with_raw_response.create(
        model=stage.model.name,
        messages=messages(text_of("rules", 50), "hi"),
        max_tokens=4,
        extra_headers={"X-ScopeKV-Detail": "1"},
    )
    answer = raw.parse()
    assert raw.http_response.status_code == 200
    assert answer.choices[0].message.content
    extra = answer.model_extra or {}
    assert [row["scope"] for row in extra["scopekv"]["segments"]] == ["org", "user"]


async def test_async_stream(stage: Stage, alice: openai.AsyncOpenAI) -> None:
    prompt = messages(text_of("stream", 60))
    for expected in (False, True):
        stream = await alice.chat.completions.create(
            model=stage.model.name,
            messages=prompt,
            max_tokens=5,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"X-ScopeKV-Detail": "1"},
        )
        chunks = [chunk async for chunk in stream]
        assert len([chunk for chunk in chunks if chunk.choices]) == 5
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert bool(usage.prompt_tokens_details.cached_tokens) is expected


async def test_completions_models_and_tools(stage: Stage, alice: openai.AsyncOpenAI) -> None:
    answer = await alice.completions.create(model=stage.model.name, prompt="Once", max_tokens=3)
    assert answer.choices[0].text
    (listed,) = [model async for model in alice.models.list()]
    assert (listed.id, listed.created > 0) == (stage.model.name, True)
    assert listed.model_extra == {"max_model_len": stage.model.max_model_len}
    assert await alice.models.retrieve(stage.model.name) == listed
    chat = await alice.chat.completions.create(
        model=stage.model.name,
        messages=messages("hi"),
        tools=[{"type": "function", "function": {"name": "look_up", "parameters": {}}}],
    )
    assert chat.usage is not None


async def test_errors_are_the_packages_own(stage: Stage, alice: openai.AsyncOpenAI) -> None:
    import openai

    create = alice.chat.completions.create
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="gpt-9", messages=messages("hi"))
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        await create(model=stage.model.name, messages=messages(text_of("long", 900)))
    assert long.value.code == "context_length_exceeded"
    for name in ("gpt-9", "../admin/v1/me", "a/b"):
        with pytest.raises(openai.NotFoundError) as unknown:
            await alice.models.retrieve(name)
        assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        await alice.models.delete(stage.model.name)
    text = stage.deployment.gateway.metrics.text().decode()
    assert "gpt-9" not in text, "a label is never a client's word"
    with pytest.raises(openai.AuthenticationError):
        await alice.with_options(api_key="sk-nobody").models.list()
    with pytest.raises(openai.BadRequestError):
        await create(model=stage.model.name, messages=messages("hi"), n=1000)


async def test_a_stream_that_breaks_raises_in_the_package(
    stage: Stage, alice: openai.AsyncOpenAI
) -> None:
    import openai

    stage.engine.behaviour.dies_after_events = 1
    try:
        stream = await alice.chat.completions.create(
            model=stage.model.name, messages=messages("hi"), stream=True
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
    finally:
        stage.engine.behaviour.dies_after_events = None


async def test_the_sync_client(stage: Stage, keys: Keys) -> None:
    import openai

    def ask() -> tuple[int, int]:
        url = f"{stage.deployment.url}/v1"
        with openai.OpenAI(base_url=url, api_key=keys["bob"], max_retries=0) as bob:
            prompt = messages(text_of("sync", 50))
            counts = []
            for _ in range(2):
                answer = bob.chat.completions.create(model=stage.model.name, messages=prompt)
                assert answer.usage is not None
                assert answer.usage.prompt_tokens_details is not None
                counts.append(answer.usage.prompt_tokens_details.cached_tokens or 0)
            with bob.chat.completions.create(
                model=stage.model.name, messages=prompt, stream=True, max_tokens=3
            ) as stream:
                assert len(list(stream)) == 3
            return counts[0], counts[1]

    first, second = await asyncio.to_thread(ask)
    assert (first, second > 0) == (0, True)
