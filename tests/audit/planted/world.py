"""The deployment that planted faults are tried on: simulated engines, real gateway and tiers.

The engine has host memory, a directory, and a simulated store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.adapters.objects import DirectoryStore
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.core.sealing import OVERHEAD_BYTES
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.object_store import SimulatedObjectStore
from scopekv.simulate.sealed_tier import small_settings
from scopekv.simulate.stage import Stage
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.tier import SealedTier
from tests.contracts.object_servers import free_ports

OBJECT_BYTES = BLOCK_BYTES + OVERHEAD_BYTES
OUTER = ("directory", "s3")


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many blocks each memory of an engine holds."""

    engine: int = 4096
    host: int = 4096
    outer: int = 8192


@asynccontextmanager
async def tiered(
    folder: Path,
    model: SimulatedModel,
    *,
    plugin: bool = True,
    outer: Sequence[str] = OUTER,
    rooms: Rooms | None = None,
    events: bool = False,
) -> AsyncIterator[Stage]:
    """A stage of one engine with tiers, where it has the plugin.

    `outer`: `directory` is one in the folder, others are simulated. `events`: publish them.
    """
    rooms = rooms or Rooms()
    settings = GatewaySettings((), port=free_ports(1)[0], stop_seconds_max=0.5)
    stage = Stage(folder, model, (plugin,), settings)
    engine = stage.engine
    engine.cache.blocks_max = rooms.engine
    if events:
        (folder / "events").mkdir(mode=0o700)
        engine.events_endpoint = f"ipc://{folder}/events/0.sock"
    with ExitStack() as stack:
        if engine.plugin is not None:
            stores = [_store(name, folder) for name in outer]
            engine.tiers = _tiers(stage, stores, rooms, stack)
        async with stage:
            for tier in engine.tiers.tiers if engine.tiers is not None else ():
                while not tier.ready:
                    await asyncio.sleep(0.01)
            yield stage


def _store(name: str, folder: Path) -> ObjectStore:
    return DirectoryStore(folder / "tier") if name == "directory" else SimulatedObjectStore(name)


def _tiers(
    stage: Stage, stores: Sequence[ObjectStore], rooms: Rooms, stack: ExitStack
) -> SimulatedTiers:
    engine, deployment = stage.engine, stage.deployment
    assert engine.plugin is not None
    broker = BrokerClient(BrokerSettings(deployment.own_url, deployment.world.instance_secret_path))
    stack.callback(broker.close)
    keyring = Keyring(broker, time.monotonic)
    namespace = engine.plugin.namespace.fingerprint()
    capacity_bytes = rooms.outer * OBJECT_BYTES
    tiers = [
        SealedTier(
            store,
            keyring,
            namespace=namespace,
            block_bytes=BLOCK_BYTES,
            settings=small_settings(
                capacity_bytes=capacity_bytes,
                shared=store.medium != "directory",
            ),
            policy=ScopedPolicy(Shares(capacity_bytes)),
        )
        for store in stores
    ]
    made = SimulatedTiers(keyring, tiers, host_blocks=rooms.host)
    stack.callback(made.close)
    return made
