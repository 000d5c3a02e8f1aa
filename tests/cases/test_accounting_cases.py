"""Cases I10, I11 and I12: what is published and counted tells nothing, and counts once."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
BLOCK = 32
DETAIL = [(b"x-scopekv-detail", b"1")]


def metric(text: str, name: str) -> float:
    """The sum over all labels of one counter."""
    rows = [line for line in text.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


async def metrics(stage: Stage, keys: Keys) -> str:
    return (await stage.client.send("GET", "/metrics", key=keys["root"])).content.decode()


async def test_i10_what_an_engine_gets_is_opaque(stage: Stage, keys: Keys) -> None:
    """Salts and tickets, which an engine may publish or log, hold no name and no text."""
    headers = [(b"x-scopekv-session", b"session-7")]
    await stage.client.chat(keys["desk"], text_of("i10", 40), user="eve", headers=headers)
    call = stage.engine.seen.calls[-1]
    sent = str((call.body, call.headers))
    for name in ("acme", "desk", "eve", "session-7", keys["desk"]):
        assert name not in sent
    assert "i10" not in sent, "the engine reads the ids; the text stays in the gateway"
    assert len(call.salt) == 64
    assert int(call.salt, 16)


async def test_i11_a_prefix_below_a_block_shows_as_rounding(stage: Stage, keys: Keys) -> None:
    """Shared text of fewer tokens than a block: the detail says shared, and 0 whole blocks."""
    short, long = text_of("short", 3), text_of("medium", 15)
    for name, text in (("short", short), ("medium", long)):
        stage.deployment.publish(name, "org:acme", text)
    for text in (short, long):
        await stage.client.chat(keys["alice"], text, text_of("own", 30), headers=DETAIL)
        answer = await stage.client.chat(keys["ann"], text, text_of("hers", 30), headers=DETAIL)
        document, own = answer.json["scopekv"]["segments"]
        assert document["scope"] == "document", "it is shared text"
        assert document["cached_tokens"] == document["tokens"] // BLOCK * BLOCK
        assert document["tokens"] % BLOCK, "and not a whole number of blocks"
        assert own["cached_tokens"] == 0


async def test_i12_each_input_token_counts_once(stage: Stage, keys: Keys) -> None:
    """No reuse: rate 0. Reuse: below 1. Refusals and n sequences count no token twice."""
    before = await metrics(stage, keys)
    sent = cached = answered = 0
    for index in range(6):
        answer = await stage.client.chat(keys["alice"], text_of(f"i12 {index}", 40))
        sent += answer.json["usage"]["prompt_tokens"]
        answered += 1
        assert answer.cached == 0
    middle = await metrics(stage, keys)
    assert metric(middle, "scopekv_cached_tokens_total") == metric(
        before, "scopekv_cached_tokens_total"
    )
    for index in range(6):
        fields: dict[str, Any] = {
            "n": 2,
            "stream": index % 2 == 0,
            "stream_options": {"include_usage": True},
        }
        answer = await stage.client.chat(keys["alice"], text_of(f"i12 {index}", 40), **fields)
        usage = answer.events[-1]["usage"] if fields["stream"] else answer.json["usage"]
        sent += usage["prompt_tokens"]
        cached += usage["prompt_tokens_details"]["cached_tokens"]
        answered += 1
    await stage.client.chat(keys["alice"], "hi", n=0)
    await stage.client.chat(keys["alice"], "hi", max_tokens="x")
    after = await metrics(stage, keys)

    def grown(name: str) -> float:
        return metric(after, name) - metric(before, name)

    assert 0 < cached < sent
    assert grown("scopekv_input_tokens_total") == sent
    assert grown("scopekv_cached_tokens_total") == cached
    assert grown("scopekv_requests_counted_total") == answered
    assert grown("scopekv_request_hits_total") == 6
