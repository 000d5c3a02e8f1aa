"""Two engines, a registry, and addresses for as many gateways as a test starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from scopekv.gateway.instances import InstanceAddress
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, text_of

BOTH = (0, 1)


@dataclass(slots=True)
class Site:
    """Two engines with events, a registry, and as many gateways as a test starts."""

    deployment: Deployment
    engines: list[SimulatedEngine]
    model: SimulatedModel

    def addresses(self, numbers: Sequence[int]) -> list[InstanceAddress]:
        return [
            InstanceAddress(f"engine-{n}", self.engines[n].url, ENGINE_KEY) for n in sorted(numbers)
        ]

    def calls(self) -> list[int]:
        return [len(engine.seen.calls) for engine in self.engines]

    def behave(self, behaviour: Behaviour) -> None:
        for engine in self.engines:
            engine.behaviour = behaviour


@asynccontextmanager
async def site_at(data: Path, sockets: Path, model: SimulatedModel) -> AsyncIterator[Site]:
    """`sockets`: a folder for the events', whose path is short."""
    deployment = Deployment(data)
    engines = [
        SimulatedEngine(
            model,
            keys_path=deployment.keys_path,
            api_key=ENGINE_KEY,
            events_endpoint=f"ipc://{sockets}/{number}",
        )
        for number in BOTH
    ]
    for engine in engines:
        await engine.start()
    yield Site(deployment, engines, model)
    await deployment.stop()
    for engine in engines:
        await engine.stop()


def flood(client: PlainClient, key: str, count: int) -> list[asyncio.Task[Answer]]:
    return [
        asyncio.create_task(client.chat(key, text_of(f"flood {n}", 60), stream=True))
        for n in range(count)
    ]
