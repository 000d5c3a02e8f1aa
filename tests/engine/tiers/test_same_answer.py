"""L7 and I2: the same answer from every tier, and none across a scope."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.simulate.client import Answer
from scopekv.simulate.stage import text_of
from tests.engine.tiers.conftest import OUTER, TRIES, Tiered

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
GREEDY: dict[str, Any] = {"max_tokens": 8, "logprobs": True, "top_logprobs": 5}


def told(answer: Answer) -> tuple[int, list[Any]]:
    return answer.cached, answer.json["choices"][0]["logprobs"]["content"]


@pytest.fixture(scope="session")
def keys(tiered: Tiered) -> dict[str, str]:
    accounts = (("acme", "alice"), ("acme", "ann"), ("globex", "bob"))
    return {name: tiered.deployment.account(org, name) for org, name in accounts}


async def test_l7_every_tier_gives_bit_for_bit_the_same_answer(
    tiered: Tiered, keys: dict[str, str]
) -> None:
    text = text_of("ledger", 90)

    async def ask(name: str) -> tuple[int, list[Any]]:
        answer = told(await tiered.client.chat(keys[name], "", text, **GREEDY))
        await tiered.settled()
        return answer

    cold = await ask("alice")
    engine = await ask("alice")
    assert cold[0] == 0
    assert engine[0] >= 3 * 32
    await tiered.forget(host=False, read=())
    found = {"engine": engine, "host": await ask("alice")}
    for tier in OUTER:
        for _ in range(TRIES):
            await tiered.forget(host=True, read=[tier])
            before = (await tiered.report())["tiers"][tier]["loaded"]
            found[tier] = await ask("alice")
            loaded = (await tiered.report())["tiers"][tier]["loaded"] - before
            if loaded and found[tier][0] == engine[0]:
                break
        else:
            raise AssertionError(f"{tier} was never fetched from")
    for source, answer in found.items():
        assert answer == engine, source


async def test_i2_no_tier_serves_another_scope(tiered: Tiered, keys: dict[str, str]) -> None:
    for tier in ("engine", "host", *OUTER):
        text = text_of(f"diary {tier}", 60)

        async def cached(name: str, text: str = text) -> int:
            answer = await tiered.client.chat(keys[name], "", text, max_tokens=1)
            await tiered.settled()
            return answer.cached

        async def only(tier: str = tier) -> None:
            if tier != "engine":
                await tiered.forget(host=tier != "host", read=[tier] if tier in OUTER else ())

        assert await cached("alice") == 0
        await only()
        assert await cached("bob") == 0, tier
        assert await cached("ann") == 0, tier
        hits = 0
        for _ in range(TRIES):
            await only()
            if hits := await cached("alice"):
                break
        assert hits >= 2 * 32, f"{tier}: a hit within the scope"
