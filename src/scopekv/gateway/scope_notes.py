"""Every scope that goes into a ticket has a row and a key in the registry first (L5).

While the root key is out of reach it has a row alone: nothing of it is sealed, but a revocation
finds its scope and epoch, and so reaches what engines keep of it (L6). The key comes later.

The first request of a scope pays one write to the registry, together with all others that wait for
one; later requests a look-up in memory, until a quarter of its retention time is over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from scopekv.core.scopes import Scope
from scopekv.core.segments import Segment
from scopekv.errors import ScopeKVError, Unavailable
from scopekv.ports import KeyWrapper, Registry
from scopekv.store import scope_keys
from scopekv.store.scope_keys import Note, Retention, ScopeEpoch

KNOWN_MAX = 100_000
BATCH_MAX = 200
KEYLESS_SECONDS = 5.0  # how long nobody asks a root key that was out of reach
JUMP_SECONDS = 30.0  # less than the 45 s between the last note and the end of any retention
log = logging.getLogger("scopekv.keys")


class ScopeNotes:
    """Notes scopes, for one event loop. `secret` makes their names opaque."""

    def __init__(
        self,
        registry: Registry,
        wrapper: KeyWrapper,
        secret: bytes,
        retention: Retention,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._wrapper, self._secret = registry, wrapper, secret
        self._retention = retention
        self._clock, self._monotonic = clock, monotonic
        self._known: OrderedDict[tuple[Scope, int], float] = OrderedDict()  # -> note again at
        self._ahead = float("inf")  # how far wall time was ahead of ours at its least
        self._waiting: dict[ScopeEpoch, asyncio.Future[Note | ScopeKVError]] = {}
        self._task: asyncio.Task[None] | None = None

    def known(self, segments: Sequence[Segment], epochs: Sequence[int]) -> bool:
        """Whether all of these were noted lately. Costs about a microsecond each."""
        now, known = self._now(), self._known
        for segment, epoch in zip(segments, epochs, strict=True):
            if known.get((segment.scope, epoch), 0.0) <= now:
                return False
        return True

    async def note(self, segments: Sequence[Segment], epochs: Sequence[int]) -> bool:
        """Note what is not known. False where an epoch is over: decide anew.

        Raises `Unavailable` where the registry is out of reach. A root key out of reach is no
        error: the request goes on, and its scope has no key for now.
        """
        now = self._now()
        pairs = {ScopeEpoch(s.scope, e) for s, e in zip(segments, epochs, strict=True)}
        wanted = [pair for pair in pairs if self._known.get(pair, 0.0) <= now]
        futures = [self._future(pair) for pair in wanted]
        if futures and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work())
        if futures:
            await asyncio.wait(futures)  # which leaves them alone when this request is cancelled
        for future in futures:
            result = future.result()
            if isinstance(result, ScopeKVError):
                raise Unavailable(str(result))
            if result is Note.OVER:
                return False
        return True

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _now(self) -> float:
        """Monotonic seconds. Nothing is known any more once wall time has gone on without them.

        Keys are destroyed by wall time: after a sleep of the machine, or a clock put forward, a
        scope that is known here may have no row, and no revocation would find it.
        """
        now = self._monotonic()
        ahead = self._clock() - now
        if ahead > self._ahead + JUMP_SECONDS:
            self._known.clear()
            self._ahead = ahead
        self._ahead = min(self._ahead, ahead)
        return now

    def _future(self, pair: ScopeEpoch) -> asyncio.Future[Note | ScopeKVError]:
        if pair not in self._waiting:
            self._waiting[pair] = asyncio.get_running_loop().create_future()
        return self._waiting[pair]

    async def _work(self) -> None:
        """Note all that wait, in batches, until nobody does. A batch is one transaction."""
        while self._waiting:
            batch = list(self._waiting)[:BATCH_MAX]
            futures = [self._waiting[pair] for pair in batch]
            results: list[Note] | ScopeKVError
            try:
                results = await asyncio.to_thread(self._keep, batch)
            except ScopeKVError as error:
                results = error
            except Exception as error:  # noqa: BLE001 - whoever waits must be told
                log.error("unexpected %s while noting scopes", type(error).__name__)
                results = Unavailable("scopes could not be noted")
            for pair in batch:
                del self._waiting[pair]
            if isinstance(results, ScopeKVError):
                for future in futures:
                    future.set_result(results)
                continue
            for pair, future, result in zip(batch, futures, results, strict=True):
                self._remember(pair, result)
                future.set_result(result)

    def _keep(self, batch: Sequence[ScopeEpoch]) -> list[Note]:
        return scope_keys.note(self._registry, self._wrapper, self._secret, batch, self._clock())

    def _remember(self, pair: ScopeEpoch, result: Note) -> None:
        if result is Note.OVER:
            self._known.pop(pair, None)
            return
        kept = self._retention.seconds(pair.scope.kind) / 4
        seconds = kept if result is Note.KEPT else KEYLESS_SECONDS
        self._known[pair] = self._monotonic() + seconds
        self._known.move_to_end(pair)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
