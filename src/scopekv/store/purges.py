"""Purges: what a revocation deletes from a store, whoever wrote it, and how far that is (L6)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from scopekv.core.chains import Tag, holds_any
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey, ObjectStore
from scopekv.store.blocks import Purged
from scopekv.store.fence import Fence

BATCH = 256
ANSWERS_MAX = 1024
ANSWER_SECONDS = 60.0
WAIT_SECONDS = 0.02
PASSES_MAX = 100
_RUNNING = Purged(0, 1)


class Purges:
    """One walk at a time, on a thread while there is any; asked by its tags.

    Without `threaded` there is no thread: whoever calls `turn` purges.
    """

    def __init__(
        self,
        store: ObjectStore,
        fence: Fence,
        monotonic: Callable[[], float],
        gone: Callable[[Sequence[ObjectKey]], None],
        *,
        threaded: bool = True,
    ) -> None:
        """`gone` is told what was deleted."""
        self._threaded, self._gone = threaded, gone
        self._store = store
        self._monotonic = monotonic
        self._fence = fence
        self._lock = threading.Lock()
        self._answers: OrderedDict[frozenset[Tag], tuple[Purged, float]] = OrderedDict()
        self._waiting: OrderedDict[frozenset[Tag], None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def ask(self, tags: frozenset[Tag]) -> Purged:
        """Begin a purge, or tell how the one of these tags stands. Never blocks.

        Success is repeated for a while, since who asks has other tiers to wait for, but what was
        removed is told once. A failure is told once, and asking again then purges again.
        """
        now = self._monotonic()
        with self._lock:
            self._forget_old(now)
            answer, _ = self._answers.get(tags, (None, 0.0))
            if answer is None:
                answer = _RUNNING
                self._answers[tags] = (answer, now)
                self._waiting[tags] = None
                if self._threaded and self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(
                        target=self._run, name="scopekv-tier-purge", daemon=True
                    )
                    self._thread.start()
            elif answer.busy == 0:
                if answer.error is not None:
                    del self._answers[tags]
                else:  # kept while it is asked for: other parts of the purge may take longer
                    self._answers[tags] = (Purged(0, 0), now)
                return answer
            return Purged(answer.removed, max(1, self._fence.puts(tags)), answer.error)

    def close(self, seconds: float) -> None:
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._closing.is_set():
                    self._thread = None
                    return
            self.turn()

    def turn(self) -> bool:
        """Carry out all purges that wait, in one walk. False where none does."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), OrderedDict()
        if not waiting:
            return False
        answer = self._purge(frozenset[Tag]().union(*waiting))
        with self._lock:
            for tags in waiting:
                self._answers[tags] = (answer, self._monotonic())
                answer = Purged(0, answer.busy, answer.error)  # removed counts once
        return True

    def _purge(self, tags: frozenset[Tag]) -> Purged:
        """Delete until a whole pass that began with no put under way has found nothing."""
        removed = 0
        try:
            for _ in range(PASSES_MAX):
                quiet = self._fence.puts(tags) == 0
                found = self._pass(tags)
                removed += found
                if quiet and not found:
                    return Purged(removed, 0)
                if not quiet and (not self._threaded or self._closing.wait(WAIT_SECONDS)):
                    break
        except Unavailable as error:
            return Purged(removed, 0, str(error))
        return Purged(removed, 0, "writes of these scopes are still under way; ask again")

    def _pass(self, tags: frozenset[Tag]) -> int:
        """One walk over the store, then the quarantine: a reader may fill that meanwhile."""
        found = [stat.key for stat in self._store.objects(lambda name: holds_any(name, tags))]
        found += [s.key for s in self._store.quarantined() if holds_any(s.key.chain, tags)]
        removed = 0
        for batch in batches(found, BATCH):
            removed += self._store.delete(batch)
            self._gone(batch)
        return removed

    def _forget_old(self, now: float) -> None:
        for tags, (answer, at) in list(self._answers.items()):
            surplus = len(self._answers) > ANSWERS_MAX
            if answer.busy == 0 and (surplus or now - at > ANSWER_SECONDS):
                del self._answers[tags]


def batches(keys: Iterable[ObjectKey], size: int) -> Iterator[list[ObjectKey]]:
    iterator = iter(keys)
    while batch := list(islice(iterator, size)):
        yield batch
