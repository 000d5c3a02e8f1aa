"""An engine that is killed: the gateway says so, the engine comes back, its documents are warm."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from scopekv.engines.embedded import EmbeddedEngines, EngineState
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
Keys = dict[str, str]
RECOVERY_SECONDS_MAX = 150


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
    answer = await client.chat(keys["bob"], document, "while it is down")
    assert (answer.status, answer.error["code"]) == (503, "unavailable")
    ready = await client.send("GET", "/readyz", key=None)
    assert (ready.status, ready.json["instances"][0]["isolation"]) == (503, "unreachable")
    await until_warm(client)
    assert engines.states == {"engine-0": EngineState.READY}
    assert deployment.gateway.fleet.instances[0].epoch not in ("", before)
    assert (await client.chat(keys["bob"], document, "after")).cached > 96
    assert (await client.chat(keys["alice"], document, "after")).cached > 96


async def until_warm(client: PlainClient) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while True:
        ready = await client.send("GET", "/readyz", key=None)
        row = ready.json["instances"][0]
        if ready.status == 200 and row["pinned"] >= 3:
            assert row["isolation"] == "scoped"
            return
        assert time.monotonic() < deadline, row
        await asyncio.sleep(0.5)
