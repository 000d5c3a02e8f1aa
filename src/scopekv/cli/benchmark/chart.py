"""The worked example as a picture. matplotlib comes with the extra `bench` and loads when used."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scopekv.cli.benchmark.report import TITLES
from scopekv.core.article import Figures, Mode, Shape
from scopekv.errors import ConfigError

_COLOURS = {
    Mode.NONE: "#9a9a9a",
    Mode.PER_USER_SALT: "#d98c3f",
    Mode.ONE_GROUP: "#b0413e",
    Mode.SCOPEKV: "#2a7f62",
}


def load_pyplot() -> Any:
    """Import matplotlib for files only (no display). Raises `ConfigError` where it is absent."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise ConfigError(
            "--plot needs matplotlib: pip install 'scopekv[bench]', or leave --plot out"
        ) from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def draw(pyplot: Any, results: Mapping[Mode, Figures], shape: Shape, path: Path) -> None:
    """Write a PNG of hit rates, prefilled tokens and TTFT to `path`."""
    figure, axes = pyplot.subplots(1, 4, figsize=(16, 4.6), layout="constrained")
    figure.suptitle(
        f"{shape.users} isolated users, {shape.requests} requests each: {shape.document_tokens:,} "
        f"public + {shape.question_tokens:,} private tokens"
    )
    rates = {m: results[m].token_hit_rate * 100 for m in TITLES}
    _bars(axes[0], "Token hit rate, %", rates, "{:.1f}")
    _bars(
        axes[1],
        "Prefilled tokens, thousands",
        {m: results[m].prefilled_tokens / 1e3 for m in TITLES},
        "{:,.0f}",
    )
    _bars(
        axes[2],
        "TTFT of a user's first request, p50, s",
        {m: results[m].first_ttft_ms_p50 / 1e3 for m in TITLES},
        "{:.2f}",
        {m: results[m].first_ttft_ms_p99 / 1e3 for m in TITLES},
    )
    _bars(
        axes[3],
        "TTFT of later requests, p50, s",
        {m: results[m].later_ttft_ms_p50 / 1e3 for m in TITLES},
        "{:.2f}",
        {m: results[m].later_ttft_ms_p99 / 1e3 for m in TITLES},
    )
    private = ", ".join(f"{TITLES[m]} {results[m].private_hits_across_users}" for m in TITLES)
    figure.supxlabel(
        f"Private tokens found across users: {private}. Ticks above bars: p99.", size=9
    )
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _bars(
    axis: Any,
    title: str,
    values: Mapping[Mode, float],
    form: str,
    ticks: Mapping[Mode, float] | None = None,
) -> None:
    places = range(len(TITLES))
    bars = axis.bar(places, [values[m] for m in TITLES], color=[_COLOURS[m] for m in TITLES])
    axis.bar_label(bars, [form.format(values[m]) for m in TITLES], padding=2, fontsize=9)
    if ticks is not None:
        axis.scatter(places, [ticks[m] for m in TITLES], marker="_", color="black", zorder=3)
    axis.set_title(title, fontsize=10)
    axis.set_xticks(places, [title.replace(" ", "\n", 1) for title in TITLES.values()], fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(y=0.15)
