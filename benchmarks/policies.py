"""How much of what could be found in a cache does each eviction policy find?

    python benchmarks/policies.py [--trace NAME_OR_FILE ...] [--policy NAME ...] [--json FILE]

Replays recorded requests through one cache of each capacity; the first half fills it, the second
half is measured.

    token_hit_rate   tokens of the longest cached prefix / tokens asked
    gap_closed       (it - LRU) / (optimal - LRU); optimal knows the future;
                     told is LRU that knows whether a block is ever used again, and not when;
                 fitted is ours with finer kinds, counted over the whole trace beforehand: about
                 what its signals could give, and optimistic

Traces by name: the two of Mooncake that the tests keep, and, where SCOPEKV_TRACES names the folder
that holds claude_code_weka.jsonl.gz, `claude_code_weka@32` and `@96` (users at once).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from _progress import tell

from scopekv.core.eviction import (
    GreedyDual,
    LearnedReuse,
    LruPolicy,
    Recency,
    ScopedPolicy,
    Shares,
)
from scopekv.core.lru import EvictionPolicy
from scopekv.errors import Misuse, ScopeKVError
from scopekv.simulate.policies import (
    ArcPolicy,
    FifoPolicy,
    Future,
    OptimalPolicy,
    S3FifoPolicy,
    ToldWhetherPolicy,
    fitted_policy,
)
from scopekv.simulate.replay import Walk, replay
from scopekv.simulate.traces import Arrivals, SingleBlocks, TracedRequest, open_trace

KEPT = Path(__file__).parents[1] / "tests" / "data" / "traces"
TRACES = ("mooncake_conversation", "mooncake_synthetic")
WEKA = ("claude_code_weka@32", "claude_code_weka@96")
CAPACITIES = (1_536_000, 2_999_808, 5_120_000)
WEKA_BLOCK_TOKENS = 1024  # 16 of its own: sixteen times faster, and finer than most hits

Make = Callable[[int, list[TracedRequest]], EvictionPolicy[int]]
POLICIES: dict[str, tuple[Walk, Make]] = {
    "fifo": (Walk.ONE_BY_ONE, lambda _, __: FifoPolicy()),
    "lru": (Walk.TAIL_FIRST, lambda _, __: LruPolicy()),
    "arc": (Walk.TAIL_FIRST, lambda blocks, _: ArcPolicy(blocks)),
    "s3-fifo": (Walk.TAIL_FIRST, lambda blocks, _: S3FifoPolicy(blocks)),
    "recency": (Walk.HEAD_FIRST, lambda n, _: ScopedPolicy(Shares(n), Recency())),
    "gdsf": (Walk.HEAD_FIRST, lambda n, _: ScopedPolicy(Shares(n), GreedyDual())),
    "scopekv": (Walk.HEAD_FIRST, lambda n, _: ScopedPolicy(Shares(n), LearnedReuse(n))),
    "fitted": (Walk.HEAD_FIRST, lambda n, trace: fitted_policy(trace, n)),
    "told": (Walk.TAIL_FIRST, lambda _, trace: ToldWhetherPolicy(Future(trace))),
    "optimal": (Walk.HEAD_FIRST, lambda _, trace: OptimalPolicy(Future(trace))),
}


def requests_of(name: str) -> list[TracedRequest]:
    stem, _, users = (name, "", "") if Path(name).exists() else name.partition("@")
    if users and not users.isdecimal():
        raise Misuse(f"trace {name[:200]!r}: after @ stands a number of users")
    if Path(stem).exists():
        path = Path(stem)
    elif (KEPT / f"{stem}.jsonl.gz").exists():
        path = KEPT / f"{stem}.jsonl.gz"
    else:
        path = Path(os.environ.get("SCOPEKV_TRACES", ".")) / f"{stem}.jsonl.gz"
    arrivals = Arrivals(users=int(users)) if users else None
    wide = WEKA_BLOCK_TOKENS if users else None
    trace = open_trace(path, arrivals=arrivals, block_tokens=wide)
    try:
        found = list(trace)
    except SingleBlocks:
        found = list(replace(trace, layout=replace(trace.layout, chain=True)))
    if not found:
        raise Misuse(f"the trace {path} has no requests")
    return found


def measure(name: str, policies: list[str], capacities: list[int]) -> list[dict[str, Any]]:
    trace = requests_of(name)
    rows: list[dict[str, Any]] = []
    for capacity in capacities:
        blocks = max(1, capacity // trace[0].block_tokens)
        rates: dict[str, float] = {}
        seconds: dict[str, float] = {}
        for policy in dict.fromkeys(["lru", "optimal", *policies]):
            tell(f"{name}, {capacity} tokens, {policy} ...")
            walk, make = POLICIES[policy]
            begin = time.process_time()
            tally = replay(trace, make(blocks, trace), blocks, warm_up=len(trace) // 2, walk=walk)
            rates[policy], seconds[policy] = tally.token_hit_rate, time.process_time() - begin
        gap = rates["optimal"] - rates["lru"]
        for policy in policies:
            row = {
                "trace": name,
                "capacity_tokens": capacity,
                "policy": policy,
                "token_hit_rate": round(rates[policy], 4),
                "gap_closed": round((rates[policy] - rates["lru"]) / gap, 3) if gap else None,
                "cpu_seconds": round(seconds[policy], 1),
            }
            rows.append(row)
            closed = "     -" if row["gap_closed"] is None else f"{row['gap_closed']:6.1%}"
            print(
                f"{name:24}{capacity:>12,}  {policy:8}{rates[policy]:8.2%}  {closed}"
                f"  {seconds[policy]:6.1f} s",
                flush=True,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trace", action="append", help="name or file; may be repeated")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="may be repeated")
    parser.add_argument("--capacity", action="append", type=int, help="tokens; may be repeated")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if any(capacity < 1 for capacity in options.capacity or ()):
        parser.error("--capacity is 1 token or more")
    try:
        run(options)
    except (ScopeKVError, OSError) as error:
        sys.exit(f"Error: {error}")


def run(options: argparse.Namespace) -> None:
    print(f"{'trace':24}{'tokens':>12}  {'policy':8}{'hit':>8}  closed     cpu")
    rows: list[dict[str, Any]] = []
    traces = options.trace or (TRACES + WEKA if "SCOPEKV_TRACES" in os.environ else TRACES)
    for name in traces:
        rows += measure(name, options.policy or [*POLICIES], options.capacity or [*CAPACITIES])
        if options.json:  # after each trace: the rest takes long
            options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
