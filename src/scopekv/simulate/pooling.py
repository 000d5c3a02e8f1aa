"""Many caches of their own, or one that all instances share: what does pooling buy?

The question is Mooncake's (FAST'25): what a global cache is worth beside local ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from enum import StrEnum

from scopekv.core.lru import EvictionPolicy
from scopekv.simulate.replay import ReplayedCache, Tally, Walk
from scopekv.simulate.traces import TracedRequest


class Spread(StrEnum):
    """Which instance serves a request. AFFINITY: the one that has most of it, else the one that
    was asked least.
    """

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    AFFINITY = "affinity"


def replay_local(
    requests: Iterable[TracedRequest],
    policies: Callable[[], EvictionPolicy[int]],
    capacity_blocks: int,
    instances: int,
    spread: Spread,
    *,
    warm_up: int = 0,
    walk: Walk = Walk.TAIL_FIRST,
    seed: int = 0,
) -> Tally:
    """Replay through `instances` caches of `capacity_blocks` each; the tally of them all."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    caches = [ReplayedCache(policies(), capacity_blocks, walk) for _ in range(instances)]
    asked = [0] * instances
    total = Tally()
    for number, request in enumerate(requests):
        if spread is Spread.RANDOM:
            at = draw.randrange(instances)
        elif spread is Spread.ROUND_ROBIN:
            at = number % instances
        else:
            # A first block that every request shares draws nobody.
            hits = [max(1, cache.blocks_hit(request)) for cache in caches]
            at = max(range(instances), key=lambda each: (hits[each], -asked[each]))
        asked[at] += 1
        hit = caches[at].serve(request, measured=False)
        if number >= warm_up:
            total.add(request, hit)
    return total
