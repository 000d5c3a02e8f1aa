"""The routers that are compared, each a process before two stand-ins that answer at once."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gateway import Place, cpu_ms, process

from scopekv.cli.benchmark.stages import prepare
from scopekv.cli.running import free_port
from scopekv.compose import open_world

HERE = Path(__file__).parent
EVENTS = 64
READY_SECONDS = 60.0
SCOPED, SALTED = "scopekv", "scopekv-salted"
PEERS = {
    "sglang-router": "sglang_router.launch_router",
    "vllm-router": "vllm_router.launch_router",
}
WORK = {
    SCOPED: "checks keys, renders, tokenises, signs a ticket, routes by scope",
    SALTED: "checks keys, salts by caller, routes by scope (engines without the plugin)",
    "sglang-router": "routes by the text's prefix",
    "vllm-router": "asks both engines to render, gets 403 as stock vLLM answers, routes by load",
}


def interpreter() -> Path:
    """One that has the peers; the first call installs them."""
    done = subprocess.run(
        [str(HERE.parent / "scripts" / "routers.sh")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def processes_of(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += processes_of(int(child))
    return found


def cpu_us(pid: int) -> float:
    """On-CPU microseconds of a process tree."""
    return 1e3 * sum(map(cpu_ms, processes_of(pid)))


def rss_mb(pid: int) -> float:
    """Resident memory of a process tree, in MB of 1,000,000 bytes."""
    pages = (int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in processes_of(pid))
    return sum(pages) * 4096 / 1e6


@contextlib.contextmanager
def stand_ins(model: Path, keys: str) -> Iterator[list[int]]:
    """The ports of two stand-ins; `keys` "-": without the plugin."""
    command = [sys.executable, str(HERE / "_stand_in.py"), str(model), keys, str(EVENTS)]
    with process(command) as (_, one), process(command) as (_, other):
        yield [int(one), int(other)]


@contextlib.contextmanager
def scopekv(name: str, folder: Path, key: str, ports: Sequence[int]) -> Iterator[Place]:
    """`scopekv gateway` as its users run it."""
    config = folder / f"{name}.toml"
    config.write_text(
        "".join(
            f'[[instances]]\nname = "e{port}"\nurl = "http://127.0.0.1:{port}"\napi_key = "e"\n'
            for port in ports
        )
    )
    program = str(Path(sys.executable).with_name("scopekv"))
    options = ["--config", str(config), "--port", "0", "--data-dir", str(folder)]
    with process([program, "gateway", *options]) as (running, line):
        yield Place(urlsplit(line.split()[-1]).port or 0, key, running.pid, name)


@contextlib.contextmanager
def peer(name: str, python: Path, folder: Path, ports: Sequence[int]) -> Iterator[Place]:
    """Another project's router with its cache-aware policy, else as it is set by default."""
    port = free_port("127.0.0.1")
    command = [str(python), "-m", PEERS[name], "--policy", "cache_aware", "--log-level", "error"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(free_port("127.0.0.1"))]
    command += ["--worker-urls", *(f"http://127.0.0.1:{one}" for one in ports)]
    with open(folder / f"{name}.log", "wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield Place(port, "none", running.pid, name)
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_for(place: Place, data: bytes) -> None:
    """Return when it answers a request with 200; `TimeoutError` where it does not."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), place.connect() as connection:
            connection.sendall(data)
            if connection.recv(65536).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.2)
    raise TimeoutError(f"{place.name} did not answer within {READY_SECONDS} s")


@contextlib.contextmanager
def all_places(model: Path, names: Sequence[str], body: bytes) -> Iterator[list[Place]]:
    """The direct way first, then each router by name, ready."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scopekv-bench-")))
        world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
        (key,) = prepare(world, "A handbook.", 1)
        world.registry.close()
        plugged = stack.enter_context(stand_ins(model, str(world.ticket_keys)))
        stock = stack.enter_context(stand_ins(model, "-"))
        places = [Place(stock[0], "none", name="direct")]
        for name in names:
            if name in PEERS:
                entered = peer(name, interpreter(), folder, stock)
            else:
                entered = scopekv(name, folder, key, plugged if name == SCOPED else stock)
            places.append(stack.enter_context(entered))
        for place in places:
            wait_for(place, place.request(body))
        time.sleep(3.0)  # each looks at its engines, and at documents, once or twice
        yield places
