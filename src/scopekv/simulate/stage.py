"""A deployment on simulated engines, ready to be asked: what a test or a benchmark starts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel

ENGINE_KEY = "engine-key-that-no-client-may-see"


@dataclass(slots=True, repr=False)
class Stage:
    """Use as an async context manager. Engines may be given other behaviour before or after.

    `plugins`: one engine per entry, True for an engine with the plugin.
    """

    folder: Path
    model: SimulatedModel
    plugins: tuple[bool, ...] = (True,)
    settings: GatewaySettings | None = None
    instance_group: str = "default"
    deployment: Deployment = field(init=False)
    engines: list[SimulatedEngine] = field(init=False)
    client: PlainClient = field(init=False)

    def __post_init__(self) -> None:
        self.deployment = Deployment(self.folder, self.settings)
        self.engines = [
            SimulatedEngine(
                self.model,
                keys_path=self.deployment.keys_path if plugin else None,
                api_key=ENGINE_KEY,
                instance_group=self.instance_group,
            )
            for plugin in self.plugins
        ]

    @property
    def engine(self) -> SimulatedEngine:
        """The first engine."""
        return self.engines[0]

    async def __aenter__(self) -> Self:
        for engine in self.engines:
            await engine.start()
        await self.deployment.start(
            [
                InstanceAddress(f"engine-{number}", engine.url, engine.api_key)
                for number, engine in enumerate(self.engines)
            ]
        )
        self.client = PlainClient(self.deployment.url, self.model.name)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.deployment.stop()
        for engine in self.engines:
            await engine.stop()

    async def look(self) -> None:
        """Let the gateway see its engines, and warm them, as they are now."""
        fleet = self.deployment.gateway.fleet
        for instance in fleet.instances:
            await fleet.look(instance)
        for _ in range(2):  # one round may have begun before what is to be seen
            await self.deployment.gateway.warmer.settle()


def text_of(seed: str, words: int) -> str:
    """A text that no other seed has: so many made-up words, some tokens each, one text forever."""
    dice = random.Random(seed)  # noqa: S311 - reproducible on purpose
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = ("".join(dice.choices(letters, k=dice.randint(3, 8))) for _ in range(words))
    return f"{seed}: " + " ".join(made) + "."


async def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait by looking. Raises `TimeoutError` for what takes longer: it is broken, not slow."""
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110 - what is waited for is anything
            await asyncio.sleep(0.01)
