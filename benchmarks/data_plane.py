"""Which HTTP server and client should the gateway stand on? A pass-through proxy built five ways.

    python benchmarks/data_plane.py [--rounds 7] [--json FILE]

Each candidate, and one engine stand-in, is a process. Per round and workload the candidates take
turns, a direct call among them; the figures are medians over rounds. Decision: 0003-data-plane.md.
Candidates whose packages are absent are left out (aiohttp, starlette, uvicorn, granian).
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import uvloop

CANDIDATES = {
    "starlette + aiohttp": ("starlette", "uvicorn", "aiohttp"),
    "uvicorn ASGI + aiohttp": ("uvicorn", "aiohttp"),
    "uvicorn ASGI + own client": ("uvicorn",),
    "granian ASGI + own client": ("granian",),
    "own server + own client": (),
    "byte relay, no HTTP (floor)": (),
}
SERVE = Path(__file__).with_name("data_plane_candidates.py")
WORKLOADS = {"1k": (1024, "/whole"), "45k": (45 * 1024, "/whole"), "sse": (1024, "/stream")}


# The measuring side: blocking sockets for latency (least jitter), a uvloop protocol for load.


def request_bytes(workload: str) -> bytes:
    size_bytes, path = WORKLOADS[workload]
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {size_bytes}\r\n\r\n".encode() + b"y" * size_bytes


def is_complete(data: bytes | bytearray) -> bool:
    if data.endswith(b"0\r\n\r\n"):
        return True
    head_end = data.find(b"\r\n\r\n")
    return head_end >= 0 and len(data) == head_end + 4 + 1024 and b"chunked" not in data[:head_end]


def cpu_seconds(pid: int) -> float:
    """On-CPU time of every thread, in ns resolution (proc(5), schedstat)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def call(connection: socket.socket, data: bytes) -> tuple[float, float]:
    """Seconds to the first body byte and to the last byte."""
    start = time.perf_counter()
    connection.sendall(data)
    received = bytearray()
    first = 0.0
    while not is_complete(received):
        received += connection.recv(262144)
        if not first and received.find(b"\r\n\r\n") + 4 not in (3, len(received)):
            first = time.perf_counter() - start
    return first, time.perf_counter() - start


class Load(asyncio.Protocol):
    """One closed-loop client connection."""

    def __init__(self, data: bytes, tally: list[int]) -> None:
        self.data, self.tally, self.received = data, tally, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.data)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if is_complete(self.received):
            self.received.clear()
            self.tally[0] += 1
            self.transport.write(self.data)


async def load(port: int, seconds: float) -> float:
    """Requests per second at 32 connections, 1 KB."""
    loop, tally = asyncio.get_running_loop(), [0]
    transports: list[asyncio.Transport] = []
    for _ in range(32):
        transport, _ = await loop.create_connection(
            lambda: Load(request_bytes("1k"), tally), "127.0.0.1", port
        )
        transports.append(transport)
    await asyncio.sleep(0.1)
    before, start = tally[0], time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (tally[0] - before) / (time.perf_counter() - start)
    for opened in transports:
        opened.abort()
    return rate


@contextlib.contextmanager
def running(names: list[str]) -> Iterator[dict[str, tuple[int, int]]]:
    """Name to (port, pid), each ready; the first is the engine stand-in."""
    processes: list[subprocess.Popen[bytes]] = []
    targets: dict[str, tuple[int, int]] = {}
    try:
        for name in names:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            base = f"http://127.0.0.1:{targets['engine'][0]}" if targets else "-"
            command = [sys.executable, str(SERVE), name, str(port), base]
            processes.append(subprocess.Popen(command))
            targets[name] = (port, processes[-1].pid)
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
        yield targets
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def measure(targets: dict[str, tuple[int, int]], rounds: int, calls: int) -> dict[str, Any]:
    """Samples per target and figure, one per round."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in targets}

    def note(name: str, figure: str, value: float) -> None:
        samples[name].setdefault(figure, []).append(value)

    order = list(targets)
    for number in range(rounds + 1):  # the first round warms up
        random.Random(number).shuffle(order)
        for workload, name in itertools.product(WORKLOADS, order):
            port, pid = targets[name]
            data = request_bytes(workload)
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                call(connection, data)
                before = cpu_seconds(pid)
                times = [call(connection, data) for _ in range(calls)]
                used = cpu_seconds(pid) - before
            if number:
                note(name, f"first_ms_{workload}", statistics.median(t[0] for t in times) * 1e3)
                note(name, f"ms_{workload}", statistics.median(t[1] for t in times) * 1e3)
                note(name, f"cpu_us_{workload}", used / calls * 1e6)
        for name in order:
            rate = uvloop.run(load(targets[name][0], 0.7))
            if number:
                note(name, "rps_32", rate)
    return samples


def summarise(samples: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, float]]:
    """Per candidate: added milliseconds over, and ratios to, the direct call of the same round."""
    direct = samples["engine"]
    table: dict[str, dict[str, float]] = {}
    for name, figures in samples.items():
        row = {k: statistics.median(v) for k, v in figures.items()}
        if name != "engine":
            for figure in [f for f in figures if "ms_" in f]:
                pairs = list(zip(figures[figure], direct[figure], strict=True))
                row[f"added_{figure}"] = statistics.median(a - b for a, b in pairs)
                row[f"added_{figure}_best"] = min(figures[figure]) - min(direct[figure])
            pairs = list(zip(figures["rps_32"], direct["rps_32"], strict=True))
            row["rps_32_ratio"] = statistics.median(a / b for a, b in pairs)
        table["direct" if name == "engine" else name] = {k: round(v, 4) for k, v in row.items()}
    return table


def render(table: dict[str, dict[str, float]]) -> str:
    """Markdown, for the decision note."""
    columns = {
        "added p50 1 KB (ms)": "added_ms_1k",
        "its best round": "added_ms_1k_best",
        "45 KB (ms)": "added_ms_45k",
        "SSE first (ms)": "added_first_ms_sse",
        "SSE whole (ms)": "added_ms_sse",
        "CPU 1 KB (µs)": "cpu_us_1k",
        "45 KB (µs)": "cpu_us_45k",
        "SSE (µs)": "cpu_us_sse",
        "req/s at 32": "rps_32",
        "ratio": "rps_32_ratio",
    }
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in table.items():
        cells = []
        for key in columns.values():
            digits = 0 if key.startswith("cpu") or key == "rps_32" else 3
            cells.append(f"{row[key]:.{digits}f}" if key in row else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = importlib.util.find_spec
    names = [n for n, needs in CANDIDATES.items() if all(found(module) for module in needs)]
    with running(["engine", *names]) as targets:
        table = summarise(measure(targets, options.rounds, options.calls))
    print(render(table))
    if options.json:
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
