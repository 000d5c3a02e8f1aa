"""An engine with every tier: host memory, a directory, Valkey and S3, each a real server.

Its cache can be emptied from the nearest tier outwards, so that a test knows what serves a hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from scopekv.adapters.objects import open_store
from scopekv.cli.running import free_port
from scopekv.cli.up import plugin_environment
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.tiers import parse_tiers
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.store.settings import TierSettings
from tests.contracts.object_servers import (
    ACCESS_KEY,
    SECRET_KEY,
    VALKEY_PASSWORD,
    S3Server,
    ValkeyServers,
)
from tests.engine.conftest import settings_of

# On a busy machine computing may beat a fetch, and then it is what is done (L9): ask again.
TRIES = 6
OUTER = ("directory", "valkey", "s3")


@dataclass(slots=True)
class Tiered:
    """The engine, the gateway before it, and its stores as their owner sees them."""

    deployment: Deployment
    engine: EngineInstance
    engines: EmbeddedEngines
    direct: PlainClient
    client: PlainClient
    folder: Path
    stores: dict[str, ObjectStore]

    async def forget(self, *, host: bool) -> None:
        """Empty the engine's own memory, and host memory too."""
        path = f"/reset_prefix_cache?reset_external={str(host).lower()}"
        for _ in range(100):
            answer = await self.direct.send("POST", path, key=self.engine.api_key)
            if answer.json["success"]:
                return
            await self.settled()
        raise AssertionError("the engine does not let go of its blocks")

    async def settled(self) -> dict[str, Any]:
        """Wait until no tier has a job; return the tiers' report."""
        for _ in range(400):
            report = await self.report()
            if not report["pending"]:
                return report
            await asyncio.sleep(0.05)
        raise AssertionError("the tiers never come to rest")

    async def report(self) -> dict[str, Any]:
        answer = await self.direct.send("GET", "/v1/scopekv/tiers", key=self.engine.api_key)
        return dict(answer.json)

    async def wipe(self, *names: str) -> None:
        """Delete every object of these stores behind the engine's back, and let it forget them.

        What a shared store has is remembered for `presence_seconds`.
        """
        for name in names:
            if name == "directory":
                for path in (self.folder / "tiers").rglob("r*/*"):
                    path.unlink()
            else:
                store = self.stores[name]
                store.delete([stat.key for stat in list(store.objects())])
        if set(names) & set(self.stores):
            await asyncio.sleep(TierSettings(capacity_bytes=1).presence_seconds + 0.5)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    servers = ValkeyServers(tmp_path_factory.mktemp("valkey"))
    servers.start()
    yield servers
    servers.kill()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tiered(
    model_dir: Path,
    data_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
    valkey: ValkeyServers,
    s3: S3Server,
) -> AsyncIterator[Tiered]:
    folder = tmp_path_factory.mktemp("tiered")
    port = free_port("127.0.0.1")
    deployment = Deployment(folder, GatewaySettings((), port=port, stop_seconds_max=2))
    urls = {"valkey": valkey.url(), "s3": s3.url()}
    env = plugin_environment(deployment.world, "default", deployment.own_url) | {
        "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
        "SCOPEKV_VALKEY_PASSWORD": VALKEY_PASSWORD,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    settings = settings_of(model_dir, data_dir, folder, env)
    tiers = parse_tiers(
        (
            "host=256MiB",
            f"directory={folder / 'tiers'},1GiB",
            f"valkey://127.0.0.1:{valkey.ports[0]}/0,1GiB",
            f"{urls['s3'].partition('&access_key_id')[0]},1GiB",
        )
    )
    engines = EmbeddedEngines(replace(settings, tiers=tiers))
    await engines.start()
    stores = {name: open_store(url) for name, url in urls.items()}
    try:
        await engines.wait_ready()
        (engine,) = engines.instances
        await deployment.start([InstanceAddress(engine.name, engine.url, engine.api_key)])
        client = PlainClient(deployment.url, deployment.gateway.fleet.models()[0])
        direct = PlainClient(engine.url, client.model)
        yield Tiered(deployment, engine, engines, direct, client, folder, stores)
        await client.close()
        await direct.close()
    finally:
        await deployment.stop()
        await engines.stop()
        for store in stores.values():
            store.close()
