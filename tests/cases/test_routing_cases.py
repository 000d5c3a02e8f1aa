"""R1 to R12, as far as simulated engines show them: what goes wrong in other routers.

R8 is a measurement (benchmarks/router.py); R3 and R4 are cases of the location index.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of, until

pytestmark = pytest.mark.slow

RECOVERY_SECONDS = 60.0  # until a test gives up; what takes longer is broken, not slow


@pytest_asyncio.fixture
async def pair(tmp_path: Path, model: SimulatedModel) -> AsyncIterator[Stage]:
    async with Stage(tmp_path, model, plugins=(True, True)) as made:
        yield made


def calls(stage: Stage) -> list[int]:
    return [len(engine.seen.calls) for engine in stage.engines]


def behave(stage: Stage, behaviour: Behaviour) -> None:
    for engine in stage.engines:
        engine.behaviour = behaviour


def routes(stage: Stage, reason: str) -> int:
    """How many requests were placed for this reason."""
    start = f'scopekv_routes_total{{reason="{reason}"}} '
    lines = stage.deployment.gateway.metrics.text().decode().splitlines()
    return int(sum(float(line[len(start) :]) for line in lines if line.startswith(start)))


def in_flight(stage: Stage) -> list[int]:
    return [i.in_flight for i in stage.deployment.gateway.fleet.instances]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_r1_many_at_once_on_one_prefix_are_spread_over_both(
    pair: Stage, warm: bool, stream: bool
) -> None:
    key = pair.deployment.account("acme", "alice")
    prefix = text_of("handbook", 150)
    if warm:
        await pair.client.chat(key, prefix + text_of("first", 5))
    before = calls(pair)
    behave(pair, Behaviour(token_seconds=0.0002, event_seconds=0.05 if stream else 0.0))
    answers = await asyncio.gather(
        *(
            pair.client.chat(key, prefix + text_of(f"question {i}", 5), stream=stream)
            for i in range(48)
        )
    )
    assert {answer.status for answer in answers} == {200}
    took = [now - then for now, then in zip(calls(pair), before, strict=True)]
    assert sum(took) == 48
    assert max(took) <= 0.6 * 48, f"spread {took}"


async def test_r1_one_at_a_time_stays_where_its_prefix_is(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    behave(pair, Behaviour(token_seconds=0.002))  # far more than a busy machine adds
    for number in range(3):  # what an engine that was never asked would take is a guess
        texts = (text_of(f"other {number} {engine}", 150) for engine in (0, 1))
        await asyncio.gather(*(pair.client.chat(key, text) for text in texts))
    before, found = calls(pair), routes(pair, "prefix_here")
    assert min(before) > 0
    history = text_of("session", 150)
    for number in range(6):
        await pair.client.chat(key, history + text_of(f"turn {number}", 5))
    assert sorted(now - then for now, then in zip(calls(pair), before, strict=True)) == [0, 6]
    assert routes(pair, "prefix_here") == found + 5


async def test_r2_the_same_private_prompt_of_ten_scopes_has_no_false_affinity(pair: Stage) -> None:
    keys = [pair.deployment.account(f"org{n}", "ann") for n in range(10)]
    behave(pair, Behaviour(token_seconds=0.0002))  # so that a prefix is worth something
    prompt = text_of("the same for all", 150)
    first = [await pair.client.chat(key, prompt) for key in keys]
    assert [answer.cached for answer in first] == [0] * 10
    assert routes(pair, "prefix_here") == 0
    again = [await pair.client.chat(key, prompt) for key in keys]
    assert all(answer.cached > 256 for answer in again), "each comes back to its own"
    assert routes(pair, "prefix_here") == 10


async def test_r3_a_restarted_instance_attracts_nobody_by_what_it_had(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    prompt = text_of("session", 150)
    await pair.client.chat(key, prompt)
    (used,) = [engine for engine in pair.engines if engine.seen.calls]
    await used.restart()
    await pair.look()
    await pair.client.chat(key, prompt)
    assert routes(pair, "prefix_here") == 0


async def paced(stage: Stage, key: str, count: int, *, stream: bool) -> list[Answer]:
    """20 requests a second, each on its own."""
    asked = []
    for number in range(count):
        asked.append(
            asyncio.create_task(stage.client.chat(key, f"question {number}", stream=stream))
        )
        await asyncio.sleep(0.05)
    return list(await asyncio.gather(*asked))


@pytest.mark.parametrize("stream", [False, True])
async def test_r6_a_kill_under_load_costs_no_client_an_error_before_the_first_byte(
    pair: Stage, stream: bool
) -> None:
    key = pair.deployment.account("acme", "alice")
    behave(pair, Behaviour(head_seconds=0.15))
    victim, other = pair.engines
    load = asyncio.create_task(paced(pair, key, 40, stream=stream))
    await until(lambda: victim.seen.running)
    victim.kill()
    answers = await load
    assert {answer.status for answer in answers} == {200}
    assert not any(b'"error"' in answer.content for answer in answers)
    before = len(victim.seen.calls)
    await victim.restart()
    # Within the bound it is in use again, without anybody's help.
    async with asyncio.timeout(RECOVERY_SECONDS):
        while len(victim.seen.calls) == before:
            await asyncio.gather(*(pair.client.chat(key, f"again {n}") for n in range(2)))
    assert other.seen.calls


async def test_r6_a_request_that_kills_engines_does_not_kill_them_all(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(True, True, True)) as stage:
        key = stage.deployment.account("acme", "alice")
        behave(stage, Behaviour(head_seconds=30))

        async def dies_of_it(engine: SimulatedEngine) -> None:
            await until(lambda: engine.seen.running)
            engine.kill()

        deaths = [asyncio.create_task(dies_of_it(engine)) for engine in stage.engines]
        answer = await stage.client.chat(key, "a deadly question")
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert sorted(calls(stage)) == [0, 1, 1]
        for death in deaths:
            death.cancel()


async def test_r7_what_dies_in_mid_stream_is_told_and_not_asked_again(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    behave(pair, Behaviour(dies_after_events=2))
    answer = await pair.client.chat(key, "hi", stream=True)
    assert answer.status == 200
    assert [bool(event.get("choices")) for event in answer.events] == [True, True, False]
    assert answer.events[-1]["error"]["type"] == "server_error"
    assert b"[DONE]" not in answer.content
    assert sum(calls(pair)) == 1


async def test_r9_a_client_that_leaves_stops_the_engine(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    behave(pair, Behaviour(head_seconds=30))
    task = asyncio.ensure_future(pair.client.chat(key, "hi"))
    await until(lambda: sum(engine.seen.running for engine in pair.engines) == 1)
    task.cancel()
    await until(lambda: not any(engine.seen.running for engine in pair.engines))
    await until(lambda: in_flight(pair) == [0, 0])


async def test_r10_load_equals_what_engines_run_on_every_path(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    behave(pair, Behaviour(held=True))
    asked = [
        asyncio.ensure_future(pair.client.chat(key, f"question {n}", stream=n % 2 == 0))
        for n in range(6)
    ]
    await until(lambda: sum(engine.seen.running for engine in pair.engines) == 6)
    assert in_flight(pair) == [engine.seen.running for engine in pair.engines]
    await pair.look()  # health checks reset nothing
    assert in_flight(pair) == [engine.seen.running for engine in pair.engines]
    behave(pair, Behaviour())
    await asyncio.gather(*asked)
    await until(lambda: in_flight(pair) == [0, 0])
    for behaviour in (
        Behaviour(refuses=400),
        Behaviour(refuses=401),
        Behaviour(refuses=500),
        Behaviour(dies_after_events=0),
        Behaviour(dies_after_events=1),
    ):
        behave(pair, behaviour)
        for stream in (False, True):
            await pair.client.chat(key, "hi", stream=stream)
            await until(lambda: in_flight(pair) == [0, 0])
    behave(pair, Behaviour())
    await pair.client.chat(key, [{"type": "made up"}])  # type: ignore[arg-type]
    await pair.client.complete(key, "word " * 5000)
    assert in_flight(pair) == [0, 0]


async def test_r12_one_call_per_request_whatever_an_engine_answers(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    for behaviour in (
        *(Behaviour(), Behaviour(refuses=400), Behaviour(refuses=429), Behaviour(refuses=500)),
        *(Behaviour(refuses=503), Behaviour(dies_after_events=0), Behaviour(dies_after_events=2)),
    ):
        behave(pair, behaviour)
        for stream in (False, True):
            before = sum(calls(pair))
            await pair.client.chat(key, "hi", stream=stream)
            assert sum(calls(pair)) == before + 1, behaviour


async def test_an_instance_that_only_fails_is_left_alone_and_tried_again(pair: Stage) -> None:
    key = pair.deployment.account("acme", "alice")
    sick, well = pair.engines
    sick.behaviour = Behaviour(refuses=500)
    for number in range(40):
        await pair.client.chat(key, f"question {number}")
    assert len(sick.seen.calls) <= 6, "three failures in a row open its circuit"
    assert len(well.seen.calls) >= 34
    sick.behaviour = Behaviour()
    before = len(sick.seen.calls)
    async with asyncio.timeout(RECOVERY_SECONDS):
        while len(sick.seen.calls) < before + 3:
            await asyncio.gather(*(pair.client.chat(key, f"again {n}") for n in range(2)))
