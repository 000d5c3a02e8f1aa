"""What `scopekv simulate` says the runs will be, from the speeds of the very engines they use.

The engines are calibrated as `scopekv calibrate` does it, all at once: in the runs they work at the
same time, too, on cores that share a memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from _routing_engines import POSITIONS, Engine
from _routing_workload import Shape

from scopekv.cli.calibrate import EngineAsked, measure
from scopekv.core.speeds import PrefillCurve
from scopekv.engines.model import MODEL_NAME
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.replay import replay
from scopekv.simulate.fleet.speeds import Speeds, as_json
from scopekv.simulate.fleet.tenants import TenantSpec
from scopekv.simulate.fleet.workloads import Conversations

BLOCK_TOKENS = 32
KV_BYTES_PER_TOKEN = 46_080  # SmolLM2-135M in float32
KEEPS = ("token_hit_rate", "ttft_ms_p50", "ttft_ms_p99")


async def calibrated(engines: Sequence[Engine]) -> list[Speeds]:
    """The speeds of each engine, measured while the others are measured."""
    asked = (
        EngineAsked(
            url=engine.instance.url,
            model=MODEL_NAME,
            key=engine.instance.api_key,
            tokens_max=POSITIONS // 2,
            concurrency_max=4,
            vocabulary=10_000,
            kv_bytes_per_token=KV_BYTES_PER_TOKEN,
            seed=number,
        )
        for number, engine in enumerate(engines)
    )
    found = await asyncio.gather(*(measure(one, lambda _: None) for one in asked))
    for engine in engines:
        await engine.forget()
    return list(found)


def predicted(route: str, found: Sequence[Speeds], blocks: int, shape: Shape) -> dict[str, Any]:
    """The figures of one run: on `found`, the engines' speeds, each with so many blocks.

    A fleet has one kind of engine: it is the one in the middle.
    """
    speeds = sorted(found, key=lambda one: _prefill_seconds(one.prefill.curve()))[len(found) // 2]
    plan = FleetPlan(
        instances=len(found),
        engine_tokens=blocks * BLOCK_TOKENS,
        tiers={},
        route=route,
        isolation=Isolation.LAYERED,
        tenants=TenantSpec(),
        speeds=speeds,
        seed=shape.seed,
    )
    figures = replay(plan, Conversations(**asdict(shape)).workload())
    return {name: figures[name] for name in KEEPS} | {"speeds": as_json(speeds)}


def _prefill_seconds(curve: PrefillCurve) -> float:
    return curve.seconds(0, POSITIONS // 2)
