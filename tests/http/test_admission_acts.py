"""More administrative acts than places: over HTTP, in the console, on cached contents.

Changes go one at a time over all gateways, and each that is denied is written down as well.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from scopekv.console import CONSOLE_PLACES
from scopekv.gateway import admin_serving
from scopekv.gateway.cached_contents import http as cached_contents
from scopekv.gateway.settings import GatewaySettings, RoutingSettings
from scopekv.simulate.browser import logged_in, secret_of
from scopekv.simulate.client import Answer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, until

pytestmark = pytest.mark.slow
Ask = Callable[[], Awaitable[Answer]]
WAITING_MAX = 6


async def over_http(stage: Stage, key: str) -> Ask:
    return lambda: stage.client.send("POST", "/admin/v1/orgs", {"name": "mine"}, key=key)


async def on_cached_contents(stage: Stage, key: str) -> Ask:
    return lambda: stage.client.send("DELETE", "/v1/cachedContents/doc_none", key=key)


async def in_the_console(stage: Stage, key: str) -> Ask:
    browser = await logged_in(stage.deployment.url, key)
    form = secret_of(await browser.get("/documents"))
    fields = {"form": form, "name": "d", "audience": "public", "text": "t"}
    return lambda: browser.post("/documents", fields)


@pytest.mark.parametrize(
    ("asking", "places", "at"),
    [
        (over_http, admin_serving.PLACES, "admin"),
        (on_cached_contents, cached_contents.PLACES, "cached_contents"),
        (in_the_console, CONSOLE_PLACES, "console"),
    ],
)
async def test_a_tenant_that_floods_keeps_no_other_from_its_acts(
    tmp_path: Path,
    model: SimulatedModel,
    asking: Callable[[Stage, str], Awaitable[Ask]],
    places: int,
    at: str,
) -> None:
    routing = RoutingSettings(waiting_max=WAITING_MAX)
    stage = Stage(tmp_path, model, settings=GatewaySettings((), port=0, routing=routing))
    account = stage.deployment.account
    bob, ann = account("globex", "bob"), account("acme", "ann")
    root = account("hq", "root", roles=["operator"])
    async with stage:
        flooding, other = await asking(stage, bob), await asking(stage, ann)
        registry: Any = stage.deployment.world.registry
        turn = registry.database._turn
        assert turn.acquire(timeout=10)  # what writes now is slow
        try:
            flood = [asyncio.ensure_future(flooding()) for _ in range(places + WAITING_MAX + 9)]
            await until(lambda: sum(one.done() for one in flood) == 9)
            told = (await stage.client.send("GET", "/metrics", key=root)).content.decode()
            found = re.search(rf'requests_waiting{{at="{at}",upstream=""}} (\S+)', told)
            assert found is not None
            assert float(found[1]) == WAITING_MAX
            asked = asyncio.ensure_future(other())
            await until(lambda: sum(one.done() for one in flood) == 10)
            assert not asked.done()
        finally:
            turn.release()
        assert (await asked).status in (403, 404), "it had its turn"
        answers = await asyncio.gather(*flood)
        counts = Counter(answer.status for answer in answers)
        assert counts[429] == 10
        assert all(b"retry-after" in dict(a.headers) for a in answers if a.status == 429)
        assert (await other()).status in (403, 404)
