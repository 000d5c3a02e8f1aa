"""When conversations begin that were recorded without their own time: chosen here, by a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from scopekv.errors import Misuse
from scopekv.simulate.traces.request import TracedRequest

FIRST_SECONDS = 3600.0  # users come one by one in the first hour
PAUSE_SECONDS = 60.0  # mean pause of a user between two conversations


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Either `users` at once, each with one conversation after another; or, with
    `rate_per_second`, conversations that begin as a Poisson process, however many are open.
    """

    seed: int = 0
    users: int = 32
    rate_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.users < 1 or not (self.rate_per_second is None or self.rate_per_second > 0):
            raise Misuse("arrivals need 1 user or more, or a rate above 0 conversations a second")


def interleave(
    conversations: Iterable[Iterator[TracedRequest]], arrivals: Arrivals
) -> Iterator[TracedRequest]:
    """Merge conversations whose times count from their own beginning, none of them empty.

    Holds the open conversations in memory. Cost: O(log open conversations) a request.
    """
    draw = random.Random(arrivals.seed)  # noqa: S311 - a simulation
    coming = iter(conversations)
    open_: list[tuple[float, int, TracedRequest, Iterator[TracedRequest], float]] = []
    begun = 0

    def begin(at: float) -> bool:
        """Open the next conversation; False where there is none left."""
        nonlocal begun
        requests = next(coming, None)
        if requests is None:
            return False
        begun += 1
        first = next(requests)
        heapq.heappush(open_, (at + first.at_seconds, begun, first, requests, at))
        return True

    rate = arrivals.rate_per_second
    due = draw.expovariate(rate) if rate else float("inf")
    if not rate:
        for at in sorted(draw.uniform(0, FIRST_SECONDS) for _ in range(arrivals.users)):
            begin(at)
    while open_ or due < float("inf"):
        if rate and (not open_ or due <= open_[0][0]):
            due = due + draw.expovariate(rate) if begin(due) else float("inf")
            continue
        at, number, request, requests, start = open_[0]
        yield replace(request, at_seconds=at)
        after = next(requests, None)
        if after is not None:
            heapq.heapreplace(open_, (start + after.at_seconds, number, after, requests, start))
            continue
        heapq.heappop(open_)
        if not rate:
            begin(at + draw.expovariate(1 / PAUSE_SECONDS))
