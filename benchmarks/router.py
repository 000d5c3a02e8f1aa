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
import socket
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from _router_places import PEERS, SALTED, SCOPED, WORK, all_places, cpu_us, rss_mb
from gateway import Place

from scopekv.cli.options import default_data_dir
from scopekv.engines.model import MODEL_NAME, ensure_model

ROUTERS = (SCOPED, SALTED, *PEERS)
SIZES = (1_024, 40_960)
CONNECTIONS = 32
RSS_AT = 13_000
WORDS = "the of and to in is that for it as was with be by on not he his but at are this have from"


class Bodies:
    """Chats of an exact size in bytes, each new from its first word on."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._words = WORDS.split()
        self._serial = itertools.count(self._dice.randrange(10**6))
        text = " ".join(self._dice.choices(self._words, k=12_000))
        self._text = text

    def make(self, size_bytes: int, stream: bool) -> bytes:
        head = f"{next(self._serial)} {self._dice.getrandbits(64):x} "
        start = self._dice.randrange(200)
        room = size_bytes - len(_chat(head, stream))
        return _chat(head + self._text[start : start + room], stream)


def _chat(text: str, stream: bool) -> bytes:
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 64, "stream": stream}
    return json.dumps(body, separators=(",", ":")).encode()


class Answer:
    """Follows one HTTP/1.1 answer: is its body there, is it whole? Raises where it is no 200."""

    __slots__ = ("_data", "_end", "begun", "whole")

    def __init__(self) -> None:
        self._data = bytearray()
        self._end: int | None = None  # of a body with a length
        self.begun = self.whole = False

    def feed(self, part: bytes) -> None:
        self._data += part
        if not self.begun:
            head_end = self._data.find(b"\r\n\r\n")
            if head_end < 0 or len(self._data) == head_end + 4:
                return
            head = bytes(self._data[:head_end]).lower()
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(f"refused: {bytes(self._data[:300])!r}")
            self.begun = True
            _, found, length = head.partition(b"content-length:")
            if found:
                self._end = head_end + 4 + int(length.split(b"\r\n")[0])
        if self._end is not None:
            self.whole = len(self._data) >= self._end
        else:
            self.whole = self._data.endswith(b"0\r\n\r\n")


def call(connection: socket.socket, data: bytes) -> tuple[float, float]:
    """Milliseconds to the first byte of the body, and to the last."""
    answer, first = Answer(), 0.0
    began = time.perf_counter()
    connection.sendall(data)
    while not answer.whole:
        part = connection.recv(262_144)
        if not part:
            raise RuntimeError("the connection ended in mid-answer")
        answer.feed(part)
        if answer.begun and not first:
            first = time.perf_counter() - began
    return first * 1e3, (time.perf_counter() - began) * 1e3


class Client(asyncio.Protocol):
    """One closed-loop connection."""

    def __init__(self, next_request: Callable[[], bytes | None]) -> None:
        self._next, self._answer = next_request, Answer()
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            self._answer.feed(data)
        except RuntimeError as error:
            self._finish(error)
            return
        if self._answer.whole:
            self._answer = Answer()
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(error or ConnectionError("the connection ended in mid-answer"))

    def _send(self) -> None:
        data = self._next()
        if data is None:
            self._finish(None)
        else:
            self._transport.write(data)

    def _finish(self, error: Exception | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
            self._transport.abort()


async def closed_loop(port: int, connections: int, requests: Iterator[bytes]) -> int:
    """Send these requests, so many at a time. Returns how many were answered."""
    loop, sent = asyncio.get_running_loop(), itertools.count()

    def next_request() -> bytes | None:
        data = next(requests, None)
        if data is not None:
            next(sent)
        return data

    made = [
        await loop.create_connection(lambda: Client(next_request), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    return next(sent)


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
            say(f"memory: {place.name} {done:,} of {prompts:,} prompts")
        whole = done >= (RSS_AT if name == "rss_mb_13k" else 100_000)
        found[name] = round(rss_mb(place.pid), 1) if whole else None
    return found


def say(text: str) -> None:
    print(f"\r{text:70}", end="", file=sys.stderr, flush=True)


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
            say(f"round {number + 1} of {options.rounds}: one call at a time")
            latency(cells, places, bodies, options.calls)
            say(f"round {number + 1} of {options.rounds}: {CONNECTIONS} connections")
            throughput(cells, places, bodies, options.requests)
        for place in places[1:]:
            if options.memory_prompts:
                rss[place.name] = memory(place, bodies, options.memory_prompts)
    say("")
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
