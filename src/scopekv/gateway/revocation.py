"""Carrying revocations out: every receipt that is not done is purged until it is (L6).

    registry ── pending receipts ──▶ Revoker ── POST /v1/scopekv/purge ──▶ every instance, at once
                     ▲                  │
                     └── lines, state ──┘      busy, failed: again, after 50 ms to 10 s

Whoever writes a receipt (this gateway, another, the command line) need not tell: the loop sees the
registry's counter of epochs move. What a gateway that died left behind is found at start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scopekv.core import receipts as core
from scopekv.core.chains import Link
from scopekv.core.receipts import LineReason, Lines, ReceiptState
from scopekv.errors import Conflict, Corrupt, ScopeKVError, Unavailable
from scopekv.gateway.administration.revocation import lines_of, stored
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.instances import Instance
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.purge_calls import PurgeCalls
from scopekv.gateway.rounds import Rounds
from scopekv.ports import Receipt, Registry

LOOK_SECONDS = 0.25
READ_SECONDS = 10.0  # also without a change: another gateway, or an operator, may have ended one
PAUSE_SECONDS = 0.05
QUICK_SECONDS = 30.0  # how long pauses stay below a second
QUICK_PAUSE_SECONDS = 1.0
SLOW_PAUSE_SECONDS = 10.0
log = logging.getLogger("scopekv.revocation")


@dataclass(slots=True, repr=False)
class _Open:
    """One receipt that is not done. Owned by the event loop."""

    uid: str
    at: float
    links: list[Link]
    lines: Lines
    state: ReceiptState
    kept: Lines  # as the registry has them
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    keeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None


class Revoker:
    """Purges on all instances of one fleet. `secret` makes owners' names opaque.

    Every gateway of a registry must have the same instances: a receipt is done when those of one
    gateway are through. Use: `load` before the fleet is looked at, `start`, then `stop`.
    """

    def __init__(
        self,
        registry: Registry,
        fleet: Fleet,
        secret: bytes,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry, self._fleet, self._secret = registry, fleet, secret
        self._metrics, self._clock = metrics, clock
        self.calls = PurgeCalls()
        self._open: dict[str, _Open] = {}
        self._reading = asyncio.Lock()
        self._epochs = -1
        self._read_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._rounds = Rounds(self._look, LOOK_SECONDS, log, waits="new receipts wait")

    async def load(self) -> None:
        """Read what is pending. Raises `Unavailable` where the registry is."""
        await self._read()

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        """End what is under way; what is not done stays pending in the registry."""
        await self._rounds.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(self, uid: str, seconds: float) -> None:
        """Wait until the receipt is done or closed, but no longer than so many seconds.

        Nor where nothing but lasting trouble is left. Never raises for the registry's trouble: the
        receipt stays as it is then.
        """
        with contextlib.suppress(ScopeKVError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self._read()
                found = self._open.get(uid)
                while found is not None and not found.over.is_set():
                    if core.same(found.lines, found.kept) and core.hopeless(found.lines):
                        return
                    found.changed.clear()
                    await found.changed.wait()

    async def catch_up(self, instance: Instance) -> None:
        """Fence an instance that was away, before it gets requests again.

        Raises `Unavailable` where it does not take the purges that wait for it.
        """
        for one in list(self._open.values()):
            if core.confirmed(one.lines, instance.address.name):
                continue
            self.calls.ask_again(instance)
            reason = await self._attempt(one, instance)
            one.wake.set()
            if reason in (LineReason.UNREACHABLE, LineReason.TIMED_OUT):
                raise Unavailable("it does not take the purges that wait for it")

    async def _look(self) -> None:
        with contextlib.suppress(Unavailable):  # `Access` says so in the log
            versions = await asyncio.to_thread(self._registry.versions)
            late = time.monotonic() - self._read_at > READ_SECONDS
            if versions.epochs != self._epochs or late:
                await self._read()

    async def _read(self) -> None:
        """Take up every pending receipt, and drop those that are done elsewhere."""
        async with self._reading:
            epochs = (await asyncio.to_thread(self._registry.versions)).epochs
            pending = await asyncio.to_thread(self._pending)
            self._epochs, self._read_at = epochs, time.monotonic()
            for receipt in pending:
                try:
                    if receipt.uid not in self._open:
                        self._take_up(receipt)
                except Corrupt as error:  # never done, so never taken for success
                    log.error("receipt %s: %s", receipt.uid, error)
            for uid in self._open.keys() - {receipt.uid for receipt in pending}:
                self._drop(uid)
            self._count()

    def _pending(self) -> Sequence[Receipt]:
        with self._registry.read() as view:
            return view.receipts.pending()

    def _take_up(self, receipt: Receipt) -> None:
        links = sorted({core.read_pair(name, self._secret) for name in receipt.tags})
        kept = lines_of(receipt)
        lines = core.without(kept, self._names, self._clock())
        made = _Open(receipt.uid, receipt.at, links, lines, ReceiptState(receipt.state), kept)
        self._open[receipt.uid] = made
        made.task = asyncio.create_task(self._carry_out(made))
        self._tasks.add(made.task)
        made.task.add_done_callback(self._tasks.discard)

    def _drop(self, uid: str) -> None:
        """Let a receipt go that is done, here or elsewhere."""
        one = self._open.pop(uid, None)
        if one is not None:
            one.over.set()
            one.changed.set()
            if one.task is not None:
                one.task.cancel()

    async def _carry_out(self, one: _Open) -> None:
        """Ask every instance that is not through, keep what they say, pause, and so on."""
        pause, began = PAUSE_SECONDS, time.monotonic()
        while not one.over.is_set():
            try:
                one.lines = core.without(one.lines, self._names, self._clock())
                left = [
                    self._ask(one, instance)
                    for instance in self._fleet.instances
                    if not core.confirmed(one.lines, instance.address.name)
                ]
                await asyncio.gather(*left)
                await self._keep(one)  # what has no instance, or was found out by `catch_up`
            except ScopeKVError as error:
                log.warning("receipt %s: %s", one.uid, error)
            except Exception as error:  # noqa: BLE001 - tried again after the pause
                log.error("unexpected %s while purging", type(error).__name__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await one.wake.wait()
            one.wake.clear()
            quick = time.monotonic() - began < QUICK_SECONDS
            pause = min(2 * pause, QUICK_PAUSE_SECONDS if quick else SLOW_PAUSE_SECONDS)

    async def _ask(self, one: _Open, instance: Instance) -> None:
        """Ask one instance, and keep its answer without waiting for the others'."""
        await self._attempt(one, instance)
        await self._keep(one)

    async def _attempt(self, one: _Open, instance: Instance) -> LineReason | None:
        """Ask one instance once, and take its answer into the lines."""
        name = instance.address.name
        known = any(line.instance == name for line in one.lines)
        answer = await self.calls.purge(instance, one.links, first=not known)
        if isinstance(answer, LineReason):
            one.lines = core.after_failure(one.lines, name, answer, self._clock())
            return answer
        one.lines = core.after_answer(one.lines, name, answer, self._clock())
        return None

    async def _keep(self, one: _Open) -> None:
        """Write lines and state, if they changed. Done is for good."""
        async with one.keeping:
            lines, state = one.lines, core.state_of(one.lines, self._names)
            if one.over.is_set() or (state is one.state and core.same(lines, one.kept)):
                return
            try:
                await asyncio.to_thread(self._write, one.uid, state, lines)
            except Conflict:  # done or closed elsewhere
                state = ReceiptState.DONE
            else:
                one.kept, one.state = lines, state
                if state is ReceiptState.DONE:
                    self._metrics.purged(max(0.0, self._clock() - one.at))
            if state is ReceiptState.DONE:
                self._drop(one.uid)
            one.changed.set()
            self._count()

    def _write(self, uid: str, state: ReceiptState, lines: Lines) -> None:
        with self._registry.write() as transaction:
            transaction.receipts.update(uid, state, stored(lines))

    def _count(self) -> None:
        states = [one.state for one in self._open.values()]
        for state in (ReceiptState.PENDING, ReceiptState.INCOMPLETE):
            self._metrics.open_receipts(state, states.count(state))

    @property
    def _names(self) -> list[str]:
        return [instance.address.name for instance in self._fleet.instances]
