"""One engine with the plugin and one without, started once for every test of this folder.

Both are the real vLLM with the real small model. The first has a gateway and a registry before it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import zmq
from openai import AsyncOpenAI

from scopekv.cli.running import free_port
from scopekv.cli.up import plugin_environment
from scopekv.core.blocks import Fingerprint
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.settings import EngineSettings
from scopekv.engines.tiers import DEFAULT_TIERS, parse_tiers
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.stage import text_of
from scopekv.simulate.tickets import TicketMaker

THREADS = 2
READY_SECONDS_MAX = 280.0  # where others use the machine as well; a test has 300
Keys = dict[str, str]


@pytest.fixture(scope="session")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the registry, the keys, the logs and the event socket are."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture(scope="session")
def events_endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the engine publishes its KV events: a socket file, short enough for a socket name."""
    return f"ipc://{tmp_path_factory.mktemp('ev')}/kv"


def settings_of(
    model_dir: Path, data_dir: Path, folder: Path, env: dict[str, str], args: tuple[str, ...] = ()
) -> EngineSettings:
    cache = {"VLLM_CACHE_ROOT": str(data_dir / "cache" / "vllm")}
    return EngineSettings(
        model_dir=model_dir,
        data_dir=folder,
        threads=THREADS,
        extra_env=cache | env,
        extra_args=args,
        ready_seconds_max=READY_SECONDS_MAX,
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engines(
    model_dir: Path, data_dir: Path, engine_folder: Path, events_endpoint: str, written: Deployment
) -> AsyncIterator[EmbeddedEngines]:
    """The engine with the plugin, its log at DEBUG, its KV events on a socket."""
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": events_endpoint,
        "topic": "kv",
    }
    env = plugin_environment(written.world, "default", written.own_url)
    args = ("--kv-events-config", json.dumps(events))
    settings = settings_of(
        model_dir, data_dir, engine_folder, env | {"VLLM_LOGGING_LEVEL": "DEBUG"}, args
    )
    running = EmbeddedEngines(replace(settings, tiers=parse_tiers(DEFAULT_TIERS)))
    await running.start()
    try:
        await running.wait_ready()
        yield running
    finally:
        await running.stop()


@pytest.fixture(scope="session")
def written(engine_folder: Path) -> Deployment:
    """The registry with its principals and documents, before any engine is there."""
    port = free_port("127.0.0.1")  # known before the engine starts, which asks it for keys
    return Deployment(engine_folder, GatewaySettings((), port=port, stop_seconds_max=2))


@pytest.fixture(scope="session")
def document() -> str:
    """The public document: warmed in the engine before anybody asks."""
    return text_of("manual", 60)


@pytest.fixture(scope="session")
def keys(written: Deployment, document: str) -> Keys:
    """API keys by name: alice and ann of acme, bob of globex, desk (a service account of acme).

    first of acme and second of globex are for the one test that counts their first requests.
    """
    written.publish("manual", "public", document)
    return {
        "alice": written.account("acme", "alice"),
        "ann": written.account("acme", "ann"),
        "bob": written.account("globex", "bob"),
        "desk": written.account("acme", "desk", service=True),
        "first": written.account("acme", "first"),
        "second": written.account("globex", "second"),
    }


@pytest.fixture(scope="session")
def events(events_endpoint: str) -> Any:
    """A subscriber of the engine's KV events, which keeps all that is published."""
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.SUBSCRIBE, b"")
    socket.connect(events_endpoint)
    yield socket
    socket.close(0)
    context.term()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployment(
    written: Deployment, keys: Keys, events: Any, engines: EmbeddedEngines
) -> AsyncIterator[Deployment]:
    """The gateway in front of the engine, its public document pinned."""
    await written.start([InstanceAddress(i.name, i.url, i.api_key) for i in engines.instances])
    yield written
    await written.stop()


@pytest.fixture(scope="session")
def engine(engines: EmbeddedEngines, deployment: Deployment) -> EngineInstance:
    """The engine itself, for requests that go around the gateway."""
    return engines.instances[0]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(deployment: Deployment) -> AsyncIterator[PlainClient]:
    """A client of the gateway."""
    made = PlainClient(deployment.url, deployment.gateway.fleet.models()[0])
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def direct(engine: EngineInstance, client: PlainClient) -> AsyncIterator[PlainClient]:
    """A client of the engine itself; its key is `engine.api_key`."""
    made = PlainClient(engine.url, client.model)
    yield made
    await made.close()


@pytest.fixture
def tickets(deployment: Deployment) -> TicketMaker:
    fingerprint = deployment.gateway.fleet.instances[0].fingerprint
    assert fingerprint is not None
    return TicketMaker(deployment.world, Fingerprint(fingerprint))


@pytest.fixture
def status(direct: PlainClient, engine: EngineInstance) -> Callable[[], Awaitable[Any]]:
    """What the plugin says of itself now."""

    async def ask() -> Any:
        return (await direct.send("GET", "/v1/scopekv/status?live=true", key=engine.api_key)).json

    return ask


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def openai(deployment: Deployment) -> AsyncIterator[AsyncOpenAI]:
    """The openai package, pointed at the gateway; take `.with_options(api_key=...)`."""
    async with AsyncOpenAI(base_url=f"{deployment.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stock(
    model_dir: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineInstance]:
    """Stock vLLM on the same model: no plugin, otherwise the same flags and threads."""
    folder = tmp_path_factory.mktemp("stock")
    running = EmbeddedEngines(settings_of(model_dir, data_dir, folder, {}))
    (instance,) = await running.start()
    try:
        await running.wait_ready()
        yield instance
    finally:
        await running.stop()
