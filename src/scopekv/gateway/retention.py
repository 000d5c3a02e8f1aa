"""Retention: what was kept as long as its scope allows goes, on idle engines too.

Engines drop blocks of their own memory when they are asked (outer tiers have a janitor of their
own); the registry drops sealing keys that nobody used for as long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from scopekv.errors import ScopeKVError
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.instances import Instance, Isolation
from scopekv.gateway.rounds import Rounds
from scopekv.store.broker import KeyBroker

EXPIRE_SECONDS = 20.0
CALL_SECONDS = 20.0
KEYS_EVERY = 3  # rounds
log = logging.getLogger("scopekv.retention")


class Expirer(Rounds):
    """Asks every instance with the plugin to expire, round by round. Use: `start`, `stop`."""

    def __init__(
        self,
        fleet: Fleet,
        broker: KeyBroker,
        unpinned: Callable[[Instance, Sequence[str]], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`unpinned` hears which pins an instance gave back because their blocks' time was over."""
        super().__init__(self._round, EXPIRE_SECONDS, log, waits="retention waits")
        self._unpinned = unpinned
        self._fleet, self._broker, self._clock = fleet, broker, clock
        self._told: dict[
            str, str
        ] = {}  # trouble by instance: logged once a change, not every round
        self._rounds = 0

    async def expire(self) -> None:
        """One round over the instances. Trouble of one is logged and does not stop the others."""
        scoped = [i for i in self._fleet.instances if i.isolation is Isolation.SCOPED]
        await asyncio.gather(*(self._ask(instance) for instance in scoped))

    async def expire_keys(self) -> None:
        """Destroy the sealing keys that are out of retention."""
        gone = await asyncio.to_thread(self._broker.expire_keys, self._clock())
        if gone:
            log.info("%d sealing keys out of retention were destroyed", len(gone))

    async def _round(self) -> None:
        self._rounds += 1
        await self.expire()
        if self._rounds % KEYS_EVERY == 0:
            await self.expire_keys()

    async def _ask(self, instance: Instance) -> None:
        trouble = ""
        try:
            told = await instance.ask("POST", "/v1/scopekv/expire", {}, seconds=CALL_SECONDS)
            if isinstance(told, dict) and told.get("unpinned"):
                self._unpinned(instance, told["unpinned"])
        except ScopeKVError as error:
            trouble = str(error)
        if trouble and trouble != self._told.get(instance.address.name):
            log.warning("instance %s does not expire: %s", instance.address.name, trouble)
        self._told[instance.address.name] = trouble
