"""Which instance gets a request: the one expected to give its first token soonest.

    expected = queue ahead + prefill of what is not cached there      (or a fetch from tiers there,
                                                                       where that is faster)

Every figure is measured or counted, none is a weight to tune. Three rules go with it:

- Differences below what the estimate can tell are none: fewer requests in flight wins, then dice.
- A prefix that many requests in flight share is kept on more than one instance: none holds more
  than its bounded share of them (as consistent hashing with bounded loads, Mirrokni et al. 2016).
- Where an instance's view is unsure, only its load counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from scopekv.core.fetching import Demand, Run, decide
from scopekv.core.reasons import RouteReason
from scopekv.core.speeds import PrefillCurve
from scopekv.core.values import light_value
from scopekv.errors import Misuse

SAME_FRACTION = 0.02  # of the expected time: what two estimates for one prompt can be apart
SAME_SECONDS = 0.002
CROWD_FREE = 8  # requests in flight on one prefix that any instance may hold
CROWD_SHARE = 1.2  # above that: times the mean of the candidates; two instances: 60 to 40


@light_value()
class CachedThere:
    """What an instance has of a prompt: leading tokens in memory, then runs in its tiers.

    `chunk_tokens`, `chunk_bytes`: of what those runs count.
    """

    tokens: int
    runs: tuple[Run, ...] = ()
    chunk_tokens: int = 1
    chunk_bytes: int = 1

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.chunk_tokens < 1 or self.chunk_bytes < 1:
            raise Misuse("an instance has from 0 tokens of a prompt, in chunks of tokens and bytes")

    def with_coming(self, tokens: int) -> CachedThere:
        """The same once so many leading tokens are in memory as well."""
        skipped = max(0, tokens - self.tokens) // self.chunk_tokens
        runs = []
        for run in self.runs:
            left = max(0, run.blocks - skipped)
            skipped -= run.blocks - left
            if left:
                runs.append(Run(run.speed, left))
        return CachedThere(
            max(tokens, self.tokens), tuple(runs), self.chunk_tokens, self.chunk_bytes
        )


@light_value()
class Candidate:
    """One instance that could take the request, as of now.

    `queue_seconds`: until what was sent there before has its first token. `curve`: its prefill as
    slowed down by what it decodes. `cached` None: its view is unsure. `crowd`: how many of its
    requests in flight share the hot prefix of this one; 0 where it has more of the prompt.
    """

    name: str
    queue_seconds: float
    in_flight: int
    curve: PrefillCurve
    cached: CachedThere | None
    crowd: int = 0


_NOTHING = CachedThere(0)


@light_value()
class Choice:
    """The instance, why, and the seconds to the first token that are expected there.

    `prefill_seconds`: the part of it that is the request's own work, for the reservation.
    `cached_tokens`: leading tokens that will not be computed there.
    """

    name: str
    reason: RouteReason
    expected_seconds: float
    prefill_seconds: float
    cached_tokens: int


@light_value()
class _Cost:
    candidate: Candidate
    expected: float
    prefill: float
    cached: int
    fetches: bool

    def choice(self, reason: RouteReason) -> Choice:
        return Choice(self.candidate.name, reason, self.expected, self.prefill, self.cached)


_expected = attrgetter("expected")


def choose(
    candidates: Sequence[Candidate], total_tokens: int, tie: float, *, retry: bool = False
) -> Choice:
    """Return where to send a request. Pure: the same arguments give the same choice.

    `total_tokens`: of its prompt. `tie`: from dice, in [0, 1); decides between equals alone.
    `retry`: another instance failed.
    Raises `Misuse` without candidates. Cost: O(candidates), and O(runs) for each with tiers.
    """
    if not candidates:
        raise Misuse("there is no candidate to choose from")
    if total_tokens < 1:
        raise Misuse("a request has at least one token")
    if not 0 <= tie < 1:
        raise Misuse("a tie is decided by a number in [0, 1)")
    costs = [_cost(candidate, total_tokens) for candidate in candidates]
    if len(costs) == 1:
        return costs[0].choice(RouteReason.RETRY if retry else RouteReason.ONLY_CANDIDATE)
    soonest = min(costs, key=_expected)
    free = _not_crowded(costs)
    best = soonest.expected if free is costs else min(free, key=_expected).expected
    same = best + max(SAME_FRACTION * best, SAME_SECONDS)
    near = [cost for cost in free if cost.expected <= same]
    equals = near
    if len(near) > 1:
        fewest = min([cost.candidate.in_flight for cost in near])
        equals = [cost for cost in near if cost.candidate.in_flight == fewest]
    chosen = equals[int(tie * len(equals))]
    if retry:
        return chosen.choice(RouteReason.RETRY)
    if free is not costs and soonest.expected < chosen.expected and soonest not in free:
        return chosen.choice(RouteReason.HOT_PREFIX)
    return chosen.choice(_reason(chosen, costs, equals))


def _cost(candidate: Candidate, total: int) -> _Cost:
    """The last token is always computed, so there is prefill for what is cached whole, too."""
    queue, curve = candidate.queue_seconds, candidate.curve
    there = candidate.cached or _NOTHING
    cached = there.tokens if there.tokens < total else total - 1
    prefill = curve.seconds(cached, total)
    if not there.runs:
        return _Cost(candidate, queue + prefill, prefill, cached, fetches=False)
    demand = Demand(total, cached, there.chunk_tokens, there.chunk_bytes, queue)
    plan = decide(demand, there.runs, curve)
    fetches = plan.gain_seconds > 0  # a try of an unknown speed promises nothing
    left = min(prefill, plan.expected_seconds - queue)
    reached = min(demand.after(plan.blocks), total - 1) if fetches else cached
    return _Cost(candidate, plan.expected_seconds, left, reached, fetches)


def _not_crowded(costs: Sequence[_Cost]) -> Sequence[_Cost]:
    """Those that may take one more request of a hot prefix; all of them if none may."""
    total = sum([cost.candidate.crowd for cost in costs])
    if not total:
        return costs
    most = max(CROWD_FREE, int(CROWD_SHARE * (total + 1) / len(costs)))
    return [cost for cost in costs if cost.candidate.crowd < most] or costs


def _reason(chosen: _Cost, costs: Sequence[_Cost], equals: Sequence[_Cost]) -> RouteReason:
    if chosen.candidate.cached is None:
        return RouteReason.LOAD_ONLY_UNSURE
    if chosen.cached:
        cached = [cost.cached for cost in costs]
        if chosen.cached == max(cached) > min(cached):
            return RouteReason.PREFIX_IN_TIER if chosen.fetches else RouteReason.PREFIX_HERE
    if len(equals) == len(costs):
        return RouteReason.TIE
    queue, flight = chosen.candidate.queue_seconds, chosen.candidate.in_flight
    for cost in costs:
        if cost.candidate.queue_seconds > queue or cost.candidate.in_flight > flight:
            return RouteReason.SHORTER_QUEUE
    return RouteReason.FASTER_PREFILL
