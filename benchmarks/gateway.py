"""What the gateway costs: its own CPU, and the time it adds to the first token.

    python benchmarks/gateway.py [--calls 250] [--json FILE]

The gateway is a process of its own (`scopekv gateway`) before a stand-in that answers at once
(_stand_in.py); direct calls go to the stand-in with the very body a client would send to vLLM.
Calls take turns, one at a time; figures are medians. Every question is new; only the document is
known. The stand-in does not tokenise: with a real engine a direct call pays for that there.

    gateway CPU of a call = on-CPU time of all its threads from before it to before the next call
    added TTFT            = median over pairs of (through the gateway - direct, right before it)

`--engine URL --api-key KEY` prints, besides, the added TTFT of short prompts before a real vLLM.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from scopekv.cli.benchmark.stages import prepare
from scopekv.cli.benchmark.texts import Texts, make_texts
from scopekv.cli.options import default_data_dir
from scopekv.compose import open_world
from scopekv.core.article import Shape, percentile
from scopekv.engines.model import MODEL_NAME, ensure_model

HERE = Path(__file__).parent
DOCUMENT_TOKENS, QUESTION_TOKENS = 9_500, 500
SMALL_BYTES = 1_024
WARM_CALLS = 20
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Place:
    """A server, and the key it takes."""

    port: int
    key: str
    pid: int = 0
    name: str = ""

    def request(self, body: bytes) -> bytes:
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"content-type: application/json\r\nauthorization: Bearer {self.key}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def call(connection: socket.socket, data: bytes) -> float:
    """Milliseconds to the first event. Reads to the end. Raises where the answer is no stream."""
    began = time.perf_counter()
    connection.sendall(data)
    received, first = bytearray(), 0.0
    while not received.endswith(b"0\r\n\r\n"):
        part = connection.recv(262_144)
        received += part
        if not first and b"data: " in received:
            first = time.perf_counter() - began
        if not part or (not first and not received.startswith(b"HTTP/1.1 200")):
            raise RuntimeError(f"not an event stream: {bytes(received[:400])!r}")
    return first * 1e3


def cpu_ms(pid: int) -> float:
    """On-CPU milliseconds of every thread of a process (proc(5), schedstat; ns resolution)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e6


@dataclass
class Samples:
    """One workload's samples, in ms."""

    direct: list[float]
    through: list[float]
    cpu: list[float]

    def added(self) -> float:
        pairs = zip(self.through, self.direct, strict=True)
        return statistics.median(a - b for a, b in pairs)

    def added_p10(self) -> float:
        """The difference of the 10th percentiles: what is added while nothing else runs."""
        return percentile(self.through, 0.1) - percentile(self.direct, 0.1)


def compare(gateway: Place, engine: Place, bodies: Sequence[bytes]) -> Samples:
    """Send each body directly and then through the gateway; the first few warm both up."""
    samples = Samples([], [], [])
    with engine.connect() as direct, gateway.connect() as through:
        gc.disable()
        try:
            for number, body in enumerate(bodies):
                time_direct = call(direct, engine.request(body))
                before = cpu_ms(gateway.pid)
                time_through = call(through, gateway.request(body))
                time.sleep(0.0005)  # what the gateway does after the last byte is its cost too
                spent = cpu_ms(gateway.pid) - before
                if number >= WARM_CALLS:
                    samples.direct.append(time_direct)
                    samples.through.append(time_through)
                    samples.cpu.append(spent)
        finally:
            gc.enable()
    return samples


def long_bodies(texts: Texts) -> list[bytes]:
    """Chats: the document as the system message, a new question each."""
    return [_chat(texts.document, question) for question in texts.questions[0]]


def small_bodies(texts: Texts) -> list[bytes]:
    """Chats of exactly 1 KB, each new."""
    bodies = []
    for number, question in enumerate(texts.questions[0]):
        head = f"{number}. "
        room = SMALL_BYTES - len(_chat("Be brief.", head))
        filler = question.replace("\n", " ").encode("ascii", "replace").decode()
        bodies.append(_chat("Be brief.", head + filler[:room].ljust(room)))
    return bodies


def _chat(system: str, user: str) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 1, "stream": True}
    return json.dumps(body).encode()


@contextlib.contextmanager
def process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program and the first line it prints; ended at the end."""
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = running.stdout.readline() if running.stdout else ""
        if not line:
            raise RuntimeError(f"{' '.join(command[:4])} ended at once")
        yield running, line
    finally:
        running.terminate()
        running.wait(10)


@contextlib.contextmanager
def gateway_before(folder: Path, url: str, api_key: str, key: str) -> Iterator[Place]:
    """`scopekv gateway` as its users run it, with the document warm."""
    config = folder / "scopekv.toml"
    config.write_text(f'[[instances]]\nname = "e"\nurl = "{url}"\napi_key = "{api_key}"\n')
    program = str(Path(sys.executable).with_name("scopekv"))
    options = ["--config", str(config), "--port", "0", "--data-dir", str(folder)]
    with process([program, "gateway", *options]) as (running, line):
        time.sleep(2.0)  # it looks at documents once a second
        yield Place(urlsplit(line.split()[-1]).port or 0, key, running.pid)


def against_stand_in(folder: Path, model: Path, texts: Texts) -> dict[str, float]:
    world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
    (key,) = prepare(world, texts.document, 1)
    stand_in = [sys.executable, str(HERE / "_stand_in.py"), str(model), str(world.ticket_keys)]
    world.registry.close()
    with process(stand_in) as (running, line):
        engine = Place(int(line), "engine-key", running.pid)
        with gateway_before(folder, f"http://127.0.0.1:{engine.port}", engine.key, key) as gateway:
            bodies = long_bodies(texts)
            long = compare(gateway, engine, bodies)
            small = compare(gateway, engine, small_bodies(texts))
            again = compare(gateway, engine, [bodies[-1]] * len(bodies))
    return {
        "own_cpu_ms_10k": statistics.median(long.cpu),
        "own_cpu_ms_10k_p10": percentile(long.cpu, 0.1),
        "own_cpu_ms_10k_p99": percentile(long.cpu, 0.99),
        "added_ttft_ms_10k": long.added(),
        "added_ttft_ms_10k_p10": long.added_p10(),
        "direct_ttft_ms_10k": statistics.median(long.direct),
        "own_cpu_ms_1k": statistics.median(small.cpu),
        "added_ttft_ms_1k": small.added(),
        "added_ttft_ms_1k_p10": small.added_p10(),
        "direct_ttft_ms_1k": statistics.median(small.direct),
        "own_cpu_ms_10k_repeated": statistics.median(again.cpu),
        "added_ttft_ms_10k_repeated": again.added(),
        "calls": len(long.cpu),
        "load_average_1m": os.getloadavg()[0],
    }


def against_engine(folder: Path, url: str, api_key: str, texts: Texts) -> dict[str, float]:
    """Short prompts only: a real engine would read each long one anew without a ticket."""
    world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
    (key,) = prepare(world, texts.document[:200], 1)
    world.registry.close()
    engine = Place(urlsplit(url).port or 80, api_key)
    with gateway_before(folder, url, api_key, key) as gateway:
        samples = compare(gateway, engine, small_bodies(texts)[: WARM_CALLS + 30])
    return {
        "engine_added_ttft_ms_1k": samples.added(),
        "engine_direct_ttft_ms_1k": statistics.median(samples.direct),
        "engine_own_cpu_ms_1k": statistics.median(samples.cpu),
    }


def show(figures: dict[str, float]) -> None:
    for name, value in figures.items():
        print(f"{name:32} {value:9.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=250, help="measured calls a workload (>= 200)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--engine", metavar="URL", help="a real vLLM on this host, besides")
    parser.add_argument("--api-key", default="", help="of --engine")
    options = parser.parse_args()
    data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir())
    model = ensure_model(data_dir.absolute())
    shape = Shape(1, max(200, options.calls) + WARM_CALLS, DOCUMENT_TOKENS, QUESTION_TOKENS)
    texts = make_texts(model / "tokenizer.json", shape, seed=1)
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as folder:
        figures = against_stand_in(Path(folder), model, texts)
    if options.engine:
        with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as folder:
            figures |= against_engine(Path(folder), options.engine, options.api_key, texts)
    show(figures)
    if options.json:
        rounded = {name: round(value, 4) for name, value in figures.items()}
        options.json.write_text(json.dumps(rounded, indent=2) + "\n")


if __name__ == "__main__":
    main()
