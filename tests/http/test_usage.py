"""Cached tokens are right in whole answers and in streams, asked for or not; detail on request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scopekv.simulate.client import Answer
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
DETAIL = [(b"x-scopekv-detail", b"1")]
BLOCK = 32


def detail_of(answer: Answer) -> list[dict[str, object]]:
    """The per-segment rows of a whole answer, or of the comment in a stream."""
    if not answer.content.startswith(b"data:"):
        rows: list[dict[str, object]] = answer.json["scopekv"]["segments"]
        return rows
    (line,) = [line for line in answer.content.splitlines() if line.startswith(b": ")]
    rows = json.loads(line[2:])["scopekv"]["segments"]
    assert isinstance(rows, list)
    return rows


async def test_whole_and_stream_count_the_same(stage: Stage, keys: Keys) -> None:
    prompt = text_of("count", 60)
    first = await stage.client.chat(keys["alice"], prompt)
    total = first.json["usage"]["prompt_tokens"]
    whole = (total - 1) // BLOCK * BLOCK
    again = await stage.client.chat(keys["alice"], prompt)
    asked: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await stage.client.chat(keys["alice"], prompt, **asked)
    usage = stream.events[-1]["usage"]
    assert first.cached == 0
    assert again.cached == whole == usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] == total


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"other": 1}])
async def test_a_stream_that_did_not_ask_gets_no_usage_event(
    stage: Stage, keys: Keys, options: dict[str, object] | None
) -> None:
    fields: dict[str, Any] = {"stream": True} | (
        {"stream_options": options} if options is not None else {}
    )
    answer = await stage.client.chat(keys["alice"], "hi", **fields)
    assert answer.events
    assert all(event["choices"] and "usage" not in event for event in answer.events)
    assert answer.content.endswith(b"data: [DONE]\n\n")
    sent = stage.engine.seen.calls[-1].body["stream_options"]
    assert sent == {**(options or {}), "include_usage": True}


async def test_detail_says_per_segment_what_came_from_the_cache(stage: Stage, keys: Keys) -> None:
    text = text_of("org manual", 60)
    stage.deployment.publish("org-manual", "org:acme", text)
    question = text_of("q", 40)
    first = await stage.client.chat(keys["alice"], text, question, headers=DETAIL)
    rows = detail_of(first)
    assert [row["scope"] for row in rows] == ["document", "user"]
    assert [row["cached_tokens"] for row in rows] == [0, 0]
    assert sum(int(str(row["tokens"])) for row in rows) == first.json["usage"]["prompt_tokens"]
    for name, stream in (("ann", False), ("pat", True)):
        answer = await stage.client.chat(
            keys[name], text, text_of(name, 40), headers=DETAIL, stream=stream
        )
        document, own = detail_of(answer)
        assert document["cached_tokens"] == int(str(document["tokens"])) // BLOCK * BLOCK
        assert own["cached_tokens"] == 0


async def test_detail_is_given_to_who_asks_for_it_alone(stage: Stage, keys: Keys) -> None:
    for headers in ([], [(b"x-scopekv-detail", b"0")], [(b"x-scopekv-detail", b"yes")]):
        assert "scopekv" not in (await stage.client.chat(keys["alice"], "hi", headers=headers)).json
        answer = await stage.client.chat(keys["alice"], "hi", headers=headers, stream=True)
        assert b"scopekv" not in answer.content


async def test_several_sequences_and_several_prompts(stage: Stage, keys: Keys) -> None:
    prompt = text_of("many", 50)
    for expected in (0, BLOCK):
        answer = await stage.client.chat(keys["alice"], prompt, n=3)
        assert len(answer.json["choices"]) == 3
        assert answer.cached >= expected
    counts = stage.engine.plugin.counts if stage.engine.plugin else {}
    before = dict(counts)
    two = await stage.client.complete(keys["alice"], [text_of("a", 40), text_of("b", 40)], n=2)
    assert len(two.json["choices"]) == 4
    ids = await stage.client.complete(keys["alice"], [5] * 70)
    assert ids.json["usage"]["prompt_tokens"] == 70
    assert counts["ok"] - before["ok"] == 5
    assert {k: v for k, v in counts.items() if k != "ok"} == {
        k: v for k, v in before.items() if k != "ok"
    }


async def test_the_answer_is_the_same_with_and_without_the_cache(stage: Stage, keys: Keys) -> None:
    """L7 in small: a block of other tokens would give other words."""
    prompts = [text_of(f"p{i}", 50) for i in range(5)]
    first = [(await stage.client.chat(keys["alice"], prompt)).text for prompt in prompts]
    hits = [await stage.client.chat(keys["alice"], prompt) for prompt in prompts]
    assert all(hit.cached > 0 for hit in hits)
    assert [hit.text for hit in hits] == first
    assert len(set(first)) > 1
