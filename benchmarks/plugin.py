"""What the plugin costs: a hit's TTFT and decode speed with it, over stock vLLM; and alone.

    python benchmarks/plugin.py [--rounds 15] [--json FILE]

Two real engines are up, one thread each: stock, and with the plugin. Requests strictly take turns
and never overlap, so the idle engine costs nothing; both are bound to the same core, another one
each round, so that no core is anybody's; who goes first changes too. The prompt is the same and in
both caches; for the plugin it has two segments and a fresh ticket. Ratios are medians over
neighbours in time (plugin / stock), which the machine's other work hits alike.

    ttft_ratio        hit TTFT with the plugin / without      below 1.02 is the aim
    throughput_ratio  decode tokens/s with / without          above 0.98 is the aim
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from _progress import tell

from scopekv.cli.benchmark.requests import Target, Timed, target
from scopekv.cli.benchmark.stages import EngineChoice, engine_running, stock_engine
from scopekv.cli.benchmark.texts import make_texts
from scopekv.cli.options import default_data_dir
from scopekv.cli.up import plugin_environment
from scopekv.compose import World, open_world
from scopekv.core.article import Shape
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Principal, Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.core.tickets import audience_id
from scopekv.engines.embedded import EngineInstance
from scopekv.engines.model import MODEL_NAME, ensure_model
from scopekv.gateway.instances import Instance, InstanceAddress
from scopekv.gateway.permits import Issuer
from scopekv.gateway.tokens import Tokens

DOCUMENT_TOKENS, QUESTION_TOKENS = 1_900, 100
KV_TOKENS = 16_384
DECODE_TOKENS = 33
HITS = 5  # hits a round and engine
ALONE_TOKENS = (1_000, 5_000, 10_000)
ALONE_CALLS = 60
GROUP = "default"
ME = Principal("acme", "alice", "org-1", "user-1")

Ask = Callable[[int], Awaitable[Timed]]  # answer tokens -> timings


class Tickets:
    """Tickets for one document and one user, as the gateway mints them."""

    def __init__(self, world: World, fingerprint: Fingerprint) -> None:
        self._issuer = Issuer(
            world.signer.key_id, world.signer.sign, world.scope_secret, audience_id(GROUP), 30_000
        )
        self._fingerprint = fingerprint

    def parameters(self, ids: list[int], document_tokens: int) -> dict[str, Any]:
        """The fields that a gateway adds to a body, with a ticket that was never used."""
        segments = (
            Segment(0, document_tokens, Scope(ScopeKind.DOCUMENT, ("manual",))),
            Segment(document_tokens, None, Scope(ScopeKind.USER, ("org-1", "user-1"))),
        )
        ticket = self._issuer.ticket(
            ME, segments, [0, 0], Tokens.of(ids), namespace=self._fingerprint, uses=1
        )
        salt = self._issuer.salt(segments, [0, 0])
        return {"cache_salt": salt, "kv_transfer_params": {"scopekv": ticket}}


@dataclass
class Measured:
    """Samples of one engine, in the order of time."""

    ttft_ms: list[float] = field(default_factory=list)
    tokens_per_second: list[float] = field(default_factory=list)


def bind(engine: EngineInstance, core: int) -> None:
    """Bind every thread of the engine's process group to one core."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getpgid(int(entry.name)) != engine.pid:
                continue
            for task in (entry / "task").iterdir():
                os.sched_setaffinity(int(task.name), {core})
        except (ProcessLookupError, FileNotFoundError):
            continue  # it has just ended


async def one_round(asks: Sequence[tuple[Ask, Measured]]) -> None:
    """Each engine in turn, `HITS` times; then one longer answer each."""
    for _ in range(HITS):
        for ask, measured in asks:
            measured.ttft_ms.append((await ask(1)).ttft_ms)
    for ask, measured in asks:
        timed = await ask(DECODE_TOKENS)
        seconds = (timed.total_ms - timed.ttft_ms) / 1e3
        measured.tokens_per_second.append((timed.output_tokens - 1) / seconds)


async def measure(choice: EngineChoice, rounds: int) -> dict[str, float]:
    """Start both engines, warm them, take turns."""
    shape = Shape(1, 1, DOCUMENT_TOKENS, QUESTION_TOKENS)
    texts = make_texts(choice.model_dir / "tokenizer.json", shape, seed=1)
    ids = list(texts.prompts[0][0])
    stock, scoped = Measured(), Measured()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scopekv-bench-")))
        world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
        plain = await stack.enter_async_context(stock_engine(choice, KV_TOKENS))
        settings = choice.settings(folder, KV_TOKENS, plugin_environment(world, GROUP, ""))
        plugged = await stack.enter_async_context(engine_running(settings))
        plain_server = await stack.enter_async_context(target(plain.url, MODEL_NAME))
        plugged_server = await stack.enter_async_context(target(plugged.url, MODEL_NAME))
        tickets = Tickets(world, await fingerprint_of(plugged, plugged_server))

        async def ask_stock(tokens: int) -> Timed:
            more = {"cache_salt": "user-1"}
            return await plain_server.ask(ids, key=plain.api_key, max_tokens=tokens, more=more)

        async def ask_scoped(tokens: int) -> Timed:
            more = tickets.parameters(ids, DOCUMENT_TOKENS)
            return await plugged_server.ask(ids, key=plugged.api_key, max_tokens=tokens, more=more)

        await warm(ask_stock, ask_scoped)
        cores = sorted(os.sched_getaffinity(0))
        for number in range(rounds):
            for engine in (plain, plugged):
                bind(engine, cores[number % len(cores)])
            asks = [(ask_stock, stock), (ask_scoped, scoped)]
            await one_round(asks if number % 4 < 2 else asks[::-1])
            tell(f"round {number + 1}/{rounds}")
    return summary(stock, scoped, rounds)


async def warm(*asks: Ask) -> None:
    """Read the prompt once; after it, every whole block must come from the cache."""
    for ask in asks:
        await ask(1)
        again = await ask(2)
        if again.cached_tokens < DOCUMENT_TOKENS:
            raise RuntimeError(f"no hit: only {again.cached_tokens} tokens were cached")


async def fingerprint_of(engine: EngineInstance, server: Target) -> Fingerprint:
    address = InstanceAddress(engine.name, engine.url, engine.api_key)
    status = await Instance(address, server.pool, server.pool).ask("GET", "/v1/scopekv/status")
    if status["self_check"] != "ok":
        raise RuntimeError(f"the plugin's self-check failed: {status['self_check']}")
    return Fingerprint(bytes.fromhex(status["fingerprint"]))


def summary(stock: Measured, scoped: Measured, rounds: int) -> dict[str, float]:
    def ratio(with_plugin: list[float], without: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(with_plugin, without, strict=True))

    return {
        "ttft_ratio": ratio(scoped.ttft_ms, stock.ttft_ms),
        "throughput_ratio": ratio(scoped.tokens_per_second, stock.tokens_per_second),
        "ttft_ms_plugin": statistics.median(scoped.ttft_ms),
        "ttft_ms_stock": statistics.median(stock.ttft_ms),
        "tokens_per_second_plugin": statistics.median(scoped.tokens_per_second),
        "tokens_per_second_stock": statistics.median(stock.tokens_per_second),
        "load_average_1m": os.getloadavg()[0],
        "rounds": rounds,
        "hits": len(stock.ttft_ms),
    }


def alone(folder: Path) -> dict[str, float]:
    """Microseconds to hash a prompt's blocks: vLLM's own, and with ticket check and tags.

    `hash_us_...` are medians; `plugin_us_...`, the plugin's part, the difference of the fastest.
    """
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

    from scopekv.core.blocks import Namespace
    from scopekv.engines.vllm.plugin import Guard, scoped_extra_keys
    from scopekv.engines.vllm.settings import PluginSettings

    world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
    namespace = Namespace("m", "r", "t", "float32", "auto", 32, "l", "sha256_cbor")
    guard = Guard(PluginSettings(world.ticket_keys))
    guard.bind(namespace)
    tickets = Tickets(world, namespace.fingerprint())
    kv_cache_utils.init_none_hash(sha256_cbor)
    hasher = kv_cache_utils.get_request_block_hasher(32, sha256_cbor)
    original = kv_cache_utils.generate_block_hash_extra_keys
    scoped = scoped_extra_keys(guard, original)
    figures = {}
    for tokens in ALONE_TOKENS:
        ids = list(range(1_000, 1_000 + tokens))
        spent: dict[Any, list[float]] = {original: [], scoped: []}
        for _ in range(ALONE_CALLS):
            for function, samples in spent.items():
                more = tickets.parameters(ids, tokens - 200) if function is scoped else {}
                kv_cache_utils.generate_block_hash_extra_keys = function
                samples.append(_hash_us(hasher, ids, more))
        kv_cache_utils.generate_block_hash_extra_keys = original
        figures[f"hash_us_stock_{tokens}"] = statistics.median(spent[original])
        figures[f"hash_us_plugin_{tokens}"] = statistics.median(spent[scoped])
        figures[f"plugin_us_{tokens}"] = min(spent[scoped]) - min(spent[original])
    if guard.counts.total() != guard.counts["ok"]:
        raise RuntimeError(f"tickets were refused: {dict(guard.counts)}")
    return figures


def _hash_us(hasher: Callable[[Any], list[bytes]], ids: list[int], more: dict[str, Any]) -> float:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    extra = {"kv_transfer_params": more["kv_transfer_params"]} if more else None
    request = Request(
        request_id="x",
        prompt_token_ids=ids,
        sampling_params=SamplingParams(max_tokens=1, extra_args=extra),
        pooling_params=None,
        cache_salt=more.get("cache_salt", "user-1"),
    )
    began = time.perf_counter()
    hasher(request)
    return (time.perf_counter() - began) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="at least 7")
    parser.add_argument("--alone", action="store_true", help="only the plugin's cost in-process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as folder:
        figures = alone(Path(folder))
    if not options.alone:
        data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute()
        choice = EngineChoice(
            model_dir=ensure_model(data_dir), cache_dir=data_dir / "cache" / "vllm", threads=1
        )
        figures = uvloop.run(measure(choice, max(7, options.rounds))) | figures
    for name, value in figures.items():
        print(f"{name:28} {value:10.3f}")
    if options.json:
        rounded = {name: round(value, 4) for name, value in figures.items()}
        options.json.write_text(json.dumps(rounded, indent=2) + "\n")


if __name__ == "__main__":
    main()
