"""A deployment on simulated engines with real tiers behind them, as an isolation audit's target."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.audit.isolation import EngineAccess, IsolationTarget
from scopekv.cli.audit.registrar import AuditRegistrar, forge_of, registered
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.opening import open_tier
from tests.contracts.object_servers import S3Server, ValkeyServers, free_ports
from tests.contracts.postgres_server import empty_database, postgres_running

ENGINE_KEY = "engine-key-of-the-audit"
Open = Callable[..., AbstractAsyncContextManager["Audited"]]


class Audited:
    """A running deployment and what an audit of it takes."""

    def __init__(
        self, deployment: Deployment, engines: list[SimulatedEngine], registrar: AuditRegistrar
    ) -> None:
        self.deployment, self.engines, self.registrar = deployment, engines, registrar
        model = engines[0].model
        self.target = IsolationTarget(
            url=deployment.url,
            model=model.name,
            members=registrar.members,
            keys=registrar.keys,
            engines=tuple(
                EngineAccess(f"engine-{number}", one.url, one.api_key, self._restart(one))
                for number, one in enumerate(engines)
            ),
            registrar=registrar,
            forge=forge_of(deployment.world, registrar, "default"),
            adapters=engines[0].adapters,
            operator_key=registrar.operator_key,
        )

    def _restart(self, engine: SimulatedEngine) -> Callable[[], Awaitable[None]]:
        async def restart() -> None:
            await engine.restart()
            fleet = self.deployment.gateway.fleet
            for instance in fleet.instances:
                await fleet.look(instance)

        return restart


@pytest.fixture
def audited(tmp_path: Path, model: SimulatedModel) -> Open:
    """Open a deployment: `audited(instances=1, urls=(), plugin=True, adapters=(), run="test")`.

    `urls`: of outer tiers; `directory` is one below the test's own folder for each engine.
    """

    @asynccontextmanager
    async def opened(
        *,
        instances: int = 1,
        urls: tuple[str, ...] | None = None,
        plugin: bool = True,
        adapters: tuple[str, ...] = (),
        run: str = "test",
        blocks_max: int = 4096,
        registry: str = "",
    ) -> AsyncIterator[Audited]:
        (port,) = free_ports(1)
        settings = GatewaySettings((), port=port, stop_seconds_max=0.5)
        deployment = Deployment(tmp_path, settings, registry=registry)
        engines = []
        async with AsyncExitStack() as stack:
            stack.push_async_callback(deployment.stop)
            for number in range(instances):
                engine = SimulatedEngine(
                    model,
                    keys_path=deployment.keys_path if plugin else None,
                    api_key=ENGINE_KEY,
                    adapters=adapters,
                    blocks_max=blocks_max,
                )
                if urls is not None:
                    own = [u.replace("directory", f"{tmp_path}/tier-{number}") for u in urls]
                    broker = BrokerClient(
                        BrokerSettings(deployment.own_url, deployment.world.instance_secret_path)
                    )
                    stack.callback(broker.close)
                    tiers = _tiers(engine, broker, own)
                    engine.put_behind(tiers)
                    stack.callback(tiers.close)
                engines.append(await stack.enter_async_context(engine))
            named = {f"engine-{number}": engine for number, engine in enumerate(engines)}
            await deployment.start(
                [InstanceAddress(name, one.url, one.api_key) for name, one in named.items()],
                restart=lambda name: named[name].restart(),
            )
            registrar = stack.enter_context(registered(deployment.world.registry, run))
            yield Audited(deployment, engines, registrar)

    return opened


def _tiers(engine: SimulatedEngine, broker: BrokerClient, urls: list[str]) -> SimulatedTiers:
    assert engine.plugin is not None
    keyring = Keyring(broker, time.monotonic)
    namespace = engine.plugin.namespace.fingerprint()
    tiers = [
        open_tier(
            url,
            capacity_bytes=512 << 20,
            keyring=keyring,
            namespace=namespace,
            block_bytes=BLOCK_BYTES,
        )
        for url in urls
    ]
    return SimulatedTiers(keyring, tiers, host_blocks=4096)


@contextlib.contextmanager
def _running(servers: ValkeyServers | S3Server) -> Iterator[str]:
    try:
        servers.start()
        yield servers.url()
    finally:
        servers.kill()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_running() as server:
        yield empty_database(server, "audited")


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _running(ValkeyServers(tmp_path_factory.mktemp("valkey"))) as url:
        yield url


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _running(S3Server(tmp_path_factory.mktemp("s3"))) as url:
        yield url
