"""A simulated run for people: one figure a line, each under its own name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

_GIB = 1 << 30


def show(result: dict[str, Any], console: Console) -> None:
    """Print one run, or a row for each of a sweep."""
    runs = result.get("runs")
    _about(result, runs[0] if runs else result, console)
    if runs:
        _sweep(runs, console)
    else:
        _one(result, console)


def _about(result: dict[str, Any], run: dict[str, Any], console: Console) -> None:
    plan = run["plan"]
    console.print(
        f"{result['trace']}: {result['trace_requests']:,} requests "
        f"in {result['trace_seconds']:,.1f} s, "
        f"{result['trace_input_tokens']:,} input tokens, {result['conversations']:,} conversations,"
        f" blocks of {result['block_tokens']} tokens",
        markup=False,
    )
    if result["tenants_drawn"]:
        console.print(f"tenants, drawn: {plan['tenants']},seed={plan['seed']}")
    model = plan["engine_model"]
    console.print(f"engine model {model['name']}: {model['source']}\n", markup=False)


def _sweep(runs: Sequence[dict[str, Any]], console: Console) -> None:
    keys = list(runs[0]["swept"])
    heads = (*("token hit rate", "allowed", "oracle", "request hit rate"), "TTFT p50", "p99 ms")
    rejected = ["rejected"] if any(run["rejected"] for run in runs) else []
    rows = [
        [
            *(str(run["swept"][key]) for key in keys),
            *(f"{run[name]:.1%}" for name in ("token_hit_rate", "allowed", "oracle")),
            f"{run['request_hit_rate']:.1%}",
            f"{run['ttft_ms_p50']:,.0f}",
            f"{run['ttft_ms_p99']:,.0f}",
            *([f"{run['cost']['per_million_input_tokens']:.4g}"] if "cost" in run else []),
            *([f"{run['rejected']:,}"] if rejected else []),
        ]
        for run in runs
    ]
    priced = ["cost / M input"] if "cost" in runs[0] else []
    _table(console, [*keys, *heads, *priced, *rejected], rows, left=len(keys))
    for run in runs:
        if late := _late(run):
            swept = " ".join(f"{key}={value}" for key, value in run["swept"].items())
            console.print(f"{swept}: {late}", markup=False)


def _one(run: dict[str, Any], console: Console) -> None:
    _table(
        console,
        ["", "of input tokens"],
        [
            ["token hit rate", f"{run['token_hit_rate']:.2%}"],
            ["  allowed: infinite memory under this isolation", f"{run['allowed']:.2%}"],
            ["  oracle: infinite memory without isolation", f"{run['oracle']:.2%}"],
        ],
    )
    if run["bounds_sampled"] < 1:
        console.print(f"the bounds are estimated from {run['bounds_sampled']:.2%} of the blocks\n")
    _table(
        console,
        ["text of", "input tokens", "from the cache", "token hit rate"],
        [
            [
                kind,
                f"{of['input_tokens']:,}",
                f"{of['cached_tokens']:,}",
                f"{of['token_hit_rate']:.1%}",
            ]
            for kind, of in run["by_scope"].items()
        ],
    )
    _table(
        console,
        [
            "found in",
            "of input",
            "GiB read",
            "GiB written",
            "blocks now",
            "evicted",
            "no room",
        ],
        [
            [
                tier,
                f"{of['token_hit_rate']:.1%}",
                f"{of['read_bytes'] / _GIB:,.1f}",
                f"{of['written_bytes'] / _GIB:,.1f}",
                f"{of['resident_blocks']:,}",
                f"{of['evictions']:,}",
                f"{of['no_room_blocks']:,}",
            ]
            for tier, of in run["by_tier"].items()
        ],
    )
    _table(console, ["", ""], _more(run))


def _late(run: dict[str, Any]) -> str:
    """What to do where a queue grew; empty where the instances kept up."""
    there, enough = run["plan"]["instances"], run["instances"]["enough"]
    if enough <= there:
        return ""
    late = run["instances"]["late_seconds"]
    return (
        f"too few instances: turns still come {late:,.0f} s after the last request, "
        f"so TTFT is the queue's. About {enough} would keep up (now {there})"
    )


def _more(run: dict[str, Any]) -> Iterable[list[str]]:
    fairness, instances = run["fairness"], run["instances"]
    yield ["request hit rate", f"{run['request_hit_rate']:.1%} of {run['requests']:,} requests"]
    ttft = " / ".join(f"{run[f'ttft_ms_{name}']:,.0f}" for name in ("p50", "p90", "p99"))
    yield ["TTFT p50 / p90 / p99", f"{ttft} ms"]
    yield ["prefill tokens saved", f"{run['prefill_tokens_saved']:,}"]
    yield [
        "prefill time saved",
        f"{run['prefill_seconds_saved']:,.0f} s, beside {run['prefill_seconds']:,.0f} s computed",
    ]
    yield [
        "instances",
        (
            f"busy {instances['busy_mean']:.0%} in the mean, "
            f"{instances['busy_max']:.0%} at most; "
            f"{instances['balance_max_share']:.0%} of the requests on one"
        ),
    ]
    if late := _late(run):
        yield ["", late]
    yield [
        "fairness",
        (
            f"{fairness['jain']:.3f} (Jain; found over allowed, by organisation), "
            f"least {fairness['least_of_allowed']:.0%}"
        ),
    ]
    routes = ", ".join(f"{name} {count:,}" for name, count in sorted(run["routes"].items()))
    yield ["routes", routes]
    if run["rejected"]:
        yield ["rejected", f"{run['rejected']:,} prompts are larger than engine memory"]
    if "cost" in run:
        costs = run["cost"]
        yield [
            "cost",
            (
                f"{costs['total']:,.4g}, {costs['per_million_input_tokens']:.4g} for a "
                f"million input tokens"
            ),
        ]
        yield [
            "cost of the prefill time saved",
            f"{costs['prefill_saved_at_instance_price']:,.4g} at the instance's price",
        ]


def _table(
    console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1
) -> None:
    table = Table(box=None, pad_edge=False, show_header=any(heads))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left or not any(heads) else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()
