"""Conservation: whatever became of requests, every place anywhere is free again afterwards."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from scopekv.gateway.settings import RoutingSettings
from scopekv.simulate.client import CHAT
from scopekv.simulate.stage import until
from tests.http.providers_stage import CLAUDE, GPT, providers_stage

pytestmark = pytest.mark.slow
PATHS = (CHAT, "/v1/messages", "/v1/messages/count_tokens", "/v1/responses")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_place_is_free_after_any_mix_of_ends(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    routing = RoutingSettings(in_flight_max=3, waiting_max=6, wait_seconds_max=0.5)
    async with providers_stage(tmp_path, routing=routing) as stage:
        client, provider = stage.plain(), stage.provider
        gateway = stage.deployment.gateway

        async def ask() -> None:
            path = dice.choice(PATHS)
            body: dict[str, Any] = {
                "model": dice.choice((GPT, CLAUDE, "none")),
                "messages": dice.choice(([{"role": "user", "content": "hi"}], [], "x")),
                "input": dice.choice(("hi", 5)),
                "max_tokens": 4,
                "stream": path != PATHS[2] and dice.random() < 0.5,
            }
            method, path, given = dice.choice(
                (
                    ("POST", path, body),
                    ("POST", path, body),
                    ("POST", "/admin/v1/orgs", {"name": "x"}),
                    ("GET", "/v1/cachedContents", None),
                    ("DELETE", "/v1/cachedContents/none", None),
                    ("POST", "/v1/scopekv/explain", {"request": body}),
                )
            )
            key = dice.choice((stage.keys["alice"], stage.keys["bob"], "sk-scopekv-nobody"))
            asked = asyncio.create_task(client.send(method, path, given, key=key))
            await asyncio.wait([asked], timeout=dice.choice((0.001, 0.02, 1.0)))
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

        for _ in range(6):
            provider.fails = [dice.choice((400, 401, 429, 500, 529)) for _ in range(5)]
            provider.interrupts = dice.choice((b"", b'data: {"error":{"message":"m"}}\n\n'))
            provider.held = dice.random() < 0.3
            await asyncio.gather(*(ask() for _ in range(40)))
            provider.held = False
        await client.close()
        rooms = dict(gateway.rooms)
        assert len(rooms) == 9
        await until(lambda: all((r.taken, r.waiting) == (0, 0) for r in rooms.values()), 20)
        provider.fails, provider.interrupts = [], b""
        answer = await stage.chat("alice", [{"role": "user", "content": "hi"}])
        assert answer.choices[0].message.content == "four words of answer"
