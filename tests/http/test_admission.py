"""More requests than places: at engines and providers, at what explains and what counts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from scopekv.gateway import counting
from scopekv.gateway.apis.messages import COUNT_TOKENS
from scopekv.gateway.explaining import route
from scopekv.gateway.reading import LARGE_BYTES
from scopekv.gateway.settings import GatewaySettings, RoutingSettings
from scopekv.gateway.upstreams.settings import Credential, UpstreamKind, UpstreamSettings
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.providers import SimulatedProvider
from scopekv.simulate.stage import Stage, text_of, until
from tests.http.providers_stage import GPT, ProvidersStage, providers_stage

pytestmark = pytest.mark.slow


def behave(stage: Stage, **changes: Any) -> None:
    for engine in stage.engines:
        engine.behaviour = Behaviour(**changes)


def limited(**values: Any) -> GatewaySettings:
    return GatewaySettings((), port=0, stop_seconds_max=0.5, routing=RoutingSettings(**values))


async def waiting(client: PlainClient, key: str) -> dict[str, float]:
    """What the metrics tell of who waits, by what for; without those where nobody does."""
    text = (await client.send("GET", "/metrics", key=key)).content.decode()
    found = re.findall(
        r'^scopekv_requests_waiting{at="(\w+)",upstream="(\S*)"} (\S+)$', text, re.MULTILINE
    )
    return {of or at: float(count) for at, of, count in found if float(count)}


async def test_what_finds_no_place_waits_and_what_finds_no_room_is_told_when_to_come_back(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=2, waiting_max=2))
    key = stage.deployment.account("acme", "alice")
    async with stage:
        behave(stage, held=True)
        asked = [asyncio.create_task(stage.client.chat(key, f"q{n}")) for n in range(7)]
        await until(lambda: sum(one.done() for one in asked) == 3)
        behave(stage)
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status for answer in answers) == [200] * 4 + [429] * 3
        (refused, *_) = [answer for answer in answers if answer.status == 429]
        assert refused.error["code"] == "overloaded"
        assert int(dict(refused.headers)[b"retry-after"]) >= 1
        room = stage.deployment.gateway.room
        assert (room.taken, room.waiting) == (0, 0)
        assert (await stage.client.chat(key, "hi")).status == 200


async def test_a_tenant_that_floods_the_line_does_not_keep_another_out(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=1, waiting_max=6))
    alice = stage.deployment.account("acme", "alice")
    bob = stage.deployment.account("globex", "bob")
    async with stage:
        behave(stage, held=True)
        flood = [asyncio.create_task(stage.client.chat(alice, f"q{n}")) for n in range(20)]
        room = stage.deployment.gateway.room
        await until(lambda: room.waiting == 6 and sum(one.done() for one in flood) == 13)
        root = stage.deployment.account("hq", "root", roles=["operator"])
        assert await waiting(stage.client, root) == {"engines": 6}
        asked = [asyncio.create_task(stage.client.chat(bob, f"b{n}")) for n in range(3)]
        await until(lambda: sum(one.done() for one in flood) == 16)
        behave(stage)
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
        statuses = [answer.status for answer in await asyncio.gather(*flood)]
        assert statuses.count(200) == 4, "one at once, three of the six that waited"
        assert set(statuses) == {200, 429}


async def test_a_wait_ends_at_its_deadline_and_when_its_client_leaves(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(in_flight_max=1, wait_seconds_max=1.0))
    key = stage.deployment.account("acme", "alice")
    async with stage:
        behave(stage, held=True)
        room = stage.deployment.gateway.room
        first = asyncio.create_task(stage.client.chat(key, "first"))
        await until(lambda: room.taken)
        left = asyncio.create_task(stage.client.chat(key, "left"))
        await until(lambda: room.waiting or left.done())
        left.cancel()
        await until(lambda: not room.waiting)
        assert (await stage.client.chat(key, "late")).status == 429
        behave(stage)
        assert (await first).status == 200
        assert len(stage.engine.seen.calls) == 1
        await until(lambda: (room.taken, room.waiting) == (0, 0))


# What explains misses.


def question(stage: Stage, number: int) -> dict[str, Any]:
    body = {"model": stage.model.name, "messages": [{"role": "user", "content": f"q{number}"}]}
    return {"request": body}


async def test_comparisons_wait_in_turn_and_more_are_told_when_to_come_back(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model, settings=limited(waiting_max=2))
    alice = stage.deployment.account("acme", "alice")
    bob = stage.deployment.account("globex", "bob")
    async with stage:

        def ask(key: str, number: int) -> asyncio.Task[Answer]:
            sent = stage.client.send("POST", route.EXPLAIN, question(stage, number), key=key)
            return asyncio.create_task(sent)

        (texts,) = [one.texts for one in stage.deployment.gateway.fleet.instances]
        assert texts is not None
        busy = Event()
        texts.worker.submit(busy.wait, 60)
        flood = [ask(alice, number) for number in range(6)]
        await until(lambda: sum(one.done() for one in flood) == 3)
        assert texts.worker._work_queue.qsize() == 1, "one at a time: large requests wait there too"
        root = stage.deployment.account("hq", "root", roles=["operator"])
        assert await waiting(stage.client, root) == {"explain": 2}
        asked = ask(bob, 0)
        await until(lambda: sum(one.done() for one in flood) == 4)
        assert (await stage.client.chat(alice, "hi")).status == 200, "engines are not concerned"
        busy.set()
        assert (await asked).status == 200
        answers = await asyncio.gather(*flood)
        assert sorted(answer.status for answer in answers) == [200] * 2 + [429] * 4
        (refused, *_) = [answer for answer in answers if answer.status == 429]
        assert int(dict(refused.headers)[b"retry-after"]) >= 1


async def test_a_comparison_reads_no_more_than_it_may_cost(
    tmp_path: Path, model: SimulatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stage(tmp_path, model) as stage:
        key = stage.deployment.account("acme", "alice")
        names = []
        for text in (text_of("long ago", 60), "something else", "and another"):
            answer = await stage.client.chat(key, text)
            names.append(dict(answer.headers)[b"x-scopekv-request"].decode())
        message = {"role": "user", "content": text_of("long ago", 60)}
        body = {"request": {"model": stage.model.name, "messages": [message]}}
        for limit, found in ((route.COMPARED_BYTES_MAX, names[0]), (1, names[-1])):
            monkeypatch.setattr(route, "COMPARED_BYTES_MAX", limit)
            told = await stage.client.send("POST", route.EXPLAIN, body, key=key)
            assert told.json["compared_with"] == found


# What counts tokens.


async def test_counts_wait_in_turn_and_more_are_told_when_to_come_back(
    tmp_path: Path, model: SimulatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "PLACES", 1)
    stage = Stage(tmp_path, model, settings=limited(waiting_max=2))
    alice = stage.deployment.account("acme", "alice")
    bob = stage.deployment.account("globex", "bob")
    message = {"role": "user", "content": text_of("large", LARGE_BYTES // 4)}
    body = {"model": model.name, "max_tokens": 1, "messages": [message]}
    async with stage:
        (instance,) = stage.deployment.gateway.fleet.instances
        root = stage.deployment.account("hq", "root", roles=["operator"])
        assert instance.texts is not None
        instance.max_model_len = 1 << 20

        def ask(key: str) -> asyncio.Task[Answer]:
            return asyncio.create_task(stage.client.send("POST", COUNT_TOKENS, body, key=key))

        busy = Event()
        queue = instance.texts.worker._work_queue
        instance.texts.worker.submit(busy.wait, 60)
        await until(queue.empty)  # it has begun
        flood = [ask(alice) for _ in range(6)]
        await until(lambda: sum(one.done() for one in flood) == 3)
        assert queue.qsize() == 1, "it reads others' requests, too"
        assert await waiting(stage.client, root) == {"count_tokens": 2}
        asked = ask(bob)
        await until(lambda: sum(one.done() for one in flood) == 4)
        assert (await stage.client.chat(alice, "hi")).status == 200, "engines are not concerned"
        busy.set()
        assert (await asked).status == 200
        answers = await asyncio.gather(*flood)
        assert sorted(answer.status for answer in answers) == [200] * 2 + [429] * 4
        (refused, *_) = [answer for answer in answers if answer.status == 429]
        assert int(dict(refused.headers)[b"retry-after"]) >= 1
        assert refused.json["type"] == "error", "in the words of its own API"


# Providers beside the engines.


async def statuses(stage: ProvidersStage, name: str, count: int) -> list[int]:
    """Of so many requests at once, in the order of their ends."""
    import openai

    found = []

    async def one(number: int) -> None:
        try:
            await stage.chat(name, [{"role": "user", "content": f"q{number}"}])
            found.append(200)
        except openai.APIStatusError as error:
            found.append(error.status_code if "retry-after" in error.response.headers else -1)

    await asyncio.gather(*(one(number) for number in range(count)))
    return found


async def test_the_next_provider_of_a_model_serves_what_the_first_has_no_place_for(
    tmp_path: Path,
) -> None:
    routing = RoutingSettings(in_flight_max=2, waiting_max=2)
    async with SimulatedProvider({"k": "other"}) as other:
        other.held = True
        first = UpstreamSettings("a", UpstreamKind.OPENAI, other.url, (GPT,), (Credential("k"),))
        async with providers_stage(tmp_path, [first], routing) as stage:
            rooms = stage.deployment.gateway.upstreams.rooms()
            at_first = asyncio.create_task(statuses(stage, "alice", 2))
            await until(lambda: len(other.seen) == 2)
            beside = asyncio.create_task(statuses(stage, "alice", 2))
            await until(lambda: beside.done() or rooms["a"].waiting > 0)
            assert rooms["a"].waiting == 0, "nobody waits beside a free one"
            assert await beside == [200] * 2
            stage.provider.held = True
            more = asyncio.create_task(statuses(stage, "alice", 7))
            await until(lambda: rooms["a"].waiting == rooms["gpt"].waiting == 2)
            await until(lambda: rooms["gpt"].taken == 2)
            other.held = stage.provider.held = False
            assert sorted(await more) == [200] * 6 + [429], "only when all of them are full"
            assert await at_first == [200] * 2
            assert {(room.taken, room.waiting) for room in rooms.values()} == {(0, 0)}


async def test_a_tenant_that_floods_a_provider_keeps_nobody_out(tmp_path: Path) -> None:
    routing = RoutingSettings(in_flight_max=1, waiting_max=4)
    async with providers_stage(tmp_path, routing=routing) as stage:
        stage.provider.held = True
        flood = asyncio.create_task(statuses(stage, "alice", 12))
        rooms = stage.deployment.gateway.upstreams.rooms()
        room = rooms["gpt"]
        await until(lambda: room.waiting == 4 and room.taken == 1)
        asked = asyncio.create_task(statuses(stage, "bob", 2))
        await until(lambda: room._turns.waiting("globex") == 2)
        assert len(stage.provider.seen) == 1, "the others are not sent"
        assert await waiting(stage.plain(), stage.keys["root"]) == {"gpt": 4}
        assert rooms["claude"].taken == 0
        stage.provider.held = False
        assert await asked == [200, 200]
        assert sorted(await flood) == [200] * 3 + [429] * 9
        assert (room.taken, room.waiting) == (0, 0)
