"""What reaches the engine, how often, and what comes back when it fails (R7, R9, R11, R12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from scopekv.gateway import passing
from scopekv.gateway.bodies import STRIPPED
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.behaviour import Behaviour, Call
from scopekv.simulate.client import CHAT
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage, text_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]


@pytest_asyncio.fixture(loop_scope="module")
async def calm(stage: Stage) -> AsyncIterator[Stage]:
    """The stage, whose engine behaves again afterwards."""
    yield stage
    stage.engine.behaviour = Behaviour()


def new_calls(stage: Stage, before: int) -> list[Call]:
    return stage.engine.seen.calls[before:]


async def test_unknown_fields_pass_untouched_and_known_dangers_do_not(
    stage: Stage, keys: Keys
) -> None:
    before = len(stage.engine.seen.calls)
    kept: dict[str, Any] = {
        "temperature": 0.25,
        "seed": 7,
        "made_up": {"deep": [1, None, "ü"]},
        "logit_bias": {},
    }
    dropped: dict[str, Any] = dict.fromkeys(STRIPPED, "someone-elses")
    assert (await stage.client.chat(keys["alice"], "hi", **kept, **dropped)).status == 200
    (call,) = new_calls(stage, before)
    assert {name: call.body[name] for name in kept} == kept
    assert "someone-elses" not in str(call.body)
    assert set(call.body) & STRIPPED <= {"cache_salt", "kv_transfer_params"}
    assert set(call.body["kv_transfer_params"]) == {"scopekv", "prompt_token_ids"}


async def test_other_headers_pass_and_the_callers_credentials_do_not(
    stage: Stage, keys: Keys
) -> None:
    """R11: untouched unless stripped."""
    before = len(stage.engine.seen.calls)
    kept = [(b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    dropped = [
        (b"cookie", b"session=1"),
        (b"x-api-key", b"secret"),
        (b"proxy-authorization", b"Basic x"),
        (b"x-data-parallel-rank", b"3"),
        (b"x-scopekv-user", b"eve"),
        (b"x-scopekv-session", b"s"),
        (b"x-session-id", b"s"),
        (b"x-request-id", b"same"),
    ]
    assert (await stage.client.chat(keys["alice"], "hi", headers=kept + dropped)).status == 200
    (call,) = new_calls(stage, before)
    names = [name for name, _ in call.headers]
    assert not set(names) & {name for name, _ in dropped}
    assert [v for k, v in call.headers if k == b"authorization"] == [
        b"Bearer " + ENGINE_KEY.encode()
    ]
    assert keys["alice"] not in str(call.headers)
    assert set(kept) <= set(call.headers), "traceparent did not reach the engine"


async def test_one_call_per_request_whatever_the_engine_answers(calm: Stage, keys: Keys) -> None:
    """R12."""
    for behaviour in (
        Behaviour(),
        Behaviour(refuses=400),
        Behaviour(refuses=429),
        Behaviour(refuses=500),
        Behaviour(refuses=503),
        Behaviour(dies_after_events=0),
        Behaviour(dies_after_events=2),
    ):
        for stream in (False, True):
            calm.engine.behaviour = behaviour
            before = len(calm.engine.seen.calls)
            answer = await calm.client.chat(keys["alice"], "hi", stream=stream)
            assert len(new_calls(calm, before)) == 1, behaviour
            if behaviour.refuses:
                assert answer.status == behaviour.refuses
                assert answer.json["error"]["message"] == "refused, as told"
                assert (b"retry-after" in dict(answer.headers)) == (answer.status == 429)


async def test_a_refusal_that_repeats_the_request_is_not_passed_on(calm: Stage, keys: Keys) -> None:
    calm.engine.behaviour = Behaviour(refuses=400, echoes_body=True)
    answer = await calm.client.chat(keys["alice"], text_of("echo", 20))
    call = calm.engine.seen.calls[-1]
    assert answer.status == 400
    assert answer.error["message"]
    for secret in (call.salt, call.ticket or "?", "prompt_token_ids"):
        assert secret not in answer.content.decode()


async def test_a_refusal_of_any_length_says_nothing_of_the_engine(calm: Stage, keys: Keys) -> None:
    """A validator that repeats a long request must not make its engine look broken."""
    calm.engine.behaviour = Behaviour(refuses=400, echoes_body=True)
    circuit = calm.deployment.gateway.fleet.instances[0].circuit
    for _ in range(4):
        answer = await calm.client.chat(keys["alice"], "hi", made_up="x" * 100_000)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert not circuit.open


@pytest.mark.parametrize(
    ("status", "refusal", "code"),
    [
        (404, b'{"detail":"Not Found"}', "not_found"),  # of FastAPI: it has no such route
        (500, b"Internal Server Error", "unavailable"),
        (502, b"<html>Bad Gateway</html>", "unavailable"),
        (504, b"", "unavailable"),
        (400, b"what?", "invalid_request"),
    ],
)
async def test_a_failure_in_other_words_keeps_its_kind(
    calm: Stage, keys: Keys, status: int, refusal: bytes, code: str
) -> None:
    """A client goes on where its engine failed, and gives up where its request is wrong."""
    calm.engine.behaviour = Behaviour(refuses=status, refusal=refusal)
    for path in (CHAT, "/v1/messages"):
        asked = {"model": calm.model.name, "messages": [{"role": "user", "content": "hi"}]}
        answer = await calm.client.send("POST", path, asked, key=keys["alice"])
        assert answer.status == status
        assert path != CHAT or answer.error["code"] == code
    calm.deployment.gateway.fleet.instances[0].circuit.worked()


async def test_sglangs_errors_pass_in_their_own_words(calm: Stage, keys: Keys) -> None:
    told = {"object": "error", "message": "top_p is 9", "type": "BadRequest", "code": 400}
    calm.engine.behaviour = Behaviour(refuses=400, refusal=msgspec.json.encode(told))
    answer = await calm.client.chat(keys["alice"], "hi")
    assert (answer.status, answer.json) == (400, told)


async def test_an_answer_that_is_too_long_is_not_its_engines_fault(
    calm: Stage, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "ANSWER_BYTES_MAX", 10)
    circuit = calm.deployment.gateway.fleet.instances[0].circuit
    for _ in range(4):
        answer = await calm.client.chat(keys["alice"], "hi")
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert "as a stream" in answer.error["message"]
        assert not circuit.open


async def test_an_engine_that_refuses_the_gateways_key_is_not_the_clients_fault(
    calm: Stage, keys: Keys
) -> None:
    calm.engine.behaviour = Behaviour(refuses=401)
    answer = await calm.client.chat(keys["alice"], "hi")
    assert (answer.status, answer.error["code"]) == (503, "unavailable")


async def test_an_engine_that_dies_before_it_answers_is_a_503(calm: Stage, keys: Keys) -> None:
    calm.engine.behaviour = Behaviour(dies_after_events=0)
    answer = await calm.client.chat(keys["alice"], "hi")
    assert (answer.status, answer.error["type"]) == (503, "server_error")
    calm.engine.behaviour = Behaviour()
    assert (await calm.client.chat(keys["alice"], "hi")).status == 200


async def test_an_engine_that_dies_in_mid_stream_ends_in_an_error_event(
    calm: Stage, keys: Keys
) -> None:
    """R7: whole events, then a terminal error event, no second call, no half event."""
    calm.engine.behaviour = Behaviour(dies_after_events=2)
    before = len(calm.engine.seen.calls)
    answer = await calm.client.chat(keys["alice"], "hi", stream=True)
    assert answer.status == 200
    events = answer.events
    assert [bool(event.get("choices")) for event in events] == [True, True, False]
    assert events[-1]["error"]["type"] == "server_error"
    assert b"[DONE]" not in answer.content
    assert len(new_calls(calm, before)) == 1


async def test_a_client_that_leaves_stops_the_engine(calm: Stage, keys: Keys) -> None:
    """R9: long before the answer is there, streaming or waiting for a whole one."""
    for stream, behaviour in (
        (True, Behaviour(event_seconds=30)),
        (False, Behaviour(head_seconds=30)),
    ):
        calm.engine.behaviour = behaviour
        before = calm.engine.seen.abandoned
        chat = calm.client.chat(keys["alice"], "hi", stream=stream, max_tokens=500)
        task = asyncio.ensure_future(chat)
        await until(lambda: calm.engine.seen.running == 1)
        task.cancel()
        await until(lambda: not calm.engine.seen.running)
        assert calm.engine.seen.abandoned == before + 1


async def test_another_engine_is_tried_only_where_none_was_reached(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """R6, R12: a refused connection moves on; a call that was received is not repeated."""
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        key = stage.deployment.account("acme", "alice")
        first, second = stage.engines
        await first.stop()
        for _ in range(4):
            assert (await stage.client.chat(key, "hi")).status == 200
        assert first.seen.calls == []
        assert len(second.seen.calls) == 4
        second.behaviour = Behaviour(dies_after_events=0)
        assert (await stage.client.chat(key, "hi")).status == 503
        assert len(second.seen.calls) == 5
        await second.stop()
        answer = await stage.client.chat(key, "hi")
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        ready = await stage.client.send("GET", "/readyz", key=None)
        assert ready.status == 503
        await first.start()
        await stage.look()
        assert (await stage.client.chat(key, "hi")).status == 200


async def test_load_is_spread_and_counted_down(tmp_path: Path, model: SimulatedModel) -> None:
    async with Stage(tmp_path, model, plugins=(True, True)) as stage:
        key = stage.deployment.account("acme", "alice")
        for engine in stage.engines:
            engine.behaviour = Behaviour(head_seconds=0.3)
        await asyncio.gather(*(stage.client.chat(key, f"question {i}") for i in range(8)))
        assert [len(engine.seen.calls) for engine in stage.engines] == [4, 4]
        assert [i.in_flight for i in stage.deployment.gateway.fleet.instances] == [0, 0]


async def test_an_answer_keeps_the_engines_content_type_and_not_its_server(
    stage: Stage, keys: Keys
) -> None:
    whole = await stage.client.chat(keys["alice"], "hi")
    stream = await stage.client.chat(keys["alice"], "hi", stream=True)
    assert dict(whole.headers)[b"content-type"] == b"application/json"
    assert dict(stream.headers)[b"content-type"].startswith(b"text/event-stream")
    names = {name for answer in (whole, stream) for name, _ in answer.headers}
    assert b"server" not in names


async def test_odd_framing_reaches_no_engine(stage: Stage, keys: Keys) -> None:
    """Two lengths, or a length and chunks, could let one caller prefix another's request."""
    before = len(stage.engine.seen.calls)
    host, port = "127.0.0.1", stage.deployment.gateway.port
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {keys['alice']}\r\n"
    for framing in (
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Host: y\r\nContent-Length: 2\r\n\r\n{}",
    ):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write((head + framing).encode())
        line = await asyncio.wait_for(reader.readline(), 60)
        assert b" 400 " in line, framing
        writer.close()
        await writer.wait_closed()
    assert len(stage.engine.seen.calls) == before


async def test_a_gateway_that_stops_says_so_in_the_stream(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """R7 holds for our own end too: a terminal error event, not a silent cut."""
    settings = GatewaySettings((), port=0, stop_seconds_max=0.2)
    stage = Stage(tmp_path, model, settings=settings)
    key = stage.deployment.account("acme", "alice")
    async with stage:
        stage.engine.behaviour = Behaviour(event_seconds=5.0)
        asked = asyncio.create_task(stage.client.chat(key, "hi", stream=True, max_tokens=4))
        await until(lambda: stage.engine.seen.running == 1)
        await stage.deployment.gateway.stop()
        answer = await asked
        assert answer.status in (200, 503)
        assert b'"message": "the gateway is stopping: retry"' in answer.content
