"""Which router finds more in the cache, and answers sooner: real engines, conversations.

    python benchmarks/routing.py [--parts runs,burst,kill] [--quick] [--json FILE]

    runs    the same conversations through each router, open loop, each from an empty cache
    burst   48 requests at once on one document that one engine has
    kill    kill -9 one of two engines under steady requests

Two vLLM engines, one thread and one core each, whose memory holds the conversations together and
not alone; `one-instance` is one engine with all cores and the memory of both. Beside each run of
these stands what `scopekv simulate` makes of it, with the speeds that `scopekv calibrate` finds.

sglang-router and vllm-router route stock vLLM, with a salt for each user. The first use installs
them into .venv/routers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import _routing_kill
import uvloop
from _progress import tell
from _router_places import PEERS, interpreter
from _routing_engines import Engine, EngineMaker
from _routing_predict import calibrated, predicted
from _routing_routers import Sender, peer, scoped
from _routing_table import table
from _routing_workload import BURST, Arrival, Shape, Texts, User, Workload, make_workload

from scopekv.cli.benchmark.requests import Timed
from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model
from scopekv.errors import ScopeKVError
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.fleet.placing import ROUTES
from scopekv.simulate.fleet.speeds import Speeds

PARTS = ("runs", "burst", "kill")
ENGINES = ("engine-a", "engine-b")
BLOCKS = 120  # of 32 tokens, in each engine; the conversations fill 190, salted 430
ANSWER_TOKENS = 2
QUICK = Shape(orgs=2, users=3, turns=3, start_seconds=10)
Router = Callable[[], AbstractAsyncContextManager[Sender]]


@dataclass
class Bench:
    """What is asked for, what is asked with, and what was found."""

    parts: Sequence[str]
    workload: Workload
    texts: Texts
    keys: dict[User, str]
    deployment: Deployment
    runs: list[dict[str, Any]] = field(default_factory=list)
    burst: dict[str, Any] = field(default_factory=dict)
    kill: dict[str, Any] = field(default_factory=dict)
    speeds: list[Speeds] = field(default_factory=list)  # of the engines that run now
    blocks: int = BLOCKS  # of each of them
    began: float = field(default_factory=time.monotonic)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def figures(self) -> dict[str, Any]:
        """What is known by now."""
        burst = self.burst.get("scopekv", {}) | {"requests": BURST, "by_router": self.burst}
        return {
            "runs": self.runs,
            "burst": burst if self.burst else {},
            "kill": self.kill,
            "blocks": BLOCKS,
            "answer_tokens": ANSWER_TOKENS,
            "seconds": time.monotonic() - self.began,
            "load_average": [self.load_before, os.getloadavg()[0]],
        }

    async def route(self, name: str, engines: Sequence[Engine], router: Router) -> None:
        """The parts that every router goes through. The router is new, and the cache empty."""
        async with router() as send:
            for one in self.workload.warm_up:
                await send(one, max_tokens=ANSWER_TOKENS)
            if "runs" in self.parts:
                self.runs.append(await self._run(name, engines, send))
                if self.speeds:
                    self.runs[-1]["predicted"] = self._predicted(name)
            if "burst" in self.parts and len(engines) > 1:
                self.burst[name] = await self._burst(engines, send)

    async def _run(self, name: str, engines: Sequence[Engine], send: Sender) -> dict[str, Any]:
        load = os.getloadavg()[0]
        before = await _emptied(engines)
        began = time.monotonic()
        found, errors = await play(name, self.workload.arrivals, send, ANSWER_TOKENS)
        seconds = time.monotonic() - began
        return {
            "router": name,
            "token_hit_rate": _rate(found),
            **_ttft(found),
            "balance_max_share": await _share(engines, before),
            "prefilled_tokens": sum(one.input_tokens - one.cached_tokens for one in found),
            "requests": len(self.workload.arrivals),
            "errors": errors,
            "seconds": seconds,
            "load_average": [load, os.getloadavg()[0]],
        }

    def _predicted(self, name: str) -> dict[str, Any]:
        """What `scopekv simulate` makes of the same conversations on engines like these."""
        route = name if name in ROUTES else "scopekv"
        return predicted(route, self.speeds, self.blocks, self.workload.shape)

    async def _burst(self, engines: Sequence[Engine], send: Sender) -> dict[str, Any]:
        """All peers' requests have one salt here, so that the document is one prefix to them."""
        await _emptied(engines)
        await send(self.workload.burst_first, max_tokens=1, salted=False)
        before = [await engine.answered() for engine in engines]
        calls = (send(one, max_tokens=1, salted=False) for one in self.workload.burst)
        found = await asyncio.gather(*calls)
        share = await _share(engines, before)
        return {"balance_max_share": share, "token_hit_rate": _rate(found), **_ttft(found)}


async def play(
    name: str, arrivals: Sequence[Arrival], send: Sender, max_tokens: int
) -> tuple[list[Timed], int]:
    """Send each request at its time, whatever became of those before; count the failed."""
    loop, found, errors = asyncio.get_running_loop(), [], 0
    began = loop.time()

    async def one(arrival: Arrival) -> None:
        nonlocal errors
        await asyncio.sleep(began + arrival.at_seconds - loop.time())
        try:
            found.append(await send(arrival, max_tokens=max_tokens))
        except ScopeKVError as error:
            errors += 1
            _say(f"{name}: {error}")
        tell(f"{name}: {len(found)}/{len(arrivals)}, token hit rate {_rate(found):.1%}")

    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            group.create_task(one(arrival))
    return found, errors


async def _emptied(engines: Sequence[Engine]) -> list[int]:
    """Empty the engines' caches; return how many requests each has answered."""
    for engine in engines:
        await engine.forget()
    return [await engine.answered() for engine in engines]


async def _share(engines: Sequence[Engine], before: Sequence[int]) -> float:
    """The greatest part of the requests since then that one engine had."""
    now = [await engine.answered() for engine in engines]
    counts = [after - first for after, first in zip(now, before, strict=True)]
    return max(counts) / max(1, sum(counts))


def _rate(found: Sequence[Timed]) -> float:
    total = sum(one.input_tokens for one in found)
    return sum(one.cached_tokens for one in found) / max(1, total)


def _ttft(found: Sequence[Timed]) -> dict[str, float]:
    times = sorted(one.ttft_ms for one in found) or [float("nan")]
    return {
        f"ttft_ms_p{percent}": times[min(len(times) - 1, len(times) * percent // 100)]
        for percent in (50, 99)
    }


async def scoped_engines(bench: Bench, maker: EngineMaker, options: argparse.Namespace) -> None:
    """ScopeKV, and the two simple choices before the same engines; then the kill."""
    world, keys = bench.deployment.world, bench.keys
    async with maker.running(ENGINES, blocks=BLOCKS, world=world) as engines:
        bench.speeds = await calibrated(engines) if "runs" in bench.parts else []
        alone = [[engine] for engine in engines]
        if bench.parts != ["kill"]:
            router = partial(scoped, world, [engines], keys, least=True)
            await bench.route("scopekv", engines, router)
        if "runs" in bench.parts:
            for name, least in (("round-robin", False), ("least-loaded", True)):
                router = partial(scoped, world, alone, keys, least=least)
                await bench.route(name, engines, router)
        if "kill" not in bench.parts:
            return
        tell("kill: steady requests")
        bench.kill = await _routing_kill.measure(
            world,
            engines,
            keys,
            bench.texts,
            per_second=options.per_second,
            seconds=4 if options.quick else 8,
        )


async def stock_engines(bench: Bench, maker: EngineMaker, python: Path) -> None:
    """The peers, before engines without the plugin."""
    names = [f"stock-{name}" for name in ENGINES]
    bench.speeds = []
    async with maker.running(names, blocks=BLOCKS, world=None) as engines:
        for name in PEERS:
            await bench.route(name, engines, partial(peer, name, python, maker.folder, engines))


async def one_engine(bench: Bench, maker: EngineMaker) -> None:
    """What routing cannot do better than: one cache."""
    world = bench.deployment.world
    bench.blocks = BLOCKS * len(ENGINES)
    async with maker.running(["one"], blocks=bench.blocks, world=world) as engines:
        bench.speeds = await calibrated(engines)
        router = partial(scoped, world, [engines], bench.keys, least=True)
        await bench.route("one-instance", engines, router)


async def measure(options: argparse.Namespace, parts: Sequence[str]) -> Bench:
    """Everything that was asked for. What is known is in the JSON file after each stage."""
    data_dir: Path = options.data_dir
    model_dir = ensure_model(data_dir)
    shape = QUICK if options.quick else Shape()
    texts = Texts(model_dir / "tokenizer.json")
    workload = make_workload(texts, shape)
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as name:
        maker = EngineMaker(Path(name), model_dir, data_dir / "cache" / "vllm")
        deployment = Deployment(Path(name) / "scopekv")
        try:
            keys = {user: deployment.account(user.org, user.name) for user in workload.users}
            for org, text in workload.documents.items():
                deployment.publish(f"manual-of-{org}", f"org:{org}", text)
            bench = Bench(parts, workload, texts, keys, deployment)
            await scoped_engines(bench, maker, options)
            save(bench, options.json)
            if parts != ["kill"]:
                await stock_engines(bench, maker, options.peers)
                save(bench, options.json)
            if "runs" in parts:
                await one_engine(bench, maker)
                save(bench, options.json)
        finally:
            await deployment.stop()
    return bench


def save(bench: Bench, file: Path | None) -> None:
    if file is not None:
        shape = asdict(bench.workload.shape)
        file.write_text(json.dumps(bench.figures() | {"shape": shape}, indent=2) + "\n")


def _say(line: str) -> None:
    print(f"{line:78}", file=sys.stderr)


async def main(options: argparse.Namespace, parts: Sequence[str]) -> None:
    working = asyncio.create_task(measure(options, parts))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    try:
        bench = await working
    except asyncio.CancelledError:
        sys.exit("stopped; nothing runs on")
    _say("")
    print(table(bench.figures()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    parser.add_argument("--per-second", type=float, default=20.0, help="requests, in part kill")
    parser.add_argument("--quick", action="store_true", help="a small form: to see that it works")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = given.parts.split(",")
    if not set(wanted) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    given.peers = interpreter() if wanted != ["kill"] else None
    given.data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute()
    uvloop.run(main(given, wanted))
