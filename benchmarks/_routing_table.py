"""The figures of the benchmark of routing, as people read them."""

from __future__ import annotations

from typing import Any

from _routing_workload import BURST


def table(figures: dict[str, Any]) -> str:
    head = f"{'':16}{'hit rate':>10}{'TTFT p50':>10}{'p99 ms':>10}{'share':>8}{'errors':>8}"
    lines = [f"{head}   {'predicted rate, TTFT p50':>24}"]
    for run in figures["runs"]:
        said = run.get("predicted")
        told = f"{said['token_hit_rate']:15.1%}{said['ttft_ms_p50']:9.0f}" if said else ""
        lines.append(
            f"{run['router']:16}{run['token_hit_rate']:10.1%}{run['ttft_ms_p50']:10.0f}"
            f"{run['ttft_ms_p99']:10.0f}{run['balance_max_share']:8.0%}{run['errors']:8}   {told}"
        )
    for name, run in figures["burst"].get("by_router", {}).items():
        lines.append(f"burst of {BURST}, {name}: {run['balance_max_share']:.0%} on one engine")
    for name, value in figures["kill"].items():
        shown = f"{value:.2f}" if isinstance(value, float) else value
        lines.append(f"kill: {name:26}{shown:>10}")
    return "\n".join(lines)
