"""What `revoke.py` runs on: two instances with host memory, directory, Valkey and S3 tiers.

Valkey and S3 are real servers. The engines are simulated ones with the real tiers, or real ones.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests.contracts

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.adapters.objects import open_store
from scopekv.cli.running import free_port
from scopekv.cli.up import plugin_environment
from scopekv.core.chains import Tag, holds_any, tag, tags_of
from scopekv.core.receipts import read_pair
from scopekv.engines.embedded import EmbeddedEngines
from scopekv.engines.settings import EngineSettings
from scopekv.engines.tiers import parse_tiers
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.opening import open_tier
from tests.contracts.object_servers import (
    ACCESS_KEY,
    SECRET_KEY,
    VALKEY_PASSWORD,
    S3Server,
    ValkeyServers,
)

INSTANCES = 2
TIER_BYTES = 512 << 20
SMALL_CACHE_BLOCKS = 48  # so that blocks leave it and come back from the tiers


@dataclass
class Stage:
    """A gateway before two instances, and their stores as their owner sees them."""

    deployment: Deployment
    client: PlainClient
    folders: list[Path]  # of the directory tiers
    stores: dict[str, ObjectStore]  # the shared ones
    engines: list[SimulatedEngine] = field(default_factory=list)

    def chains(self) -> dict[str, set[str]]:
        """The chains of each outer tier now, by the names of their folders."""
        found = {name: set(store.chains()) for name, store in self.stores.items()}
        found["directory"] = {
            part
            for folder in self.folders
            for place, _, files in os.walk(folder)
            if files
            for part in Path(place).parts
            if tags_of(part)
        }
        return found

    def holding(self, tags: frozenset[Tag]) -> dict[str, int]:
        """How many chains with objects each outer tier has under one of these tags.

        A folder alone is no object: SeaweedFS lists folders for a while after they became empty.
        """
        found = {}
        for name, chains in self.chains().items():
            store, mine = self.stores.get(name), [one for one in chains if holds_any(one, tags)]
            found[name] = sum(
                store is None or any(True for _ in store.objects(chain)) for chain in mine
            )
        return found

    def tags_of(self, receipt: str) -> frozenset[Tag]:
        """The (scope, epoch) pairs that a receipt ended."""
        with self.deployment.world.registry.read() as view:
            found = view.receipts.get(receipt)
        if found is None:
            raise RuntimeError(f"there is no receipt {receipt}")
        secret = self.deployment.world.scope_secret
        return frozenset(tag(read_pair(name, secret)) for name in found.tags)

    def reads(self, tags: frozenset[Tag], since: float) -> int:
        """How many prefills of simulated engines read a block under one of `tags` since then."""
        return sum(
            at >= since and not read.isdisjoint(tags)
            for engine in self.engines
            for at, read in engine.seen.reads
        )

    def forget_calls(self) -> None:
        """Drop what the simulated engines remember of requests."""
        for engine in self.engines:
            engine.seen.calls.clear()


@contextmanager
def servers(folder: Path) -> Iterator[tuple[ValkeyServers, S3Server]]:
    """Real ones, empty; they end with this process, however that ends."""
    with ExitStack() as stack:
        valkey = ValkeyServers(folder)
        stack.callback(valkey.kill)
        valkey.start()  # before the other takes ports: they are free until they are bound
        s3 = S3Server(folder)
        stack.callback(s3.kill)
        s3.start()
        yield valkey, s3


@asynccontextmanager
async def simulated(
    folder: Path, model: SimulatedModel, valkey_url: str, s3_url: str
) -> AsyncIterator[Stage]:
    """Simulated engines; gateway, broker, keys, tiers and stores are the real ones."""
    port = free_port("127.0.0.1")
    settings = GatewaySettings((), port=port, stop_seconds_max=1)
    deployment = Deployment(folder, settings)
    stage = Stage(deployment, PlainClient(f"http://127.0.0.1:{port}", model.name), [], {})
    async with AsyncExitStack() as stack:
        stage.stores = {"valkey": open_store(valkey_url), "s3": open_store(s3_url)}
        for number in range(INSTANCES):
            engine = SimulatedEngine(
                model,
                keys_path=deployment.keys_path,
                api_key="engine",
                blocks_max=SMALL_CACHE_BLOCKS,
            )
            stage.folders.append(folder / f"tier-{number}")
            urls = (str(stage.folders[-1]), valkey_url, s3_url)
            tiers = _tiers(engine, deployment, f"http://127.0.0.1:{port}", urls)
            engine.put_behind(tiers)
            stack.callback(tiers.close)
            stage.engines.append(await stack.enter_async_context(engine))
        stack.push_async_callback(deployment.stop)
        await deployment.start(
            [InstanceAddress(f"engine-{n}", e.url, e.api_key) for n, e in enumerate(stage.engines)]
        )
        stack.push_async_callback(stage.client.close)
        yield stage
    for store in stage.stores.values():
        store.close()


def _tiers(
    engine: SimulatedEngine, deployment: Deployment, broker_url: str, urls: tuple[str, ...]
) -> SimulatedTiers:
    if engine.plugin is None:
        raise RuntimeError("an engine without the plugin has no tiers")
    broker = BrokerClient(BrokerSettings(broker_url, deployment.world.instance_secret_path))
    keyring = Keyring(broker, time.monotonic)
    tiers = [
        open_tier(
            url,
            capacity_bytes=TIER_BYTES,
            keyring=keyring,
            namespace=engine.plugin.namespace.fingerprint(),
            block_bytes=BLOCK_BYTES,
        )
        for url in urls
    ]
    return SimulatedTiers(keyring, tiers, host_blocks=SMALL_CACHE_BLOCKS)


@asynccontextmanager
async def real(
    folder: Path, model_dir: Path, cache_dir: Path, valkey: ValkeyServers, s3_url: str
) -> AsyncIterator[Stage]:
    """Two real engines, one thread each."""
    port = free_port("127.0.0.1")
    deployment = Deployment(folder, GatewaySettings((), port=port, stop_seconds_max=2))
    valkey_url = valkey.url()
    tiers = (
        "host=64MiB",
        f"directory={folder}/tiers/{{instance}},512MiB",
        f"valkey://127.0.0.1:{valkey.ports[0]}/0,512MiB",
        f"{s3_url.partition('&access_key_id')[0]},512MiB",
    )
    environment = plugin_environment(deployment.world, "default", f"http://127.0.0.1:{port}") | {
        "VLLM_CACHE_ROOT": str(cache_dir),
        "SCOPEKV_VALKEY_PASSWORD": VALKEY_PASSWORD,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    engines = EmbeddedEngines(
        EngineSettings(
            model_dir=model_dir,
            data_dir=folder,
            instances=INSTANCES,
            threads=1,
            max_model_len=1024,
            extra_env=environment,
            extra_args=("--num-gpu-blocks-override", "40"),
            tiers=parse_tiers(tiers),
        )
    )
    stores = {"valkey": open_store(valkey_url), "s3": open_store(s3_url)}
    try:
        await engines.start()
        await engines.wait_ready()
        found = [InstanceAddress(i.name, i.url, i.api_key) for i in engines.instances]
        await deployment.start(found)
        client = PlainClient(deployment.url, deployment.gateway.fleet.models()[0])
        yield Stage(deployment, client, [folder / "tiers"], stores)
        await client.close()
    finally:
        await deployment.stop()
        await engines.stop()
        for store in stores.values():
            store.close()
