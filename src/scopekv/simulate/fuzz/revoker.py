"""Revocations: committed in the registry first, then carried out until every engine confirms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from scopekv.core import receipts
from scopekv.core.chains import Link
from scopekv.core.receipts import LineReason, Lines, ReceiptState
from scopekv.core.scopes import Scope
from scopekv.simulate.fuzz.bus import Noise
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.engine import Engine
from scopekv.simulate.fuzz.oracle import Label
from scopekv.simulate.fuzz.places import Killed
from scopekv.store import scope_keys

Mark = tuple[Label, int]


@dataclass(slots=True)
class Open:
    """A receipt that is not done."""

    links: list[Link]
    marks: list[Mark]
    lines: Lines = ()


class Revoker:
    """What `gateway.revocation` does, a call at a time. Calls get lost on the way and back."""

    def __init__(
        self,
        deployed: Deployed,
        engines: Sequence[Engine],
        dice: Callable[[], Random],
        now: Callable[[], float],
    ) -> None:
        self._deployed, self._engines = deployed, engines
        self._dice, self._now = dice, now
        self.open: list[Open] = []
        self.done = 0
        self.loses = 0.0

    def revoke(self, owners: Sequence[tuple[Scope, Label]]) -> None:
        """End the epochs of these scopes; a receipt is open from now on. `Unavailable`: nothing."""
        links: dict[Link, None] = {}
        marks = []
        with self._deployed.registry.port.write() as transaction:
            for scope, label in owners:
                ended = scope_keys.end_epoch(transaction, scope)
                marks.append(self._deployed.oracle.end_life(label))
                own = scope.epoch_owner.id(self._deployed.secret)
                links[Link(own, ended.epoch - 1)] = None
                links.update((Link(one.scope, one.epoch), None) for one in ended.records)
        labels = {label for _, label in owners}
        for one in self.open:  # as `Ending.receipt`: what earlier ones of these scopes wait for
            if not labels.isdisjoint(owner for owner, _ in one.marks):
                links.update(dict.fromkeys(one.links))
        self.open.append(Open(list(links), marks))

    def step(self, noise: Noise) -> bool:
        """Ask one engine that has not confirmed one receipt. False where nothing is open."""
        if not self.open:
            return False
        one = self.open[self._dice().randrange(len(self.open))]
        left = [e for e in self._engines if not receipts.confirmed(one.lines, e.name)]
        if left:
            self._ask(one, left[self._dice().randrange(len(left))], noise)
        self._settle(one)
        return True

    def catch_up(self, engine: Engine, noise: Noise) -> None:
        """Fence an engine that was away before it gets requests again."""
        for one in list(self.open):
            if not receipts.confirmed(one.lines, engine.name):
                self._ask(one, engine, noise, reliably=True)
                self._settle(one)

    def _ask(self, one: Open, engine: Engine, noise: Noise, *, reliably: bool = False) -> None:
        lost = not reliably and self._dice().random() < self.loses
        answer: object = None
        if engine.up and not (lost and self._dice().random() < 0.5):
            try:
                answer = engine.purge(one.links, noise)
            except Killed:
                lost = True
        if answer is None or lost:
            reason = LineReason.TIMED_OUT if engine.up else LineReason.UNREACHABLE
            one.lines = receipts.after_failure(one.lines, engine.name, reason, self._now())
        else:
            one.lines = receipts.after_answer(one.lines, engine.name, answer, self._now())

    def _settle(self, one: Open) -> None:
        names = [engine.name for engine in self._engines]
        if one in self.open and receipts.state_of(one.lines, names) is ReceiptState.DONE:
            self.open.remove(one)
            self.done += 1
            for mark in one.marks:
                self._deployed.oracle.confirmed(mark)
