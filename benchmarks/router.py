"""What a router costs: ScopeKV's gateway, sglang-router and vllm-router before the same stand-ins.

    python benchmarks/router.py [--rounds 7] [--memory-prompts 100000] [--json FILE]

Each is a process before two stand-ins that answer at once (_stand_in.py); all with their
cache-aware choice. In every cell (1 KB and 40 KB prompts, whole answers and streams of 64 events)
all take turns within each round, a direct call among them; every prompt is new.

    added p50       = median over calls of (last byte through the router - direct, beside it)
    added TTFT p50  = the same to the first byte of the body
    rps over direct = requests a second at 32 connections, over those of a direct client
    CPU             = on-CPU time of the router's processes for a request, under that load
    RSS             = resident memory after so many unique 40 KB prompts

The two rows of ScopeKV: `scopekv` before engines with the plugin checks keys, renders, tokenises
and signs, which the others do not; `scopekv-salted` before engines without it does what they do,
and checks keys. vllm-router asks both engines to render each prompt; stock vLLM refuses (403), so
it chooses by load here. The first use installs both into .venv/routers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.metadata
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _progress import tell
from _router_clients import Bodies, call, closed_loop
from _router_places import PEERS, SALTED, SCOPED, WORK, all_places, cpu_us, rss_mb
from gateway import Place

from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model

ROUTERS = (SCOPED, SALTED, *PEERS)
SIZES = (1_024, 40_960)
CONNECTIONS = 32
RSS_AT = 13_000


@dataclass
class Cell:
    """Samples of one router with one size and form of answer."""

    total_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    rps: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


Cells = dict[tuple[str, int, bool], Cell]


def latency(cells: Cells, places: Sequence[Place], bodies: Bodies, calls: int) -> None:
    """One round of calls, one at a time: in every cell each place gets the same prompts."""
    order = list(places)
    for size_bytes, stream in itertools.product(SIZES, (False, True)):
        connections = {place.name: place.connect() for place in places}
        gc.disable()
        for number in range(calls + 3):
            random.shuffle(order)
            body = bodies.make(size_bytes, stream)
            for place in order:
                first, total = call(connections[place.name], place.request(body))
                if number >= 3:
                    cell = cells[place.name, size_bytes, stream]
                    cell.first_ms.append(first)
                    cell.total_ms.append(total)
        gc.enable()
        for connection in connections.values():
            connection.close()


def throughput(cells: Cells, places: Sequence[Place], bodies: Bodies, requests: int) -> None:
    """One round at 32 connections."""
    for size_bytes, stream in itertools.product(SIZES, (False, True)):
        for place in random.sample(places, len(places)):
            prompts = [place.request(bodies.make(size_bytes, stream)) for _ in range(requests)]
            before = cpu_us(place.pid) if place.pid else 0.0
            began = time.perf_counter()
            answered = asyncio.run(closed_loop(place.port, CONNECTIONS, iter(prompts)))
            seconds = time.perf_counter() - began
            cell = cells[place.name, size_bytes, stream]
            cell.rps.append(answered / seconds)
            if place.pid:
                cell.cpu_us.append((cpu_us(place.pid) - before) / answered)


def memory(place: Place, bodies: Bodies, prompts: int) -> dict[str, float | None]:
    """Resident memory after 13k and after `prompts` unique 40 KB prompts."""
    found: dict[str, float | None] = {"rss_mb_start": rss_mb(place.pid)}
    done = 0
    for name, until in (("rss_mb_13k", min(RSS_AT, prompts)), ("rss_mb_100k", prompts)):
        while done < until:
            count = min(1_000, until - done)
            requests = (place.request(bodies.make(SIZES[1], False)) for _ in range(count))
            done += asyncio.run(closed_loop(place.port, CONNECTIONS, requests))
            tell(f"memory: {place.name} {done:,} of {prompts:,} prompts")
        whole = done >= (RSS_AT if name == "rss_mb_13k" else 100_000)
        found[name] = round(rss_mb(place.pid), 1) if whole else None
    return found


def median_difference(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a - b for a, b in zip(one, other, strict=True))


def as_cells(cells: Cells, rss: dict[str, dict[str, float | None]]) -> list[dict[str, Any]]:
    """What other programs read."""
    rows = []
    for (name, size_bytes, stream), cell in cells.items():
        if name == "direct":
            continue
        direct = cells["direct", size_bytes, stream]
        pairs = zip(cell.rps, direct.rps, strict=True)
        more = rss.get(name, {})
        rows.append(
            {
                "router": name,
                "prompt_bytes": size_bytes,
                "stream": stream,
                "added_p50_ms": round(median_difference(cell.total_ms, direct.total_ms), 4),
                "added_ttft_ms": round(median_difference(cell.first_ms, direct.first_ms), 4),
                "rps_over_direct": round(statistics.median(a / b for a, b in pairs), 4),
                "cpu_us": round(statistics.median(cell.cpu_us), 1),
                "rss_mb_13k": more.get("rss_mb_13k"),
                "rss_mb_100k": more.get("rss_mb_100k"),
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]], rss: dict[str, dict[str, float | None]]) -> None:
    print(f"{'':24}{'router':16}{'added ms':>9}{'TTFT ms':>9}{'rps':>7}{'CPU us':>9}")
    for row in sorted(rows, key=lambda row: (row["prompt_bytes"], row["stream"])):
        form = "64 events" if row["stream"] else "whole"
        print(
            f"{row['prompt_bytes'] // 1024:>6} KB, {form:12} {row['router']:16}"
            f"{row['added_p50_ms']:9.3f}{row['added_ttft_ms']:9.3f}"
            f"{row['rps_over_direct']:7.3f}{row['cpu_us']:9.0f}"
        )
    for name, figures in rss.items():
        print(f"RSS {name:16}", *(f"{key[7:]} {value} MB" for key, value in figures.items()))
    for name in ROUTERS:
        print(f"{name}: {WORK[name]}")


def measure(options: argparse.Namespace, model: Path) -> dict[str, Any]:
    bodies, began_load = Bodies(options.seed), os.getloadavg()[0]
    cells: Cells = defaultdict(Cell)
    rss: dict[str, dict[str, float | None]] = {}
    with all_places(model, options.routers, bodies.make(SIZES[0], False)) as places:
        for number in range(options.rounds):
            tell(f"round {number + 1} of {options.rounds}: one call at a time")
            latency(cells, places, bodies, options.calls)
            tell(f"round {number + 1} of {options.rounds}: {CONNECTIONS} connections")
            throughput(cells, places, bodies, options.requests)
        for place in places[1:]:
            if options.memory_prompts:
                rss[place.name] = memory(place, bodies, options.memory_prompts)
    tell("")
    rows = as_cells(cells, rss)
    show(rows, rss)
    return {
        "cells": rows,
        "rounds": options.rounds,
        "rss_mb": rss,
        "versions": {SCOPED: importlib.metadata.version("scopekv"), **_pins()},
        "cores": os.cpu_count(),
        "load_average_before": began_load,
        "load_average_after": os.getloadavg()[0],
    }


def _pins() -> dict[str, str]:
    text = (Path(__file__).parents[1] / "requirements" / "bench-routers.txt").read_text()
    pins = (word.partition("==") for word in text.split() if "==" in word)
    return {name: version for name, _, version in pins}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="of every cell, interleaved (7)")
    parser.add_argument("--calls", type=int, default=40, help="a cell and round, one at a time")
    parser.add_argument("--requests", type=int, default=600, help="a cell and round, 32 at a time")
    parser.add_argument("--memory-prompts", type=int, default=100_000, help="0: leave memory out")
    parser.add_argument("--routers", nargs="+", choices=ROUTERS, default=ROUTERS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    model = ensure_model(Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute())
    random.seed(options.seed)
    try:
        figures = measure(options, model)
    except KeyboardInterrupt:
        sys.exit("\nstopped")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
