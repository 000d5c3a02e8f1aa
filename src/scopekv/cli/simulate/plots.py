"""Pictures of simulated runs. matplotlib comes with the extra `bench` and loads when used."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scopekv.cli.benchmark.chart import load_pyplot
from scopekv.errors import ConfigError, Misuse
from scopekv.simulate.fleet.plan import tokens_of
from scopekv.simulate.fleet.speeds import TIERS

_MEMORIES = ("engine-memory", *TIERS)
_GREEN, _ORANGE, _GREY, _RED = "#2a7f62", "#d98c3f", "#9a9a9a", "#b0413e"


def prepare(folder: Path) -> Any:
    """Find out now what cannot be drawn or written. Returns pyplot."""
    pyplot = load_pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"cannot write into {folder}: choose another folder for --plot")
    return pyplot


def draw(
    pyplot: Any, result: dict[str, Any], allowed: Mapping[str, float], folder: Path
) -> list[Path]:
    """Write what the runs show; return the files. `allowed`: by isolation."""
    runs: Sequence[dict[str, Any]] = result.get("runs") or [{**result, "swept": {}}]
    files = [
        _save(pyplot, folder / "isolation.png", lambda axis: _isolation(axis, allowed, runs)),
        _save(pyplot, folder / "timeline.png", lambda axis: _timeline(axis, runs[0])),
        _save(pyplot, folder / "heat.png", lambda axis: _heat(axis, runs[0])),
    ]
    swept = list(runs[0]["swept"])
    memory = next((key for key in swept if key in _MEMORIES), None)
    if memory is not None:
        file = folder / "hit-rate.png"
        files.append(_save(pyplot, file, lambda axis: _hit_rate(axis, runs, memory)))
    return files


def _save(pyplot: Any, path: Path, paint: Callable[[Any], None]) -> Path:
    figure, axis = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
    try:
        paint(axis)
        axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)
    return path


def _isolation(axis: Any, allowed: Mapping[str, float], runs: Sequence[dict[str, Any]]) -> None:
    """Bars of what each isolation allows; dots: what the runs under it found."""
    names = sorted(allowed, key=lambda name: -allowed[name])
    bars = axis.bar(names, [100 * allowed[name] for name in names], color=_GREEN, alpha=0.75)
    axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
    for run in runs:
        kind = run["plan"]["isolation"]
        if "assign=random" in run["plan"]["tenants"]:
            continue
        axis.scatter([kind], [100 * run["token_hit_rate"]], color=_RED, zorder=3)
    axis.scatter([], [], color=_RED, label="found in the runs")
    axis.set_title("Cost of isolation: token hit rate that infinite memory allows", fontsize=10)
    axis.set_ylabel("token hit rate, %")
    axis.legend(frameon=False, fontsize=8)
    axis.margins(y=0.15)


def _hit_rate(axis: Any, runs: Sequence[dict[str, Any]], key: str) -> None:
    """A line of hit rate over memory for each combination of whatever else is swept."""
    lines: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for run in runs:
        rest = ", ".join(f"{k}={v}" for k, v in run["swept"].items() if k != key)
        lines.setdefault(rest or "token hit rate", []).append((_tokens(run, key), run))
    for name, points in lines.items():
        points.sort(key=lambda point: point[0])
        axis.plot(
            [x for x, _ in points],
            [100 * run["token_hit_rate"] for _, run in points],
            marker="o",
            markersize=4,
            label=name,
        )
    bounds = {round(100 * run["allowed"], 2) for run in runs}
    for bound in bounds:
        axis.axhline(bound, color=_GREY, linestyle=":", linewidth=1)
    axis.plot([], [], color=_GREY, linestyle=":", label="allowed")
    axis.set_xscale("log")
    asked = {x: run["swept"][key] for points in lines.values() for x, run in points}
    sizes = [size for size in asked if 0 < size < float("inf")]
    axis.set_xticks(sizes, [asked[size] for size in sizes], fontsize=8)
    axis.minorticks_off()
    axis.set_xlabel(key + ("" if key == "remote" else " of each instance"))
    axis.set_ylabel("token hit rate, %")
    axis.set_title("Hit rate against memory", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def _tokens(run: dict[str, Any], key: str) -> float:
    plan = run["plan"]
    found = plan["engine_tokens"] if key == "engine-memory" else plan["tiers_tokens"].get(key)
    if found is not None:
        return float(found)
    try:
        return tokens_of(run["swept"][key], 1)
    except Misuse:
        return float("nan")


def _timeline(axis: Any, run: dict[str, Any]) -> None:
    """Hit rate and mean TTFT over time."""
    line = run["timeline"]
    width, busy = line["width_seconds"], line["requests"]
    at = [number * width / 60 for number, count in enumerate(busy) if count]
    hits = [100 * rate for rate, count in zip(line["token_hit_rate"], busy, strict=True) if count]
    ttft = [each / 1e3 for each, count in zip(line["ttft_ms_mean"], busy, strict=True) if count]
    axis.plot(at, hits, color=_GREEN, label="token hit rate, %")
    axis.set_ylim(0, 100)
    axis.set_xlabel("minutes")
    axis.set_ylabel("token hit rate, %")
    right = axis.twinx()
    right.plot(at, ttft, color=_ORANGE, linewidth=1)
    right.set_ylabel("mean TTFT, s")
    right.set_ylim(bottom=0)
    axis.plot([], [], color=_ORANGE, label="mean TTFT, s")
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    axis.set_title("Timeline", fontsize=10)


def _heat(axis: Any, run: dict[str, Any]) -> None:
    """How busy each instance is with prefill, over time."""
    line = run["timeline"]
    columns = list(zip(*line["busy"], strict=True)) if line["busy"] else [[0.0]]
    end = len(line["busy"]) * line["width_seconds"] / 60
    image = axis.imshow(
        columns,
        aspect="auto",
        origin="lower",
        vmin=0,
        vmax=1,
        cmap="magma",
        extent=(0, max(end, 1e-9), -0.5, len(columns) - 0.5),
        interpolation="nearest",
    )
    axis.figure.colorbar(image, ax=axis, label="part of the time in prefill")
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("minutes")
    axis.set_ylabel("instance")
    axis.set_title("Heat of the instances", fontsize=10)
