"""A run as a mapping for programs, from which tables and plots are made."""

from __future__ import annotations

import math
from typing import Any

from scopekv.simulate.fleet.fleet import Fleet
from scopekv.simulate.fleet.plan import FleetPlan
from scopekv.simulate.fleet.prices import Prices, cost

_ORGS_SHOWN = 20
# Who is so late with the last request, in seconds and as a share of all the time that requests
# came, has a queue that grew. Of what comes within a minute nobody can tell.
_LATE_SECONDS, _LATE_SHARE, _CAME_SECONDS = 30.0, 0.05, 60.0


def figures_of(fleet: Fleet, prices: Prices | None = None) -> dict[str, Any]:
    """All figures of a finished run. Rates are from 0 to 1, times in the unit of their name."""
    counts, plan = fleet.counts, fleet.plan
    allowed, oracle = fleet.bounds()
    seconds = max(0.0, counts.ended_at - counts.began_at)
    found: dict[str, Any] = {
        "requests": counts.requests,
        "rejected": counts.rejected,
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "cached_tokens": counts.cached_tokens,
        "token_hit_rate": _rate(counts.cached_tokens, counts.input_tokens),
        "request_hit_rate": _rate(counts.requests_hit, counts.requests),
        "allowed": allowed.token_hit_rate,
        "oracle": oracle.token_hit_rate,
        "bounds_sampled": min(allowed.sampled, oracle.sampled),
        "prefill_tokens_saved": counts.saved_tokens,
        "prefill_seconds": counts.prefill_seconds,
        "prefill_seconds_saved": counts.saved_seconds,
        **{
            f"ttft_ms_{name}": 1e3 * counts.ttft.at(share)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        },
        "ttft_ms_mean": 1e3 * counts.ttft.total_seconds / max(1, counts.requests),
        "by_scope": {
            kind: {
                "input_tokens": tokens,
                "cached_tokens": counts.scope_cached[kind],
                "token_hit_rate": _rate(counts.scope_cached[kind], tokens),
            }
            for kind, tokens in counts.scope_input.items()
        },
        "by_tier": _tiers(fleet),
        "fairness": _fairness(fleet),
        "instances": _instances(fleet, seconds),
        "routes": dict(fleet.route.reasons),
        "simulated_seconds": seconds,
        "timeline": _timeline(fleet),
        "plan": described(plan),
    }
    if prices is not None:
        found["cost"] = _cost(fleet, prices, found, seconds)
    return found


def described(plan: FleetPlan) -> dict[str, Any]:
    """The plan as printed with every result: what it takes to make it again."""
    return {
        "instances": plan.instances,
        "engine_tokens": _finite(plan.engine_tokens),
        "tiers_tokens": {tier: _finite(tokens) for tier, tokens in plan.tiers.items()},
        "policy": plan.policy,
        "route": plan.route,
        "isolation": plan.isolation.value,
        "tenants": str(plan.tenants),
        "engine_model": {"name": plan.speeds.name, "source": plan.speeds.source},
        "seed": plan.seed,
        "speed_up": plan.speed_up,
        "warm_up": plan.warm_up,
    }


def _finite(value: float) -> float | None:
    """None for no limit: JSON knows no infinity."""
    return None if math.isinf(value) else value


def _rate(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _tiers(fleet: Fleet) -> dict[str, Any]:
    """Tokens found in each place, and what went through it. A shared store counts once."""
    counts, found = fleet.counts, {}
    places = {"engine": [one.memory for one in fleet.instances]}
    for tier in fleet.plan.tiers:
        memories = [one.tiers.memories[tier] for one in fleet.instances]
        places[tier] = memories[:1] if tier == "remote" else memories
    for tier, memories in places.items():
        traffic = [one.tiers.traffic[tier] for one in fleet.instances if tier != "engine"]
        found[tier] = {
            "cached_tokens": counts.by_tier[tier],
            "token_hit_rate": _rate(counts.by_tier[tier], counts.input_tokens),
            "read_bytes": sum(each.read_bytes for each in traffic),
            "written_bytes": sum(each.written_bytes for each in traffic),
            "stored_blocks": sum(each.stored for each in memories),
            "resident_blocks": sum(len(each) for each in memories),
            "evictions": sum(each.evicted for each in memories),
            "no_room_blocks": sum(each.refused for each in memories),
        }
    return found


def _fairness(fleet: Fleet) -> dict[str, Any]:
    """Of each organisation: what it found over what it might have found. 1.0: all alike (Jain)."""
    counts = fleet.counts
    shares = {
        org: min(1.0, counts.org_cached[org] / allowed)
        for org, allowed in counts.org_allowed.items()
        if allowed
    }
    squares = sum(share * share for share in shares.values())
    heaviest = [org for org, _ in counts.org_input.most_common(_ORGS_SHOWN)]
    return {
        "jain": _rate(sum(shares.values()) ** 2, len(shares) * squares),
        "least_of_allowed": min(shares.values(), default=0.0),
        "by_org": [
            {
                "org": org,
                "input_tokens": counts.org_input[org],
                "token_hit_rate": _rate(counts.org_cached[org], counts.org_input[org]),
                "allowed": _rate(counts.org_allowed[org], counts.org_input[org]),
            }
            for org in heaviest
        ],
    }


def _instances(fleet: Fleet, seconds: float) -> dict[str, Any]:
    """`late_seconds`: from the last arrival to the last turn of any request.

    `enough`: about so many would have kept up with what arrived; more than there are: a queue grew,
    and TTFT is its length.
    """
    counts = fleet.counts
    requests = [counts.by_instance[one.number] for one in fleet.instances]
    busy = [_rate(one.busy_seconds, seconds) for one in fleet.instances]
    came = counts.last_arrival_at
    late = max(0.0, counts.last_turn_at - came)
    kept_up = came < _CAME_SECONDS or late <= max(_LATE_SECONDS, _LATE_SHARE * came)
    return {
        "balance_max_share": _rate(max(requests), sum(requests)),
        "busy_mean": sum(busy) / len(busy),
        "busy_max": max(busy),
        "late_seconds": late,
        "enough": len(busy) if kept_up else math.ceil(len(busy) * (1 + late / came)),
    }


def _timeline(fleet: Fleet) -> dict[str, Any]:
    timeline = fleet.counts.timeline
    return {
        "width_seconds": timeline.width_seconds,
        "requests": [each.requests for each in timeline.bins],
        "token_hit_rate": [_rate(each.cached_tokens, each.input_tokens) for each in timeline.bins],
        "ttft_ms_mean": [_rate(1e3 * each.ttft_seconds, each.requests) for each in timeline.bins],
        "busy": [
            [
                _rate(each.work.get(one.number, 0.0), timeline.width_seconds)
                for one in fleet.instances
            ]
            for each in timeline.bins
        ],
    }


def _cost(fleet: Fleet, prices: Prices, found: dict[str, Any], seconds: float) -> dict[str, float]:
    plan, token = fleet.plan, fleet.plan.speeds.kv_bytes_per_token
    sizes = {
        tier: tokens * token * (1 if tier == "remote" else plan.instances)
        for tier, tokens in plan.tiers.items()
    }
    read = found["by_tier"].get("remote", {}).get("read_bytes", 0)
    total = cost(
        prices,
        hours=seconds / 3600,
        instances=plan.instances,
        tier_bytes=sizes,
        remote_read_bytes=read,
    )
    millions = max(1, found["input_tokens"]) / 1e6
    return {
        "total": total,
        "per_million_input_tokens": total / millions,
        "prefill_saved_at_instance_price": found["prefill_seconds_saved"]
        / 3600
        * prices.instance_hour,
    }
