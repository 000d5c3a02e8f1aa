"""An engine that is killed: the gateway says so, the engine comes back, its documents are warm."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from scopekv.engines.embedded import EmbeddedEngines, EngineState
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
Keys = dict[str, str]
RECOVERY_SECONDS_MAX = 150
SEEN_SECONDS_MAX = 6


async def test_a_killed_engine_comes_back_warm(
    engines: EmbeddedEngines,
    deployment: Deployment,
    client: PlainClient,
    keys: Keys,
    document: str,
) -> None:
    before = deployment.gateway.fleet.instances[0].epoch
    assert (await client.chat(keys["bob"], document, "before")).cached > 96
    os.killpg(engines.instances[0].pid, signal.SIGKILL)
    try:
        answer = await client.chat(keys["bob"], document, "while it is down")
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        await until(client, 503, SEEN_SECONDS_MAX)
    finally:
        row = await until(client, 200, RECOVERY_SECONDS_MAX, pinned=3)  # the tests after need it
    assert row["isolation"] == "scoped"
    assert engines.states == {"engine-0": EngineState.READY}
    assert deployment.gateway.fleet.instances[0].epoch not in ("", before)
    assert (await client.chat(keys["bob"], document, "after")).cached > 96
    assert (await client.chat(keys["alice"], document, "after")).cached > 96


async def until(client: PlainClient, status: int, seconds_max: float, *, pinned: int = 0) -> Any:
    """Wait for this answer of /readyz; the row of the one instance in it."""
    deadline = time.monotonic() + seconds_max
    while True:
        ready = await client.send("GET", "/readyz", key=None)
        row = ready.json["instances"][0]
        if ready.status == status and row["pinned"] >= pinned:
            return row
        assert time.monotonic() < deadline, row
        await asyncio.sleep(0.2)
