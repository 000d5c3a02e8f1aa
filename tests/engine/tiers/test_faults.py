"""Tiers in trouble, with a real engine: every request is answered, no engine dies, none lies.

T1, T5, T6, T7 and T8 at the engine; each kind of damage is tried at the tier in tests/faults.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from scopekv.engines.embedded import EngineState
from scopekv.simulate.client import Answer
from scopekv.simulate.stage import text_of
from tests.contracts.object_servers import S3Server, ValkeyServers
from tests.engine.tiers.conftest import TRIES, Tiered

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
GREEDY: dict[str, Any] = {"max_tokens": 6, "logprobs": True, "top_logprobs": 5}


@pytest.fixture(scope="session")
def carol(tiered: Tiered) -> str:
    return tiered.deployment.account("acme", "carol")


async def ask(tiered: Tiered, key: str, text: str) -> tuple[int, Any]:
    answer: Answer = await tiered.client.chat(key, "", text, **GREEDY)
    assert answer.status == 200
    await tiered.settled()
    return answer.cached, answer.json["choices"][0]["logprobs"]["content"]


def files(tiered: Tiered) -> list[Path]:
    return sorted((tiered.folder / "tiers").rglob("r*/*"))


async def count(tiered: Tiered, tier: str, name: str) -> int:
    return int((await tiered.report())["tiers"][tier][name])


async def test_t1_a_corrupt_object_is_a_counted_miss_and_is_rewritten(
    tiered: Tiered, carol: str
) -> None:
    text = text_of("corrupt", 60)
    await ask(tiered, carol, text)
    good = await ask(tiered, carol, text)
    assert good[0] >= 2 * 32
    corrupt = await count(tiered, "directory", "corrupt")
    first = files(tiered)
    for path in first:
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    await tiered.forget(host=True, read=["directory"])
    after = await ask(tiered, carol, text)
    assert after[0] < good[0]
    assert await count(tiered, "directory", "corrupt") > corrupt
    again = 0
    for _ in range(TRIES):
        await tiered.forget(host=True, read=["directory"])
        if (again := (await ask(tiered, carol, text))[0]) == good[0]:
            break
    assert again == good[0], "rewritten, and read again"


async def test_t5_a_dead_store_costs_no_request_and_is_used_again(
    tiered: Tiered, carol: str, valkey: ValkeyServers
) -> None:
    text = text_of("reborn", 60)
    valkey.kill()
    try:
        await ask(tiered, carol, text)
        await tiered.forget(host=True)
        await ask(tiered, carol, text)
    finally:
        valkey.start()
    for _ in range(100):
        if not await count(tiered, "valkey", "suspended"):
            break
        await asyncio.sleep(0.1)
    stored = await count(tiered, "valkey", "stored")
    await ask(tiered, carol, text_of("after", 60))
    assert await count(tiered, "valkey", "stored") > stored


async def test_t6_a_store_that_hangs_holds_up_no_request(
    tiered: Tiered, carol: str, s3: S3Server
) -> None:
    text = text_of("hanging", 60)
    await ask(tiered, carol, text)
    good = await ask(tiered, carol, text)
    await tiered.forget(host=True)
    s3.send(signal.SIGSTOP)
    try:
        after = await ask(tiered, carol, text)
        assert [token["token"] for token in after[1]] == [token["token"] for token in good[1]]
    finally:
        s3.send(signal.SIGCONT)


async def test_t8_killed_in_the_middle_of_a_store_it_finds_its_disk_again(
    tiered: Tiered, carol: str
) -> None:
    text = text_of("killed", 60)
    await ask(tiered, carol, text)
    good = await ask(tiered, carol, text)
    storing = asyncio.create_task(tiered.client.chat(carol, "", text_of("lost", 60), max_tokens=1))
    await asyncio.sleep(0.3)
    epoch = tiered.deployment.gateway.fleet.instances[0].epoch
    os.killpg(tiered.engines.instances[0].pid, signal.SIGKILL)
    await asyncio.wait([storing])
    await until_state(tiered, EngineState.RESTARTING, EngineState.STARTING)
    await until_state(tiered, EngineState.READY)
    await found_again(tiered, epoch)
    found = await ask(tiered, carol, text)
    for _ in range(TRIES):
        if found[0] == good[0]:
            break
        await tiered.forget(host=True)
        found = await ask(tiered, carol, text)
    assert found == good, json.dumps(await tiered.report())
    assert await count(tiered, "directory", "loaded") >= 2


async def until_state(tiered: Tiered, *wanted: EngineState) -> None:
    for _ in range(1200):
        if set(tiered.engines.states.values()) <= set(wanted):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the engine is {tiered.engines.states}, not {wanted}")


async def found_again(tiered: Tiered, epoch: str) -> None:
    """Wait until the gateway has seen the engine's new run."""
    instance = tiered.deployment.gateway.fleet.instances[0]
    for _ in range(300):
        if instance.up and instance.epoch != epoch:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the gateway does not find the engine again")
