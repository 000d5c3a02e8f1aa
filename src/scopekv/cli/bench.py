"""`scopekv bench`: measure what sharing saves, on the real engine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from scopekv.cli.benchmark import chart, report
from scopekv.cli.benchmark.modes import Article
from scopekv.cli.benchmark.stages import EngineChoice, scoped_stage, stock_engine
from scopekv.cli.benchmark.texts import make_texts
from scopekv.cli.options import data_dir_option, default_data_dir
from scopekv.cli.running import run
from scopekv.core.article import Costs, Plan, Shape, cache_tokens
from scopekv.engines.model import MODEL_NAME, ensure_model
from scopekv.errors import ConfigError

_PIPE_COLUMNS = 110  # a pipe has no width
_SPEED_SECONDS = 120.0  # the window from which the remaining time is judged
_file = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.group()
def bench() -> None:
    """Measure ScopeKV on this machine."""


@dataclass(frozen=True, slots=True)
class _Options:
    shape: Shape
    seed: int
    dtype: str
    budget_minutes: float
    json_file: Path | None
    plot_file: Path | None


@bench.command()
@click.option("--users", default=10, show_default=True, type=click.IntRange(2, 1000))
@click.option("--requests", default=10, show_default=True, type=click.IntRange(2, 1000))
@click.option("--document-tokens", default=5000, show_default=True, type=click.IntRange(64, 100000))
@click.option("--question-tokens", default=250, show_default=True, type=click.IntRange(48, 100000))
@click.option("--seed", default=1, show_default=True, help="Of the texts; no other dice are cast.")
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float32", "bfloat16"]),
    help="bfloat16 is faster on processors with AVX-512 BF16 or AMX, far slower on others.",
)
@click.option(
    "--budget-minutes",
    default=9.0,
    show_default=True,
    type=click.FloatRange(0, 1440),
    help="Measure as many requests as fit; 0 measures all (but of no cache a sample).",
)
@click.option("--json", "json_file", type=_file, help="Write the figures to this file.")
@click.option("--plot", "plot_file", type=_file, help="Draw them into this PNG file.")
@data_dir_option
def article(
    users: int,
    requests: int,
    document_tokens: int,
    question_tokens: int,
    data_dir: Path | None,
    **options: Any,
) -> None:
    """Run the worked example four ways: no cache, one salt per user, one trust group, ScopeKV.

    Every request starts with the same public document and ends with a private question. The same
    token ids go to stock vLLM (the first three) and to vLLM with the plugin behind a gateway.
    Everything runs in a throw-away folder; only the model is kept in the data directory.
    """
    shape = Shape(users, requests, document_tokens, question_tokens)
    chosen = _Options(shape=shape, **options)
    folder = (data_dir or default_data_dir()).expanduser().absolute()
    console = Console(stderr=True)

    async def body() -> None:
        # A gateway tells of its engines; here that would tear the progress bar.
        logging.getLogger("scopekv").setLevel(logging.ERROR)
        pyplot = _check_outputs(chosen)
        began = time.monotonic()
        done = await _measure(chosen, folder, console)
        total = time.monotonic() - began
        report.show(done, Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS))
        if chosen.json_file is not None:
            result = report.as_json(done, seed=chosen.seed, dtype=chosen.dtype, total_seconds=total)
            chosen.json_file.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        if chosen.plot_file is not None:
            chart.draw(pyplot, done.results, shape, chosen.plot_file)

    run(body)


def _check_outputs(options: _Options) -> Any:
    """Find out now, not after ten minutes, what cannot be written. Returns pyplot if needed."""
    for path in (options.json_file, options.plot_file):
        parent = path.absolute().parent if path is not None else Path()
        if path is not None and not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise ConfigError(f"cannot write {path}: make the folder {parent} first")
    return chart.load_pyplot() if options.plot_file is not None else None


async def _measure(options: _Options, folder: Path, console: Console) -> Article:
    began = time.monotonic()
    model = await asyncio.to_thread(ensure_model, folder, console=console)
    shape = options.shape
    texts = await asyncio.to_thread(make_texts, model / "tokenizer.json", shape, options.seed)
    choice = EngineChoice(
        model_dir=model,
        cache_dir=folder / "cache" / "vllm",
        dtype=options.dtype,
        prompt_tokens_max=shape.prompt_tokens,
    )
    stock_tokens, scoped_tokens = cache_tokens(shape)
    budget = options.budget_minutes * 60
    with _progress(console) as progress:
        task = progress.add_task("Starting stock vLLM", total=None)

        def planned(plan: Plan, costs: Costs) -> None:
            progress.console.print(_words(plan, costs, shape), highlight=False)
            progress.update(task, completed=0, total=plan.seconds(shape, costs))

        measured = Article(
            shape,
            texts,
            lambda what, seconds: progress.update(task, description=what, advance=seconds),
            planned,
            began + budget if budget else None,
        )
        async with stock_engine(choice, stock_tokens) as engine:
            measured.start_seconds = time.monotonic() - began
            await measured.stock(engine.url, engine.api_key, MODEL_NAME)
        progress.update(task, description="Starting vLLM with ScopeKV, publishing the document")
        users = shape.users
        async with scoped_stage(
            choice, scoped_tokens, document=texts.document, users=users
        ) as stage:
            costs = measured.costs
            warm_seconds = costs.start_seconds + costs.warm_forms * costs.whole_seconds
            progress.update(task, advance=warm_seconds)
            await measured.scopekv(stage, MODEL_NAME)
    return measured


def _words(plan: Plan, costs: Costs, shape: Shape) -> str:
    """What will be measured, and why not more."""
    minutes = plan.seconds(shape, costs) / 60
    return (
        f"A whole prompt takes {costs.whole_seconds:.1f} s here, one with a cached document "
        f"{costs.later_seconds:.1f} s. Measuring {plan.later} of {shape.requests - 1} later "
        f"requests of each user, {plan.users} of {shape.users} users under per-user salts, and "
        f"{plan.none + 1} requests without a cache: about {minutes:.0f} minutes more."
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
        transient=not console.is_terminal,
        speed_estimate_period=_SPEED_SECONDS,
    )
