"""Load or recompute against an oracle, in a simulated sweep (L9).

    python benchmarks/_fetch_regret.py [--seed 1] [--requests 120] [--json FILE]

The real estimators, `decide` and `stalled` run request after request on one engine and one tier.
The oracle knows the true times of each request, noise and hangs included, and takes the best number
of blocks. Each stage (a prefill speed, a block size, a latency, a bandwidth) has requests of 500 to
6,000 tokens, half of them with a queue; half-way the tier and the engine change their speed; later
the tier hangs for some requests, then works again.

    regret    = mean TTFT of ours / mean TTFT of the oracle - 1
    p99 ratio = 99th percentile of TTFT of ours / the same with no tier
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _fetch_world import (
    HANGS,
    WARM_UP_TOKENS,
    Engine,
    Stage,
    drawn_demand,
    drawn_moment,
    oracle,
)

from scopekv.core.reasons import FetchReason

LATENCIES = (50e-6, 200e-6, 1e-3, 3e-3, 10e-3, 50e-3)
BANDWIDTHS = (20e6, 100e6, 500e6, 2e9, 5e9)
BLOCK_BYTES = (737_280, 1_474_560)
PREFILLS = (150.0, 1000.0, 3000.0, 10_000.0)


@dataclass
class Figures:
    """TTFT of each request, three ways."""

    ours: list[float] = field(default_factory=list)
    oracle: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)
    reasons: Counter[FetchReason] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        self.ours += other.ours
        self.oracle += other.oracle
        self.none += other.none
        self.reasons += other.reasons

    @property
    def regret(self) -> float:
        return statistics.fmean(self.ours) / statistics.fmean(self.oracle) - 1

    @property
    def p99_ratio(self) -> float:
        return _p99(self.ours) / _p99(self.none)

    @property
    def p99_paired(self) -> float:
        """99th percentile of (ours / no tier) over requests: stricter."""
        return _p99([a / b for a, b in zip(self.ours, self.none, strict=True)])

    @property
    def saved(self) -> float:
        return 1 - statistics.fmean(self.oracle) / statistics.fmean(self.none)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def play(stage: Stage, requests: int, seed: str) -> Figures:
    """One stage. Deterministic by seed."""
    dice = random.Random(f"{seed}/{stage}")
    engine, figures = Engine(stage.block_bytes), Figures()
    start = drawn_moment(stage, dice, 1.0, 1.0, hangs=False)
    engine.prefill.observe(0, WARM_UP_TOKENS, start.prefill(0, WARM_UP_TOKENS))
    tier_change, engine_change = dice.choice([0.1, 0.25, 4.0, 10.0]), dice.choice([0.5, 2.0])
    hang_from = int(requests * 0.75)
    for number in range(requests):
        late = number >= requests // 2
        moment = drawn_moment(
            stage,
            dice,
            tier_change if late else 1.0,
            engine_change if late else 1.0,
            hangs=hang_from <= number < hang_from + HANGS,
        )
        demand, held = drawn_demand(stage, dice, moment)
        ours, reason = engine.serve(demand, held, moment)
        figures.ours.append(ours)
        figures.oracle.append(oracle(demand, held, moment))
        all_of_it = moment.prefill(demand.cached_tokens, demand.total_tokens)
        figures.none.append(demand.queue_seconds + all_of_it)
        figures.reasons[reason] += 1
    return figures


def sweep(requests: int = 120, seed: int = 1) -> dict[Stage, Figures]:
    """All stages."""
    stages = itertools.starmap(
        Stage, itertools.product(LATENCIES, BANDWIDTHS, BLOCK_BYTES, PREFILLS)
    )
    return {stage: play(stage, requests, str(seed)) for stage in stages}


def together(figures: Iterable[Figures]) -> Figures:
    whole = Figures()
    for each in figures:
        whole.add(each)
    return whole


def summary(played: dict[Stage, Figures]) -> dict[str, float]:
    """Overall, and the worst step: a step is a latency and a bandwidth of the tier."""
    steps = [
        together(f for s, f in played.items() if (s.latency, s.bandwidth) == (latency, bandwidth))
        for latency in LATENCIES
        for bandwidth in BANDWIDTHS
    ]
    whole = together(played.values())
    return {
        "oracle_regret": whole.regret,
        "oracle_regret_step_max": max(step.regret for step in steps),
        "p99_ratio": whole.p99_ratio,
        "p99_ratio_step_max": max(step.p99_ratio for step in steps),
        "p99_ratio_paired": whole.p99_paired,
        "p99_ratio_paired_step_max": max(step.p99_paired for step in steps),
        "oracle_saving": whole.saved,
    }


def _row(name: str, figures: Figures) -> str:
    return (
        f"{name:34} {figures.regret:8.1%} {figures.p99_ratio:9.3f} {figures.p99_paired:9.3f}"
        f" {figures.saved:9.1%}"
    )


def table(played: dict[Stage, Figures]) -> str:
    lines = [f"{'':34} {'regret':>8} {'p99 ratio':>9} {'paired':>9} {'to save':>9}"]
    for latency in LATENCIES:
        for bandwidth in BANDWIDTHS:
            step = [
                f for s, f in played.items() if (s.latency, s.bandwidth) == (latency, bandwidth)
            ]
            name = f"{latency * 1e3:g} ms, {bandwidth / 1e6:g} MB/s"
            lines.append(_row(name, together(step)))
    for speed in PREFILLS:
        mine = [f for s, f in played.items() if s.tokens_per_second == speed]
        lines.append(_row(f"all tiers, prefill {speed:g} tok/s", together(mine)))
    whole = together(played.values())
    lines.append(_row("all", whole))
    lines.append("  ".join(f"{reason} {count}" for reason, count in whole.reasons.most_common()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=120, help="in each of the 240 stages")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    played = sweep(options.requests, options.seed)
    print(table(played))
    if options.json:
        options.json.write_text(json.dumps(summary(played), indent=2) + "\n")


if __name__ == "__main__":
    main()
