"""Real engines with tiers, and a gateway before them, for the benchmarks of tiers.

Registry, keys, logs and tiers lie in a folder that the caller removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scopekv.cli.benchmark.requests import Target, Timed, target
from scopekv.cli.running import free_port
from scopekv.cli.up import plugin_environment
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.model import MODEL_NAME
from scopekv.engines.settings import EngineSettings
from scopekv.engines.tiers import parse_tiers
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment


@dataclass
class Tiered:
    """One real engine with tiers."""

    deployment: Deployment
    engine: EngineInstance
    gateway: Target
    direct: PlainClient

    async def ask(self, key: str, prompt: str, *, max_tokens: int = 1) -> Timed:
        """One streamed completion through the gateway."""
        return await self.gateway.ask(prompt, key=key, max_tokens=max_tokens)

    async def report(self) -> dict[str, Any]:
        answer = await self.direct.send("GET", "/v1/scopekv/tiers", key=self.engine.api_key)
        return dict(answer.json)

    async def settled(self) -> dict[str, Any]:
        """Wait until no tier has a job; return the tiers' report."""
        for _ in range(600):
            report = await self.report()
            if not report["pending"]:
                return report
            await asyncio.sleep(0.05)
        raise RuntimeError("the tiers never come to rest")

    async def forget(self, *, host: bool) -> None:
        """Empty the engine's own memory, and host memory too."""
        path = f"/reset_prefix_cache?reset_external={str(host).lower()}"
        for _ in range(100):
            await self.settled()
            answer = await self.direct.send("POST", path, key=self.engine.api_key)
            if answer.json["success"]:
                return
        raise RuntimeError("the engine does not let go of its blocks")


@asynccontextmanager
async def tiered(
    folder: Path,
    model_dir: Path,
    cache_dir: Path,
    tiers: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    max_model_len: int = 8192,
    arguments: tuple[str, ...] = (),
) -> AsyncIterator[Tiered]:
    """One engine with all cores. `tiers` as for `scopekv up --tier`; stopped at the end."""
    await asyncio.to_thread(folder.mkdir, 0o700)
    port = free_port("127.0.0.1")
    deployment = Deployment(folder, GatewaySettings((), port=port, stop_seconds_max=2))
    env = plugin_environment(deployment.world, "default", f"http://127.0.0.1:{port}") | {
        "VLLM_CACHE_ROOT": str(cache_dir),
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
        **(environment or {}),
    }
    engines = EmbeddedEngines(
        EngineSettings(
            model_dir=model_dir,
            data_dir=folder,
            max_model_len=max_model_len,
            extra_env=env,
            extra_args=arguments,
            tiers=parse_tiers(tuple(tiers)),
        )
    )
    try:
        await engines.start()
        await engines.wait_ready()
        (engine,) = engines.instances
        await deployment.start([InstanceAddress(engine.name, engine.url, engine.api_key)])
        direct = PlainClient(engine.url, MODEL_NAME)
        async with target(deployment.url, MODEL_NAME) as gateway:
            yield Tiered(deployment, engine, gateway, direct)
        await direct.close()
    finally:
        await deployment.stop()
        await engines.stop()
