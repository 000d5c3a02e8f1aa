"""The deployment that planted faults are tried on: simulated engines, real gateway and tiers.

Each engine has host memory, a directory of its own, and a simulated store that all share.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.adapters.objects import DirectoryStore
from scopekv.cli.running import free_port
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import small_settings
from scopekv.simulate.stage import Stage
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier

HOST_BLOCKS = 512
TIER_BYTES = 64 << 20


@asynccontextmanager
async def tiered(
    folder: Path,
    model: SimulatedModel,
    *,
    instances: int = 1,
    plugin: bool = True,
    shared: SimulatedObjectStore | None = None,
) -> AsyncIterator[Stage]:
    """A stage whose engines have tiers, where they have the plugin. `shared`: the common store."""
    settings = GatewaySettings((), port=free_port("127.0.0.1"), stop_seconds_max=0.5)
    stage = Stage(folder, model, (plugin,) * instances, settings)
    common = shared or SimulatedObjectStore("s3")
    stack = ExitStack()
    for number, engine in enumerate(stage.engines):
        if engine.plugin is not None:
            stores: list[ObjectStore] = [
                DirectoryStore(folder / f"tier-{number}"),
                SimulatedObjectStore("s3", beside=common),
            ]
            engine.tiers = _tiers(stage, engine, stores, stack)
    with stack:
        async with stage:
            yield stage


def _tiers(
    stage: Stage, engine: SimulatedEngine, stores: list[ObjectStore], stack: ExitStack
) -> SimulatedTiers:
    assert engine.plugin is not None
    deployment = stage.deployment
    broker = BrokerClient(BrokerSettings(deployment.own_url, deployment.world.instance_secret_path))
    stack.callback(broker.close)
    keyring = Keyring(broker, time.monotonic)
    namespace = engine.plugin.namespace.fingerprint()
    tiers = [
        SealedTier(
            store,
            keyring,
            namespace=namespace,
            block_bytes=BLOCK_BYTES,
            settings=_settings(store),
            policy=ScopedPolicy(Shares(TIER_BYTES)),
        )
        for store in stores
    ]
    made = SimulatedTiers(keyring, tiers, host_blocks=HOST_BLOCKS)
    stack.callback(made.close)
    return made


def _settings(store: ObjectStore) -> TierSettings:
    return small_settings(
        capacity_bytes=TIER_BYTES, shared=store.medium != "directory", stall_seconds=5.0
    )
