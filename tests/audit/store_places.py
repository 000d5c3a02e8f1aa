"""A gateway before a simulated engine with real sealed tiers, as the store audit attacks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from scopekv.adapters.broker_client import BrokerClient, BrokerSettings
from scopekv.adapters.objects import open_store
from scopekv.audit.results import AuditResult, Check
from scopekv.audit.store import Callers, StoreSettings, StoreTarget, audit_store
from scopekv.core.chains import Link, tag
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.core.scopes import Narrowing, private_scope
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import GatewaySettings
from scopekv.ports import ObjectStore
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.sealed_tier import small_settings
from scopekv.simulate.tiers import BLOCK_BYTES, SimulatedTiers
from scopekv.store.keyring import Keyring
from scopekv.store.tier import SealedTier
from tests.contracts.object_servers import free_ports

Wrap = Callable[[ObjectStore], ObjectStore]
FAST = StoreSettings(canary_tokens=140, settle_seconds_max=20.0, still_seconds=0.15)
TIER_BYTES = 64 << 20


@dataclass(slots=True)
class TierPlace:
    """What a test holds: the deployment, its engine, and the audit's target."""

    deployment: Deployment
    engine: SimulatedEngine
    tiers: SimulatedTiers
    target: StoreTarget

    async def forget(self) -> None:
        """Engine and host memory are empty: what comes next comes from a tier."""
        self.engine.cache.clear()
        self.tiers.restart()

    async def corrupt(self) -> int:
        return sum(tier.counters()["corrupt"] for tier in self.tiers.tiers)

    async def tickets(self) -> Sequence[str]:
        return [call.ticket for call in self.engine.seen.calls if call.ticket]

    async def revoke(self) -> None:
        """End the epoch of the first caller, as an administrator does."""
        world = self.deployment.world
        with world.registry.write() as tx:
            org = next(one for one in tx.orgs.list("", 100) if one.name == "acme")
            account = tx.accounts.get(org.uid, "alice")
            assert account is not None
            scope = private_scope(account.principal, Narrowing())
            epoch = tx.epochs.get(scope)
            tx.epochs.bump(scope)
        link = Link(scope.id(world.scope_secret), epoch)
        assert self.engine.plugin is not None
        self.engine.plugin.fence([(link.scope.hex(), link.epoch)])
        tags = frozenset({tag(link)})
        while any(
            line["busy"] for line in self.tiers.purge(tags, self.engine.plugin.blocks.tagged(tags))
        ):
            await asyncio.sleep(0.01)

    async def audit(self, settings: StoreSettings = FAST, **changes: object) -> AuditResult:
        """Run the audit on the target, some of its fields changed."""
        steps: list[str] = []
        target = replace(self.target, **changes)  # type: ignore[arg-type]
        result = await audit_store(target, settings, lambda what, *_: steps.append(what))
        assert steps
        return result


@asynccontextmanager
async def tier_place(
    folder: Path,
    model: SimulatedModel,
    urls: Sequence[str],
    *,
    wrap: Wrap = lambda store: store,
    event_bus: bool = False,
) -> AsyncIterator[TierPlace]:
    """Tiers over these stores; `wrap` puts a fault between a tier and its store."""
    (port,) = free_ports(1)
    deployment = Deployment(folder, GatewaySettings((), port=port, stop_seconds_max=0.5))
    events = folder / "events"
    events.mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        engine = SimulatedEngine(
            model,
            keys_path=deployment.keys_path,
            api_key="engine",
            events_endpoint=f"ipc://{events}/0.sock" if event_bus else None,
        )
        secret = deployment.world.instance_secret_path
        broker = BrokerClient(BrokerSettings(deployment.own_url, secret))
        stack.callback(broker.close)
        tiers = _tiers(engine, broker, [wrap(open_store(url)) for url in urls])
        engine.put_behind(tiers)
        stack.callback(tiers.close)
        await stack.enter_async_context(engine)
        stack.push_async_callback(deployment.stop)
        await deployment.start([InstanceAddress("engine-0", engine.url, engine.api_key)])
        keys = [deployment.account("acme", "alice"), deployment.account("globex", "bob")]
        for tier in tiers.tiers:
            while not tier.ready:
                await asyncio.sleep(0.01)
        made = TierPlace(deployment, engine, tiers, StoreTarget(("directory=/",)))
        made.target = StoreTarget(
            tuple(url if "://" in url else f"directory={url}" for url in urls),
            Callers(deployment.url, keys[0], keys[1]),
            names=("acme", "globex", "alice"),
            forget=made.forget,
            corrupt=made.corrupt,
            tickets=made.tickets,
        )
        yield made


def _tiers(
    engine: SimulatedEngine, broker: BrokerClient, stores: Sequence[ObjectStore]
) -> SimulatedTiers:
    assert engine.plugin is not None
    keyring = Keyring(broker, time.monotonic)
    tiers = [
        SealedTier(
            store,
            keyring,
            namespace=engine.plugin.namespace.fingerprint(),
            block_bytes=BLOCK_BYTES,
            settings=small_settings(
                capacity_bytes=TIER_BYTES, shared=store.medium != "directory", stall_seconds=60.0
            ),
            policy=ScopedPolicy(Shares(TIER_BYTES)),
        )
        for store in stores
    ]
    return SimulatedTiers(keyring, tiers, host_blocks=256)


def check_of(result: AuditResult, name: str) -> Check:
    """The one check of that name."""
    (found,) = [check for check in result.checks if check.name == name]
    return found
