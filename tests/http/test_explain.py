"""`POST /v1/scopekv/explain`: a caller's own requests, and nobody else's."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from click.testing import CliRunner

from scopekv.cli.main import main
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer
from scopekv.simulate.stage import Stage, text_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
EXPLAIN = "/v1/scopekv/explain"


def id_of(answer: Answer) -> str:
    return next(value for name, value in answer.headers if name == b"x-scopekv-request").decode()


async def explained(stage: Stage, key: str, **body: Any) -> Any:
    answer = await stage.client.send("POST", EXPLAIN, body, key=key)
    assert answer.status == 200, answer.content[:300]
    return answer.json


async def test_a_request_is_explained_against_the_callers_earlier_ones(
    stage: Stage, keys: Keys
) -> None:
    rules = text_of("explained rules", 100)
    await stage.client.chat(keys["alice"], f"It is 10:15 now. {rules}", "hi")
    missed = await stage.client.chat(keys["alice"], f"It is 10:16 now. {rules}", "hi")
    told = await explained(stage, keys["alice"], request_id=id_of(missed))
    first = told["causes"][0]
    assert (first["code"], first["certainty"]) == ("time", "confirmed")
    assert first["path"] == "$.messages[0].content"
    assert first["tokens_lost"] > 100
    assert first["before"] != first["after"]
    assert told["cached_tokens"] == missed.cached == told["expected_tokens"]


async def test_the_command_says_it_in_whole_lines(stage: Stage, keys: Keys) -> None:
    rules = text_of("explained aloud", 100)
    await stage.client.chat(keys["alice"], f"It is 11:15 now. {rules}", "hi")
    missed = await stage.client.chat(keys["alice"], f"It is 11:16 now. {rules}", "hi")
    call = ["explain", id_of(missed), "--url", stage.deployment.url]
    result = await asyncio.to_thread(
        CliRunner().invoke, main, call, env={"SCOPEKV_API_KEY": keys["alice"], "COLUMNS": "40"}
    )
    assert result.exit_code == 0, result.output
    head, first, advice, *_ = result.output.splitlines()
    assert head.endswith(f"; {missed.cached} did")
    assert re.fullmatch(
        r"time: \d+ tokens(, [\d.]+ s)? lost at \$\.messages\[0\]\.content, token \d+", first
    )
    assert advice.startswith("    move the date or time")


async def test_streams_and_every_api_are_remembered(stage: Stage, keys: Keys) -> None:
    body = {
        "model": stage.model.name,
        "max_tokens": 2,
        "messages": [{"role": "user", "content": text_of("explained stream", 80)}],
        "stream": True,
    }
    for path in ("/v1/messages", "/v1/chat/completions"):
        answer = await stage.client.send("POST", path, body, key=keys["ann"])
        again = await stage.client.send("POST", path, body, key=keys["ann"])
        told = await explained(stage, keys["ann"], request_id=id_of(again))
        assert told["causes"] == []
        assert told["cached_tokens"] == told["expected_tokens"] > 0
        assert told["compared_with"] == id_of(answer)


async def test_a_prompt_of_ids_is_read_to_the_token(stage: Stage, keys: Keys) -> None:
    ids = list(range(400, 540))
    body = {"model": stage.model.name, "max_tokens": 2, "prompt": ids}
    longer = body | {"prompt": [*ids, 7, 8]}
    await stage.client.send("POST", "/v1/completions", body, key=keys["ann"])
    answer = await stage.client.send("POST", "/v1/completions", longer, key=keys["ann"])
    told = await explained(stage, keys["ann"], request_id=id_of(answer))
    assert (told["prompt_tokens"], told["causes"]) == (142, [])
    assert told["cached_tokens"] == told["expected_tokens"] == 128


async def test_what_became_of_the_blocks(stage: Stage, keys: Keys) -> None:
    prompt = text_of("evicted", 100)
    await stage.client.chat(keys["bob"], prompt)
    stage.engine.cache.clear()
    missed = await stage.client.chat(keys["bob"], prompt)
    told = await explained(stage, keys["bob"], request_id=id_of(missed))
    assert [(c["code"], c["certainty"]) for c in told["causes"]] == [("evicted", "suspected")]
    assert told["cached_tokens"] == 0
    assert told["expected_tokens"] > 0


async def test_another_callers_request_is_not_there(stage: Stage, keys: Keys) -> None:
    answer = await stage.client.chat(keys["alice"], text_of("explained secret", 60))
    for who in ("bob", "ann"):
        refused = await stage.client.send(
            "POST", EXPLAIN, {"request_id": id_of(answer)}, key=keys[who]
        )
        unknown = await stage.client.send("POST", EXPLAIN, {"request_id": "req_0"}, key=keys[who])
        assert refused.status == unknown.status == 404
        assert refused.content == unknown.content, "denied and unknown look the same (L10)"
    told = await explained(
        stage,
        keys["bob"],
        request={
            "model": stage.model.name,
            "messages": [{"role": "user", "content": text_of("explained secret", 60)}],
        },
    )
    assert told["compared_with"] is None or told["common_tokens"] < 32


async def test_two_bodies_are_compared_and_nothing_reaches_an_engine(
    stage: Stage, keys: Keys
) -> None:
    rules = text_of("two bodies", 100)

    def body(session: str) -> dict[str, Any]:
        system = {"role": "system", "content": f"session_id: {session} {rules}"}
        return {"model": stage.model.name, "messages": [system, {"role": "user", "content": "hi"}]}

    before = len(stage.engine.seen.calls)
    told = await explained(stage, keys["bob"], earlier=body("a81kf0"), later=body("zz93la"))
    assert told["causes"][0]["code"] == "identifier"
    assert told["cached_tokens"] is None
    assert len(stage.engine.seen.calls) == before


@pytest.mark.parametrize("how", ["revoked", "deleted"])
async def test_l6_what_a_revoked_account_sent_is_forgotten(
    stage: Stage, keys: Keys, how: str
) -> None:
    gone = stage.deployment.account("acme", f"gone-{how}")
    sent = await stage.client.chat(gone, text_of(f"forgotten {how}", 60))
    kept = await stage.client.chat(keys["ann"], text_of(f"kept {how}", 60))
    await explained(stage, gone, request_id=id_of(sent))
    held = stage.deployment.gateway.remembered
    administration = stage.deployment.administration
    if how == "revoked":
        administration.revocations.user(LOCAL_OPERATOR, "acme", f"gone-{how}")
    else:
        administration.accounts.delete(LOCAL_OPERATOR, "acme", f"gone-{how}", service=False)
    for _ in range(200):
        if held.get(id_of(sent)) is None:
            break
        await asyncio.sleep(0.05)
    assert held.get(id_of(sent)) is None
    assert held.get(id_of(kept)) is not None, "nobody else's is"


async def test_l6_nor_is_what_was_under_way_remembered_afterwards(stage: Stage, keys: Keys) -> None:
    gateway = stage.deployment.gateway
    gone = stage.deployment.account("acme", "gone-under-way")
    stage.engine.behaviour = Behaviour(held=True)
    try:
        asked = asyncio.create_task(stage.client.chat(gone, text_of("under way", 60)))
        await until(lambda: stage.engine.seen.running == 1)
        stage.deployment.administration.epochs.bump(LOCAL_OPERATOR, "user:acme/gone-under-way")
        await gateway.forgetter._look()
    finally:
        stage.engine.behaviour = Behaviour()
    answer = await asked
    await stage.client.chat(keys["ann"], "after it")
    assert answer.status == 200
    assert gateway.remembered.get(id_of(answer)) is None


DEEP = b'{"request": {"a": %b}}' % (b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"request": {}},
        {"api": "/v2", "request": {"model": "m"}},
        {"what": 1},
        b"[",
        b"[]",
        DEEP,
    ],
)
async def test_wrong_bodies_are_refused_with_a_word(stage: Stage, keys: Keys, body: object) -> None:
    answer = await stage.client.send("POST", EXPLAIN, body, key=keys["alice"])
    assert 400 <= answer.status < 500
    assert answer.error["message"]


async def test_it_takes_a_key(stage: Stage) -> None:
    assert (await stage.client.send("POST", EXPLAIN, {"request_id": "x"}, key=None)).status == 401


@pytest.mark.parametrize(
    ("api", "earlier"),
    [
        ("/v1/chat/completions", {"model": None}),
        ("/v1/chat/completions", {"tools": [{"type": "function", "function": "f"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": ["text"]}]}]}),
    ],
)
async def test_bodies_of_other_types_are_no_fault_of_ours(
    stage: Stage, keys: Keys, api: str, earlier: dict[str, Any]
) -> None:
    later = {"model": stage.model.name, "messages": [{"role": "user", "content": "hi"}]}
    asked = {name: value for name, value in (later | earlier).items() if value is not None}
    both = {"api": api, "earlier": asked, "later": later}
    answer = await stage.client.send("POST", EXPLAIN, both, key=keys["alice"])
    assert answer.status in (200, 400)
