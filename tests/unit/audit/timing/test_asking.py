"""Asking as a party: what is sent, what counts as lost, what ends an audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.timing import asking
from scopekv.audit.timing.asking import ERRORS_IN_A_ROW_MAX, Asker, Load, Lost, Party
from scopekv.audit.timing.prompts import Letters
from scopekv.errors import ConfigError, Unavailable
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel

KEY = "engine-key"
PARTY = Party("victim", KEY, "a-salt", "a-user")


@asynccontextmanager
async def asked(
    model: SimulatedModel, *, chat: bool = True
) -> AsyncIterator[tuple[SimulatedEngine, Asker]]:
    async with SimulatedEngine(model, keys_path=None, api_key=KEY) as engine:
        async with Endpoint(engine.url) as endpoint:
            yield engine, Asker(endpoint, model.name, chat, Letters("asking", 40))


@pytest.mark.parametrize("chat", [True, False])
async def test_one_token_of_a_stream_is_asked_for(model: SimulatedModel, chat: bool) -> None:
    async with asked(model, chat=chat) as (engine, asker):
        reply = await asker.ask(PARTY, asker.letters.fresh())
        (call,) = engine.seen.calls
    assert reply.cached_tokens == 0
    assert (call.body["max_tokens"], call.body["stream"]) == (1, True)
    assert (call.salt, call.body["user"]) == ("a-salt", "a-user")
    assert ("messages" in call.body) == chat


async def test_a_failed_request_is_lost_and_never_sent_again(
    model: SimulatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "FIRST_PAUSE_SECONDS", 0.0)
    async with asked(model) as (engine, asker):
        engine.behaviour.refuses = 503
        for _ in range(ERRORS_IN_A_ROW_MAX - 1):
            with pytest.raises(Lost):
                await asker.ask(PARTY, "x")
        with pytest.raises(Unavailable, match="in a row") as caught:
            await asker.ask(PARTY, "x")
        assert not isinstance(caught.value, Lost)
        assert len(engine.seen.calls) == asker.requests == ERRORS_IN_A_ROW_MAX
    assert asker.errors == {"503": ERRORS_IN_A_ROW_MAX}


async def test_a_refusal_that_will_not_pass_names_the_party_and_not_its_key(
    model: SimulatedModel,
) -> None:
    async with asked(model) as (_, asker):
        with pytest.raises(ConfigError, match="attacker 401") as caught:
            await asker.ask(Party("attacker", "sk-secret"), "x")
    assert "sk-secret" not in str(caught.value)


async def test_load_keeps_so_many_requests_under_way_and_counts_what_fails(
    model: SimulatedModel,
) -> None:
    async with asked(model) as (engine, asker):
        engine.behaviour.head_seconds = 0.02
        async with Load(asker, PARTY, 3) as load:
            while load.answered < 6:
                await asyncio.sleep(0.005)
            assert engine.seen.running <= 3
            engine.behaviour.refuses = 500
            while not load.lost:
                await asyncio.sleep(0.005)
    assert asker.requests == 0  # the load's are its own
    assert load.answered >= 6


def test_parties_that_an_endpoint_cannot_tell_apart() -> None:
    assert Party("a", "k").same_as(Party("b", "k"))
    assert not Party("a", "k", "salt").same_as(Party("b", "k"))
    assert "k-secret" not in repr(Party("a", "k-secret"))
