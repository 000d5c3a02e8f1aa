"""What a strict reader found: names of media, headers that touch all tenants, doubled narrowing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from scopekv.errors import Unavailable
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.apis.responses import RESPONSES_API
from scopekv.gateway.bodies import stripped
from scopekv.simulate.client import CHAT
from scopekv.simulate.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]


async def test_i1_a_name_for_media_never_reaches_the_engine(stage: Stage, keys: Keys) -> None:
    """vLLM takes a part's `uuid` for its identity: another's would give another's picture."""
    before = len(stage.engine.seen.calls)
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": None, "uuid": "invoice-17"},
        {"type": "image_url", "image_url": {"url": "data:,x"}, "uuid": "logo"},
    ]
    body = {"model": stage.client.model, "messages": [{"role": "user", "content": parts}]}
    await stage.client.send("POST", CHAT, body, key=keys["alice"])
    calls = stage.engine.seen.calls[before:]
    assert calls
    assert "uuid" not in str([call.body["messages"] for call in calls])


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user"},
        {"type": "message", "role": "user"},
        {"type": "function_call_output", "call_id": "c"},
        {"type": "custom_tool_call_output", "call_id": "c"},
    ],
)
async def test_i1_nor_in_an_item_of_responses(item: dict[str, str]) -> None:
    """vLLM reads a tool's output as it reads a message's parts (its openai/responses/utils.py)."""
    place = "content" if "role" in item else "output"
    part = {"type": "input_image", "image_url": "data:,x", "uuid": "invoice-17"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"uuid": 1}'}
    given = {**item, place: [part, "uuid"]}
    body = {"model": "m", "input": [call, given, {**item, place: "x"}]}
    clean = stripped(body, RESPONSES_API)["input"]
    same = {"type": "input_image", "image_url": "data:,x"}
    assert clean == [call, {**item, place: [same, "uuid"]}, {**item, place: "x"}]
    assert given[place][0] == part, "the client's own stays what it was"


async def test_media_names_go_wherever_they_stand() -> None:
    part = {"type": "input_audio", "input_audio": {"data": ""}, "uuid": "u"}
    messages = [{"role": "user", "content": [part]}, {"role": "user", "content": "uuid"}]
    clean = stripped({"model": "m", "messages": messages}, CHAT_API)["messages"]
    assert "uuid" not in clean[0]["content"][0]
    assert clean[1] == messages[1]


@pytest.mark.parametrize(
    "header", [b"x-vllm-priority", b"x-vllm-anything-new", b"endpoint-load-metrics-format"]
)
async def test_headers_that_touch_all_tenants_stay_here(
    stage: Stage, keys: Keys, header: bytes
) -> None:
    before = len(stage.engine.seen.calls)
    assert (await stage.client.chat(keys["alice"], "hi", headers=[(header, b"1")])).status == 200
    (call,) = stage.engine.seen.calls[before:]
    assert header not in [name for name, _ in call.headers]


@pytest.mark.parametrize("header", [b"x-scopekv-user", b"x-scopekv-session"])
async def test_two_narrowing_headers_are_refused(stage: Stage, keys: Keys, header: bytes) -> None:
    """An end user could put its own before the one that the application adds."""
    twice = [(header, b"eve"), (header, b"mallory")]
    answer = await stage.client.chat(keys["desk"], "hi", headers=twice)
    assert answer.status == 400
    assert header.decode() in answer.error["message"]


async def test_beams_are_refused_and_too_many_sequences_are_named(stage: Stage, keys: Keys) -> None:
    beams = await stage.client.chat(keys["alice"], "hi", use_beam_search=True)
    assert beams.status == 400
    assert "use_beam_search" in beams.error["message"]
    many = await stage.client.complete(keys["alice"], ["a"] * 40, n=128)
    assert many.status == 400
    assert "sequences" in many.error["message"]


async def test_readiness_tells_strangers_no_address(stage: Stage) -> None:
    instance = stage.deployment.gateway.fleet.instances[0]
    stage.deployment.gateway.fleet.lost(instance, "cannot connect to http://10.0.0.5:8000")
    answer = await stage.client.send("GET", "/readyz", key=None)
    assert b"10.0.0.5" not in answer.content
    await stage.look()


@pytest.mark.parametrize("arguments", ["[" * 2000 + "]" * 2000, "[" * 50_000])
async def test_arguments_nested_too_deep_are_the_engines(
    stage: Stage, keys: Keys, arguments: str
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "y"},
    ]
    body = {"model": stage.client.model, "messages": messages, "max_tokens": 1}
    answer = await stage.client.send("POST", CHAT, body, key=keys["alice"])
    assert answer.status in (200, 400)


@pytest.mark.parametrize("calls", [True, -1, 1.5, "x", {"a": 1}])
async def test_tool_calls_of_another_type_are_refused(
    stage: Stage, keys: Keys, calls: object
) -> None:
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]
    body = {"model": stage.client.model, "messages": messages}
    answer = await stage.client.send("POST", CHAT, body, key=keys["alice"])
    assert answer.status == 400
    assert "tool_calls" in answer.error["message"]


async def test_a_large_prompt_holds_nobody_up(stage: Stage, keys: Keys) -> None:
    """It is read aside: while that takes as long as it likes, a small request is answered.

    So is what needs a thread itself, however many of them wait.
    """
    texts = stage.deployment.gateway.fleet.instances[0].texts
    assert texts is not None
    busy = threading.Event()
    texts.worker.submit(busy.wait)  # the reading of large prompts stands still
    try:
        large = [
            asyncio.create_task(stage.client.chat(keys["bob"], "a" * 140_000)) for _ in range(36)
        ]
        while texts.worker._work_queue.qsize() < len(large):
            await asyncio.sleep(0.01)
        small = await stage.client.chat(keys["alice"], "hi")
        assert small.status == 200
        kept = await stage.client.send("GET", "/v1/cachedContents", key=keys["alice"])
        assert kept.status == 200
        assert not any(one.done() for one in large)
        for one in large[1:]:
            one.cancel()
    finally:
        busy.set()
    assert (await large[0]).status == 400


async def test_very_many_messages_are_refused_by_their_number(stage: Stage, keys: Keys) -> None:
    messages = [{"role": "user", "content": "x"}] * 20_000
    body = {"model": stage.client.model, "messages": messages}
    answer = await stage.client.send("POST", CHAT, body, key=keys["alice"])
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"


async def test_a_registry_that_refuses_shows_in_readiness(stage: Stage, keys: Keys) -> None:
    access = stage.deployment.gateway.access
    original = access.refresh

    async def refuse() -> None:
        raise Unavailable("the registry's file was replaced")

    access.refresh = refuse  # type: ignore[method-assign]
    try:
        answer = await stage.client.send("GET", "/readyz", key=None)
        assert answer.status == 503
        assert "registry" in answer.json["status"]
        assert (await stage.client.chat(keys["alice"], "hi")).status == 503
    finally:
        access.refresh = original  # type: ignore[method-assign]
