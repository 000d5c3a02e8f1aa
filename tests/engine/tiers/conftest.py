"""An engine with every tier: host memory, a directory, Valkey and S3, each a real server.

Its memory can be emptied and its outer tiers shut, so that a test knows what serves a hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from scopekv.cli.running import free_port
from scopekv.cli.up import plugin_environment
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.tiers import parse_tiers
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from tests.contracts.object_servers import (
    ACCESS_KEY,
    SECRET_KEY,
    VALKEY_PASSWORD,
    S3Server,
    ValkeyServers,
)
from tests.engine.conftest import settings_of

READ_SECONDS = 600
# A fetch that stalls on a busy machine is given up, and its blocks are computed (L9): ask again.
TRIES = 6
OUTER = ("directory", "valkey", "s3")


@dataclass(slots=True)
class Tiered:
    """The engine, the gateway before it, and the folder of its directory tier."""

    deployment: Deployment
    engine: EngineInstance
    engines: EmbeddedEngines
    direct: PlainClient
    client: PlainClient
    folder: Path

    async def forget(self, *, host: bool, read: Sequence[str] = OUTER) -> None:
        """Empty the engine's own memory, and host memory too.

        Of the outer tiers those of `read` serve from now on, whatever it costs: computing may beat
        a fetch on a busy machine, and would be what is done (L9).
        """
        media = ["engine", "host"] if host else ["engine"]
        body = {"media": media, "read": list(read), "seconds": READ_SECONDS}
        for _ in range(100):
            answer = await self._engine("POST", "/v1/scopekv/forget", body)
            if not any(line["busy"] for line in answer["lines"]):
                return
            await self.settled()
        raise AssertionError("the engine does not let go of its blocks")

    async def settled(self) -> dict[str, Any]:
        """Wait until no tier has a job; return the tiers' report.

        vLLM stores a request's last blocks to host memory with its next step, and from there with
        one more: make it take two.
        """
        step = {"model": self.client.model, "prompt": [1], "max_tokens": 1}
        for _ in range(2):
            await self._engine("POST", "/v1/completions", step)
        for _ in range(400):
            report = await self.report()
            if not report["pending"]:
                return report
            await asyncio.sleep(0.05)
        raise AssertionError("the tiers never come to rest")

    async def report(self) -> dict[str, Any]:
        return await self._engine("GET", "/v1/scopekv/tiers")

    async def _engine(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.direct.send(method, path, body, key=self.engine.api_key)
        assert answer.status == 200, (path, answer.status)
        return dict(answer.json)


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
    env = plugin_environment(deployment.world, "default", deployment.own_url) | {
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
            f"{s3.url().partition('&access_key_id')[0]},1GiB",
        )
    )
    engines = EmbeddedEngines(replace(settings, tiers=tiers))
    await engines.start()
    try:
        await engines.wait_ready()
        (engine,) = engines.instances
        await deployment.start([InstanceAddress(engine.name, engine.url, engine.api_key)])
        client = PlainClient(deployment.url, deployment.gateway.fleet.models()[0])
        direct = PlainClient(engine.url, client.model)
        yield Tiered(deployment, engine, engines, direct, client, folder)
        await client.close()
        await direct.close()
    finally:
        await deployment.stop()
        await engines.stop()
