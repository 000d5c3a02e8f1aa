"""Asking the key broker for leases, on one thread, never twice for the same at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from scopekv.core.chains import Link
from scopekv.core.leases import Lease
from scopekv.errors import Refused, ScopeKVError
from scopekv.ports import LeaseSource

QUEUE_MAX = 256
DENIED_MAX = 16_384
DENIED_SECONDS = 1.0  # a link that the broker gave no lease for
REFUSED_SECONDS = 60.0  # a ticket that it refused; longer than a ticket lives
ASK_AGAIN_SECONDS = 1.0  # the same ticket, where nobody said what is missing
BACK_OFF_SECONDS = 0.1
BACK_OFF_SECONDS_MAX = 5.0

Accept = Callable[[Iterable[Lease], float], int]


class LeaseRequests:
    """A bounded queue of tickets and the thread that takes them to the source.

    Without `threaded` there is none: whoever calls `turn` takes them.
    """

    def __init__(
        self,
        source: LeaseSource,
        accept: Accept,
        monotonic: Callable[[], float],
        *,
        threaded: bool = True,
    ) -> None:
        self._threaded = threaded
        self._source = source
        self._accept = accept
        self._monotonic = monotonic
        self._ready = threading.Condition()
        self._queue: deque[tuple[str, tuple[Link, ...]]] = deque()
        self._tickets: set[str] = set()  # queued or being asked
        self._links: set[Link] = set()  # the links those are asked for
        self._not_before: OrderedDict[str | Link, float] = OrderedDict()
        self._down_until = float("-inf")
        self._back_off = BACK_OFF_SECONDS
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, ticket: str, links: Sequence[Link], now: float) -> bool:
        """Queue a ticket for `links`; False where it is not worth asking now."""
        with self._ready:
            if self._closed or now < self._down_until or len(self._queue) >= QUEUE_MAX:
                return False
            if self._waits(ticket, now):
                return False
            wanted = tuple(link for link in links if not self._waits(link, now))
            if links and not wanted:
                return False
            if ticket in self._tickets or (wanted and self._links.issuperset(wanted)):
                return True
            self._queue.append((ticket, wanted))
            self._tickets.add(ticket)
            self._links.update(wanted)
            if self._threaded and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="scopekv-leases", daemon=True
                )
                self._thread.start()
            self._ready.notify()
            return True

    def pending(self, links: Sequence[Link]) -> bool:
        """Whether a lease for one of these is being asked for now."""
        with self._ready:
            return not self._links.isdisjoint(links)

    def close(self, seconds: float = 1.0) -> None:
        with self._ready:
            self._closed = True
            self._queue.clear()
            self._ready.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closed:
                    self._ready.wait()
                if self._closed:
                    return
            self.turn()

    def turn(self) -> bool:
        """Take the ticket that waits longest to the source. False where none does."""
        with self._ready:
            if not self._queue:
                return False
            ticket, links = self._queue.popleft()
        try:
            self._ask(ticket, links)
        finally:
            with self._ready:
                self._tickets.discard(ticket)
                self._links.difference_update(links)
        return True

    def _ask(self, ticket: str, links: tuple[Link, ...]) -> None:
        asked_at = self._monotonic()
        try:
            leases = self._source.lease(ticket)
            self._accept(leases, asked_at)
        except Refused:
            with self._ready:
                self._wait(ticket, self._monotonic() + REFUSED_SECONDS)
            return
        except (ScopeKVError, OSError, ValueError):  # out of reach, or an answer that is none
            with self._ready:
                self._down_until = self._monotonic() + self._back_off
                self._back_off = min(self._back_off * 2, BACK_OFF_SECONDS_MAX)
                self._forget_queue()
            return
        given = {Link(lease.scope, lease.epoch) for lease in leases}
        with self._ready:
            self._back_off = BACK_OFF_SECONDS
            now = self._monotonic()
            if not links:
                self._wait(ticket, now + ASK_AGAIN_SECONDS)
            for link in links:
                if link not in given:
                    self._wait(link, now + DENIED_SECONDS)

    def _forget_queue(self) -> None:
        """What waits behind a broker out of reach would only wait for it, one by one."""
        for ticket, links in self._queue:
            self._tickets.discard(ticket)
            self._links.difference_update(links)
        self._queue.clear()

    def _waits(self, what: str | Link, now: float) -> bool:
        return self._not_before.get(what, now) > now

    def _wait(self, what: str | Link, until: float) -> None:
        self._not_before[what] = until
        self._not_before.move_to_end(what)
        while len(self._not_before) > DENIED_MAX:
            self._not_before.popitem(last=False)
