"""Real engines for the benchmark of routing: little memory, one thread and one core each.

Everything lies in a folder that the caller removes; nothing runs on after the block.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from scopekv.cli.benchmark.requests import Target, counter, target
from scopekv.cli.up import plugin_environment
from scopekv.compose import World
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.events import events_folder
from scopekv.engines.model import MODEL_NAME
from scopekv.engines.settings import EngineSettings
from scopekv.errors import ConfigError
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings

POSITIONS = 1024
_ANSWERED = "vllm:request_success_total"


@dataclass(frozen=True, slots=True)
class Engine:
    """One running engine. `server` talks to it directly."""

    name: str
    engines: EmbeddedEngines
    server: Target

    @property
    def instance(self) -> EngineInstance:
        """As it is now: a restart changes its process."""
        return self.engines.instances[0]

    @property
    def address(self) -> InstanceAddress:
        return InstanceAddress(self.name, self.instance.url, self.instance.api_key)

    async def answered(self) -> int:
        """How many requests it has finished since it started."""
        return round(await counter(self.server, _ANSWERED))

    async def forget(self) -> None:
        """Empty its cache. Raises `RuntimeError` where it does not let go of its blocks."""
        key = self.instance.api_key.encode()
        headers = [(b"authorization", b"Bearer " + key)]
        for _ in range(100):
            answer = await self.server.pool.request(
                "POST", "/reset_prefix_cache", headers, b"", timeout_seconds=30
            )
            async with answer:
                if b"true" in await answer.read(1 << 16):
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"{self.name} does not let go of its blocks")


@dataclass(frozen=True, slots=True)
class EngineMaker:
    """What all engines of the benchmark have in common."""

    folder: Path
    model_dir: Path
    cache_dir: Path  # vLLM's own caches, kept between runs

    def settings(
        self, name: str, *, blocks: int, core: int | None, extra_env: Mapping[str, str]
    ) -> EngineSettings:
        """`core` None: all of them. Without plugin variables: stock vLLM, without an API key.

        Routers that know of no key for an engine could not call it otherwise.
        """
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        if core is not None:  # the whole process, and it again when it is restarted
            command = [_program("taskset"), "-c", str(core), *command]
        if not extra_env:
            command = [_program("env"), "-u", "VLLM_API_KEY", *command]
        return EngineSettings(
            model_dir=self.model_dir,
            data_dir=folder,
            threads=0 if core is None else 1,
            max_model_len=POSITIONS,
            program=tuple(command),
            extra_args=("--num-gpu-blocks-override", str(blocks)),
            extra_env={
                "VLLM_CACHE_ROOT": str(self.cache_dir),
                "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
                **extra_env,
            },
            events_dir=events_folder(folder) if extra_env and core is not None else None,
        )

    @asynccontextmanager
    async def running(
        self, names: Sequence[str], *, blocks: int, world: World | None
    ) -> AsyncIterator[list[Engine]]:
        """Engines of these names, ready: one with all cores, or each with a core of its own.

        `world` None: stock vLLM.
        """
        group = GatewaySettings(()).instance_group
        extra = plugin_environment(world, group, "") if world is not None else {}
        cores = sorted(os.sched_getaffinity(0))
        if 1 < len(names) > len(cores):
            raise ConfigError(f"{len(names)} engines need as many cores; there are {len(cores)}")
        async with AsyncExitStack() as stack:
            started = []
            for number, name in enumerate(names):
                core = cores[number] if len(names) > 1 else None
                settings = self.settings(name, blocks=blocks, core=core, extra_env=extra)
                engines = EmbeddedEngines(settings)
                stack.push_async_callback(engines.stop)
                await engines.start()
                started.append((name, engines))
            await asyncio.gather(*(engines.wait_ready() for _, engines in started))
            found = []
            for name, engines in started:
                url = engines.instances[0].url
                server = await stack.enter_async_context(target(url, MODEL_NAME))
                found.append(Engine(name, engines, server))
            yield found


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ConfigError(f"this benchmark needs the program {name}")
    return path
