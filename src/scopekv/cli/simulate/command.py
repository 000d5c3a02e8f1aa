"""The verb: read the trace, run each plan, print, draw."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from scopekv.cli.options import json_option
from scopekv.cli.simulate import plots, tables
from scopekv.cli.simulate.fuzzing import OrFuzz
from scopekv.cli.simulate.spooling import spooled
from scopekv.errors import ScopeKVError
from scopekv.simulate.fleet.asking import (
    SWEEPABLE,
    Asked,
    check_senders,
    pairs,
    plans,
    workload_of,
)
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.isolation_cost import allowed_by_isolation
from scopekv.simulate.fleet.memory import POLICIES
from scopekv.simulate.fleet.placing import ROUTES
from scopekv.simulate.fleet.plan import AS_BUILT, FleetPlan
from scopekv.simulate.fleet.prices import Prices
from scopekv.simulate.fleet.replay import replay
from scopekv.simulate.fleet.workloads import Workload
from scopekv.simulate.traces.units import UNITS

_PIPE_COLUMNS = 110
_folder = click.Path(file_okay=False, path_type=Path)


@click.command(cls=OrFuzz)
@click.argument("trace")
@click.option("--instances", metavar="N", help="Running engines. [default: 1]")
@click.option("--engine-memory", metavar="SIZE", help="Of each. [default: what the model says]")
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="NAME=SIZE,...",
    help="host and disk of each instance, remote of all.",
)
@click.option(
    "--policy",
    type=click.Choice([AS_BUILT, *POLICIES]),
    help=f"Of every memory. [default: {AS_BUILT}]",
)
@click.option("--route", type=click.Choice(ROUTES), help="[default: scopekv]")
@click.option(
    "--isolation", type=click.Choice([each.value for each in Isolation]), help="[default: layered]"
)
@click.option(
    "--tenants",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="orgs=20,users=400,public=0.25,skew=servegen|even,assign=session|random",
)
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="Speeds: a100-8b, cpu-smollm2, or what `scopekv calibrate` wrote.",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=A,B,C",
    help=f"Run each value. Keys: {', '.join(SWEEPABLE)}.",
)
@click.option("--seed", metavar="N", help="Of tenants and ties. [default: 1]")
@click.option("--speed-up", metavar="X", help="Arrivals X times as fast. [default: 1]")
@click.option("--warm-up", metavar="PART", help="Of the requests, 0 to 1, in no figure.")
@click.option("--limit", type=click.IntRange(1), help="The first so many requests alone.")
@click.option(
    "--block-tokens",
    type=click.IntRange(1),
    help="Count in blocks of so many tokens. [default: the trace's; larger for long prompts]",
)
@click.option(
    "--timestamps",
    type=click.Choice([*UNITS]),
    help="Their unit, in JSON lines with hash_ids. [default: ms, s in Qwen-Bailian's]",
)
@click.option(
    "--arrivals",
    multiple=True,
    metavar="users=N|rate=X",
    help="Of conversations recorded without their time. [default: users=32]",
)
@click.option(
    "--prices",
    metavar="NAME=X,...",
    help="instance_hour, host_gib_hour, disk_gib_hour, remote_gib_hour, remote_gib_read",
)
@click.option("--plot", "plot_dir", type=_folder, help="Draw PNG files into this folder.")
@json_option
def simulate(
    trace: str,
    tiers: Sequence[str],
    tenants: Sequence[str],
    sweeps: Sequence[str],
    limit: int | None,
    block_tokens: int | None,
    timestamps: str | None,
    arrivals: Sequence[str],
    prices: str | None,
    plot_dir: Path | None,
    as_json: bool,
    **words: str | None,
) -> None:
    """Replay TRACE on a fleet in virtual time, through the core that serves real requests.

    TRACE is a file or - (JSON lines with hash_ids, as of Mooncake or Qwen-Bailian, a request log,
    coding conversations, CSV of Azure, BurstGPT or Vidur), or a workload made here: article,
    routing, synthetic[:requests=N,users=N,rate=X,...]. Sizes are tokens (3M) or bytes (40GiB), or
    inf. See docs/planning.md. With --fuzz it looks for bugs: scopekv simulate --fuzz --help.

    \b
    scopekv simulate trace.jsonl.gz --instances 8 --tier host=64GiB,remote=2TiB
    scopekv simulate trace.jsonl.gz --sweep isolation=none,layered,user --plot out
    scopekv simulate trace.jsonl.gz --instances 4 --sweep engine-memory=10GiB,20GiB,40GiB
    """
    try:
        pyplot = plots.prepare(plot_dir) if plot_dir is not None else None
        values = {
            name.replace("_", "-"): value for name, value in words.items() if value is not None
        }
        asked = Asked(values, pairs(tiers, "tier"), pairs(tenants, "tenants"))
        runs = plans(asked, sweeps)
        priced = Prices.parse(prices) if prices is not None else None
        with _progress() as progress, ExitStack() as opened:
            task = progress.add_task("Reading the trace", total=None)
            workload = workload_of(
                opened.enter_context(spooled(trace)),
                limit=limit,
                block_tokens=block_tokens,
                arrivals=pairs(arrivals, "arrivals"),
                timestamps=timestamps,
            )
            if workload.doubt:
                progress.console.print(f"Warning: {workload.doubt}", markup=False, soft_wrap=True)
            check_senders(workload, asked, runs)
            found = _run_all(runs, workload, priced, progress, task)
            allowed = None
            if pyplot is not None:
                progress.update(task, description="What isolation allows", completed=0)
                allowed = _allowed(workload, runs[0][1], progress, task)
        result = _result(found, workload, swept=bool(sweeps))
        _print(result, as_json=as_json)
        if pyplot is not None and plot_dir is not None:
            for path in plots.draw(pyplot, result, allowed or {}, plot_dir):
                click.echo(f"drawn: {path}", err=True)
    except ScopeKVError as error:
        raise click.ClickException(str(error)) from error


def _run_all(
    runs: Sequence[tuple[dict[str, str], FleetPlan]],
    workload: Workload,
    prices: Prices | None,
    progress: Progress,
    task: Any,
) -> list[dict[str, Any]]:
    each = workload.profile.requests
    found = []
    for number, (changes, plan) in enumerate(runs):
        words = " ".join(f"{key}={value}" for key, value in changes.items()) or "Replaying"
        progress.update(task, description=words[:40], total=each * len(runs))

        def arrived(count: int, before: int = number * each) -> None:
            progress.update(task, completed=before + count)

        with _without_collector():
            figures = replay(plan, workload, prices=prices, progress=arrived)
        found.append({"swept": changes, **figures})
    return found


def _allowed(
    workload: Workload, plan: FleetPlan, progress: Progress, task: Any
) -> dict[str, float]:
    progress.update(task, total=workload.profile.requests)
    return allowed_by_isolation(
        workload, plan.tenants, plan.seed, lambda done: progress.update(task, completed=done)
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """A run makes millions of objects and no cycles worth looking for."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _result(found: list[dict[str, Any]], workload: Workload, *, swept: bool) -> dict[str, Any]:
    about = {
        "trace": workload.name,
        "trace_requests": workload.profile.requests,
        "trace_input_tokens": workload.profile.input_tokens,
        "trace_seconds": workload.profile.seconds,
        "conversations": workload.profile.sessions,
        "block_tokens": workload.block_tokens,
        "tenants_drawn": not workload.known_tenants,
    }
    if swept:
        return {**about, "runs": found}
    return {**about, **{name: value for name, value in found[0].items() if name != "swept"}}


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
    tables.show(result, console)


def _progress() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
        transient=not console.is_terminal,
    )
