"""Straight to the engine, around the gateway: a ticket that is not good gives nothing (L3)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scopekv.core.tickets import audience_id
from scopekv.engines.embedded import EngineInstance
from scopekv.simulate.client import PlainClient
from scopekv.simulate.tickets import TicketMaker

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
BLOCK = 32
SCOPES = ["shared", "mine"]
Ask = Callable[[list[int], object], Awaitable[int]]


@pytest.fixture
def ask(direct: PlainClient, engine: EngineInstance) -> Ask:
    """Send token ids with a ticket; cached tokens of the answer."""

    async def send(ids: list[int], ticket: object) -> int:
        fields: dict[str, Any] = {"max_tokens": 1, "cache_salt": "same-for-all"}
        if ticket is not None:
            fields["kv_transfer_params"] = {"scopekv": ticket}
        return (await direct.complete(engine.api_key, ids, **fields)).cached

    return send


def prompt_ids(seed: int) -> list[int]:
    return [100 + (seed * 7919 + index * 104729) % 40000 for index in range(5 * BLOCK)]


def altered(text: str, at: int) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


async def test_bad_tickets_read_nothing_and_a_good_one_reads_the_cache(
    ask: Ask, tickets: TicketMaker, status: Callable[[], Awaitable[Any]]
) -> None:
    ids, ends = prompt_ids(1), [4 * BLOCK]
    now = time.time_ns() // 1_000_000
    stolen = tickets.text(ids, ends, SCOPES)
    assert await ask(ids, stolen) == 0
    good = tickets.text(ids, ends, SCOPES)
    other_text = tickets.text(prompt_ids(2), ends, SCOPES)
    bad = {
        "absent": None,
        "malformed": good[:-1],
        "bad_signature": altered(good, 60),
        "expired": tickets.text(ids, ends, SCOPES, issued_ms=now - 120_000),
        "not_yet": tickets.text(ids, ends, SCOPES, issued_ms=now + 120_000),
        "other_audience": tickets.text(ids, ends, SCOPES, audience=audience_id("elsewhere")),
        "other_namespace": tickets.text(ids, ends, SCOPES, namespace=bytes(32)),
        "unknown_key": tickets.text(ids, ends, SCOPES, key_id=bytes(8)),
        "used_up": stolen,
        "digest_mismatch": other_text,
    }
    before = (await status())["tickets"]
    for reason, ticket in bad.items():
        assert await ask(ids, ticket) == 0, reason
    odd_ones: tuple[object, ...] = (7, [], {"a": 1}, "", "é", "x" * 9000)
    for odd in odd_ones:
        assert await ask(ids, odd) == 0
    after = (await status())["tickets"]
    for reason in bad:
        assert after.get(reason, 0) > before.get(reason, 0), reason
    assert await ask(ids, good) == 4 * BLOCK


async def test_requests_without_a_ticket_meet_nobody_not_even_each_other(
    ask: Ask, tickets: TicketMaker
) -> None:
    ids = prompt_ids(3)
    assert [await ask(ids, None) for _ in range(3)] == [0, 0, 0]
    for expected in (0, 4 * BLOCK):
        assert await ask(ids, tickets.text(ids, [4 * BLOCK], SCOPES)) == expected


async def test_offsets_moved_past_the_digest_narrow_to_the_last_scope(
    ask: Ask, tickets: TicketMaker
) -> None:
    """A ticket for a short public prefix cannot be stretched over a longer text."""
    ids = prompt_ids(4)
    await ask(ids, tickets.text(ids, [4 * BLOCK], SCOPES))
    short = tickets.ticket(ids, [BLOCK], ["shared", "thief"])
    closed, rest = short.grants
    object.__setattr__(closed, "end", 4 * BLOCK)  # the digest is still that of the first block
    assert await ask(ids, tickets.sign(short)) == 0
    honest = tickets.text(ids, [BLOCK], ["shared", "thief"])
    assert await ask(ids, honest) == BLOCK
    assert rest.end is None


async def test_a_permitted_prefix_does_not_open_the_blocks_after_it(
    ask: Ask, tickets: TicketMaker
) -> None:
    ids = prompt_ids(5)
    await ask(ids, tickets.text(ids, [2 * BLOCK], ["public", "alice"]))
    bob = tickets.text(ids, [2 * BLOCK], ["public", "bob"])
    assert await ask(ids, bob) == 2 * BLOCK
    alice = tickets.text(ids, [2 * BLOCK], ["public", "alice"])
    assert await ask(ids, alice) == 4 * BLOCK


async def test_status_pin_and_unpin(
    ask: Ask, tickets: TicketMaker, direct: PlainClient, engine: EngineInstance
) -> None:
    ids, key = prompt_ids(6), engine.api_key
    await ask(ids, tickets.text(ids, [4 * BLOCK], SCOPES))

    async def call(path: str, body: Any, *, as_key: str | None = key) -> Any:
        return await direct.send("POST", f"/v1/scopekv/{path}", body, key=as_key)

    grant = tickets.text(ids, [4 * BLOCK], SCOPES)
    body = {"label": "test", "ticket": grant, "token_ids": ids}
    assert (await call("pin", body)).json == {"held": 4, "missing": 0}
    status = (await direct.send("GET", "/v1/scopekv/status?live=true", key=key)).json
    assert status["pinned"]["test"] == 4
    assert status["self_check"] == "ok"
    assert (await call("pin", body)).status == 409, "the ticket is used up"
    assert (await call("pin", body | {"ticket": 5})).status == 400
    assert (await call("pin", body | {"token_ids": ["x"]})).status == 400
    assert (await call("unpin", {"label": "test"})).json == {"released": 4}
    assert (await call("unpin", {"label": "test"})).json == {"released": 0}
    for as_key in (None, "wrong"):
        assert (await call("pin", body, as_key=as_key)).status == 401
        assert (await direct.send("GET", "/v1/scopekv/status?live=true", key=as_key)).status == 401
