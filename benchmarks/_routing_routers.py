"""The routers that are compared, each as a way to send one request.

ScopeKV's are gateways in this process. Round-robin and least-loaded are choosers before one gateway
for each engine: the work and the isolation of a request are the same, only the choice is not.
The peers are programs of their own, before stock vLLM with a salt for each user.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from _router_places import PEERS
from _routing_engines import Engine
from _routing_workload import Arrival, User

from scopekv.cli.benchmark.requests import Target, Timed, target
from scopekv.cli.running import free_port
from scopekv.compose import World
from scopekv.engines.model import MODEL_NAME
from scopekv.engines.process import EngineProcess, log_tail
from scopekv.errors import ConfigError, ScopeKVError
from scopekv.gateway.app import Gateway
from scopekv.gateway.settings import GatewaySettings

SETTLE_SECONDS_MAX = 60.0
_PEER_FLAGS = ("--policy", "cache_aware", "--log-level", "error", "--host", "127.0.0.1")


class Sender(Protocol):
    """Sends a request; `salted` False leaves out what keeps users of the peers apart."""

    async def __call__(
        self, arrival: Arrival, *, max_tokens: int, salted: bool = True
    ) -> Timed: ...


@asynccontextmanager
async def gateway(world: World, engines: Sequence[Engine]) -> AsyncIterator[Gateway]:
    """A gateway before these engines that sends tickets and, with several, locates exactly."""
    settings = replace(
        GatewaySettings((), port=0, stop_seconds_max=2),
        instances=tuple(engine.address for engine in engines),
    )
    running = Gateway(settings, world)
    try:
        await running.start()
        await _settled(lambda: _unready(running, located=len(engines) > 1))
        yield running
    finally:
        await running.stop()


def _unready(running: Gateway, *, located: bool) -> str:
    """What a gateway waits for still, or nothing."""
    for instance in running.fleet.instances:
        if instance.isolation != "scoped" or instance.texts is None:
            return f"{instance.address.name} gets no tickets: {instance.reason}"
    feeds = running.locator.feeds
    if located and not (len(feeds) > 1 and all(feed.sure for feed in feeds.values())):
        return f"engines are not located: {running.locator.report()}"
    return ""


async def _settled(problem: Callable[[], str]) -> None:
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS_MAX
    while found := problem():
        if asyncio.get_running_loop().time() > deadline:
            raise RuntimeError(found)
        await asyncio.sleep(0.05)


@dataclass
class Chooser:
    """Round-robin, or fewest requests in flight and among equals the one longest not chosen."""

    places: Sequence[Target]
    keys: Mapping[User, str]
    least_loaded: bool
    in_flight: list[int] = field(init=False)
    chosen: list[int] = field(init=False)
    serial: int = 0

    def __post_init__(self) -> None:
        self.in_flight = [0] * len(self.places)
        self.chosen = [0] * len(self.places)

    async def __call__(self, arrival: Arrival, *, max_tokens: int, salted: bool = True) -> Timed:
        del salted
        place = min(range(len(self.places)), key=self._rank)
        self.serial += 1
        self.chosen[place] = self.serial
        self.in_flight[place] += 1
        try:
            key = self.keys[arrival.user]
            return await self.places[place].ask(arrival.prompt, key=key, max_tokens=max_tokens)
        finally:
            self.in_flight[place] -= 1

    def _rank(self, place: int) -> tuple[int, int]:
        return (self.in_flight[place] if self.least_loaded else 0, self.chosen[place])


@asynccontextmanager
async def scoped(
    world: World, groups: Sequence[Sequence[Engine]], keys: Mapping[User, str], *, least: bool
) -> AsyncIterator[Sender]:
    """One gateway for each group of engines, and a chooser among the gateways."""
    async with AsyncExitStack() as stack:
        places = []
        for group in groups:
            running = await stack.enter_async_context(gateway(world, group))
            url = f"http://127.0.0.1:{running.port}"
            places.append(await stack.enter_async_context(target(url, MODEL_NAME)))
        yield Chooser(places, keys, least)


@asynccontextmanager
async def peer(
    name: str, python: Path, folder: Path, engines: Sequence[Engine]
) -> AsyncIterator[Sender]:
    """Another project's router before stock engines, as it is set by default."""
    port = free_port("127.0.0.1")
    urls = [engine.instance.url for engine in engines]
    command = [str(python), "-m", PEERS[name], *_PEER_FLAGS, "--port", str(port)]
    command += ["--prometheus-port", str(free_port("127.0.0.1")), "--worker-urls", *urls]
    log = folder / f"{name}.log"
    environment = {key: os.environ[key] for key in ("HOME", "PATH", "LANG") if key in os.environ}
    process = await EngineProcess.start(command, env=environment, log=log, cwd=folder)
    try:
        async with target(f"http://127.0.0.1:{port}", MODEL_NAME) as server:
            await _answers(server, process, log)

            async def send(arrival: Arrival, *, max_tokens: int, salted: bool = True) -> Timed:
                salt = arrival.user.salt if salted else "everybody"
                more = {"cache_salt": salt}
                return await server.ask(
                    arrival.prompt, key="none", max_tokens=max_tokens, more=more
                )

            yield send
    finally:
        await process.stop(2)


async def _answers(server: Target, process: EngineProcess, log: Path) -> None:
    """Wait until a peer has found its engines."""
    for _ in range(int(SETTLE_SECONDS_MAX / 0.2)):
        if process.exit_code is not None:
            break
        try:
            await server.ask("hello", key="none", max_tokens=1)
        except ScopeKVError:
            await asyncio.sleep(0.2)
        else:
            return
    last = log_tail(log, lines_max=15, secrets=())
    raise ConfigError(f"{log.stem} does not answer:\n{last}")
