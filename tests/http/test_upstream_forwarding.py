"""Providers out of reach, streams that break off, organisations without a credential."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from scopekv.gateway.apis.messages import MESSAGES
from scopekv.gateway.apis.responses import RESPONSES
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.upstreams import errors
from scopekv.gateway.upstreams.settings import Credential, UpstreamKind, UpstreamSettings
from scopekv.simulate.client import CHAT
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.providers import SimulatedProvider
from scopekv.simulate.stage import Stage, text_of
from tests.http.providers_stage import CLAUDE, GPT, ProvidersStage, providers_stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_another_provider_is_asked_where_nothing_was_sent(tmp_path: Path) -> None:
    import openai

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        lost = UpstreamSettings("lost", UpstreamKind.OPENAI, url, (GPT, "g"), (Credential("k"),))
        async with providers_stage(tmp_path, [lost]) as stage:
            answer = await stage.chat("alice", [user("hi")])
            assert answer.choices[0].message.content == "four words of answer"
            assert len(stage.provider.seen) == 1
            with pytest.raises(openai.InternalServerError) as failed:
                await stage.chat("alice", [user("hi")], model="g")
            assert failed.value.status_code == 503
            assert url.partition("//")[2] not in failed.value.response.text


async def test_a_providers_own_refusal_is_sent_to_nobody_else(tmp_path: Path) -> None:
    import openai

    async with SimulatedProvider({"k": "other"}) as other:
        other.fails = [429]
        first = UpstreamSettings("a", UpstreamKind.OPENAI, other.url, (GPT,), (Credential("k"),))
        async with providers_stage(tmp_path, [first]) as stage:
            with pytest.raises(openai.RateLimitError) as refused:
                await stage.chat("alice", [user("hi")])
            assert refused.value.response.headers["retry-after"] == "7"
            assert (len(other.seen), len(stage.provider.seen)) == (1, 0)


async def test_a_stream_that_breaks_off_ends_with_an_error(tmp_path: Path) -> None:
    import openai

    async with providers_stage(tmp_path) as stage:
        stage.provider.breaks = True
        async with stage.openai("alice") as client:
            messages: Any = [user("hi")]
            stream = await client.chat.completions.create(model=GPT, messages=messages, stream=True)
            with pytest.raises(openai.APIError):
                async for _ in stream:
                    pass
        assert len(stage.provider.seen) == 1


LIMIT = "Rate limit reached in organization org-17: Limit 30000, Used 29012"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("path", "name", "event"),
    [
        (CHAT, "", {"error": {"message": LIMIT, "type": "tokens", "code": "rate_limit_exceeded"}}),
        (RESPONSES, "error", {"type": "error", "code": "rate_limit_exceeded", "message": LIMIT}),
        (
            RESPONSES,
            "response.failed",
            {"type": "response.failed", "response": {"error": {"code": "c", "message": LIMIT}}},
        ),
        (MESSAGES, "error", {"type": "error", "error": {"type": "api_error", "message": LIMIT}}),
    ],
)
async def test_l10_a_stream_that_fails_tells_nothing_of_the_workspace(
    providers: ProvidersStage, end: str, path: str, name: str, event: dict[str, Any]
) -> None:
    said = (f"event: {name}{end}" if name else "") + f"data: {json.dumps(event)}{end}{end}"
    asked = {"messages": [user("hi")], "input": "hi", "max_tokens": 8, "stream": True}
    model = CLAUDE if path == MESSAGES else GPT
    plain = providers.plain()
    providers.provider.interrupts = said.encode()
    try:
        key = providers.keys["alice"]
        answer = await plain.send("POST", path, asked | {"model": model}, key=key)
    finally:
        providers.provider.interrupts = b""
        await plain.close()
    text = answer.content.decode()
    assert "org-17" not in text
    assert "29012" not in text
    assert errors.WORDS in text
    told = json.loads(text.rstrip().rpartition("data: ")[2])
    codes = [
        found
        for part in (told, told.get("error"), told.get("response"))
        if part
        for found in [part.get("type"), part.get("code")]
        if found
    ]
    assert codes, "what kind of failure it was is told"


async def test_without_a_credential_there_is_no_such_model(tmp_path: Path) -> None:
    import openai

    only = UpstreamSettings(
        *("only", UpstreamKind.OPENAI, "http://127.0.0.1:9", ("theirs",)),
        (Credential("k", ("initech",)),),
    )
    async with providers_stage(tmp_path, [only]) as stage:
        async with stage.openai("alice") as client:
            assert "theirs" not in [model.id async for model in client.models.list()]
        told = []
        for model in ("theirs", "nobodys"):
            with pytest.raises(openai.APIStatusError) as failed:
                await stage.chat("alice", [user("hi")], model=model)
            told.append((failed.value.status_code, failed.value.response.text.replace(model, "")))
        assert told[0] == told[1]
        async with stage.openai("ian") as client:
            assert "theirs" in [model.id async for model in client.models.list()]


async def test_nor_does_the_answer_tell_that_others_have_it(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """With engines beside it: a model of another organisation's is one that does not exist."""
    only = UpstreamSettings(
        *("only", UpstreamKind.OPENAI, "http://127.0.0.1:9", ("theirs",)),
        (Credential("k", ("initech",)),),
    )
    settings = GatewaySettings((), port=0, stop_seconds_max=0.5, upstreams=(only,))
    async with Stage(tmp_path, model, settings=settings) as stage:
        key = stage.deployment.account("acme", "alice")
        told = []
        for name in ("theirs", "nobodys"):
            asked = {"model": name, "messages": [user("hi")]}
            answer = await stage.client.send("POST", CHAT, asked, key=key)
            told.append((answer.status, answer.content.replace(name.encode(), b"")))
        assert told[0] == told[1]
        assert told[0][0] == 404


async def test_a_long_prompt_is_read_aside_and_sent_whole(providers: ProvidersStage) -> None:
    text = text_of("long", 60_000)
    await providers.chat("alice", [user(text)])
    assert providers.provider.last["messages"][0]["content"].endswith("]\n" + text)


async def test_a_credential_is_asked_for_first(providers: ProvidersStage) -> None:
    plain = providers.plain()
    body = {"model": GPT, "messages": [user("hi")]}
    count = len(providers.provider.seen)
    for key in (None, "sk-scopekv-unknown"):
        answer = await plain.send("POST", "/v1/chat/completions", body, key=key)
        assert answer.status == 401
    wrongs: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": ["x"]},
        {"messages": [{"content": 5}]},
    ]
    for wrong in wrongs:
        answer = await plain.send(
            "POST", "/v1/chat/completions", body | wrong, key=providers.keys["alice"]
        )
        assert answer.status == 400
    await plain.close()
    assert len(providers.provider.seen) == count
