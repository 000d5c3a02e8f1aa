"""`scopekv calibrate`: measure an engine, and write the model of it that `simulate` takes."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec

from scopekv.cli.benchmark.requests import Target, Timed, target
from scopekv.cli.running import run
from scopekv.errors import Unavailable
from scopekv.gateway.addresses import server_root
from scopekv.simulate.fleet.calibration import (
    Burst,
    Decoded,
    Observed,
    capacity_of,
    speeds_of,
    tier_speeds,
)
from scopekv.simulate.fleet.speeds import Speeds, as_json

_FIRST_ID, _SHARES = 10, (1 / 32, 1 / 8, 1 / 2, 1)  # lengths, as shares of the longest prompt
_ROUNDS = 3
_ANSWER_TOKENS = 24
_SHORT_TOKENS = 32
_METRICS_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """Which engine, how to call it, and how far to go."""

    url: str
    model: str
    key: str
    tokens_max: int
    concurrency_max: int
    vocabulary: int
    kv_bytes_per_token: int | None
    seed: int


@click.command()
@click.argument("url")
@click.option("--model", required=True, help="The name under which the engine serves it.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With the engine's API key. [default: SCOPEKV_API_KEY, else none]",
)
@click.option(
    "--tokens-max",
    default=2048,
    show_default=True,
    type=click.IntRange(256, 1_000_000),
    help="The longest prompt to measure.",
)
@click.option(
    "--concurrency-max",
    default=8,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="The most sequences to decode at once.",
)
@click.option(
    "--vocabulary",
    default=10_000,
    show_default=True,
    type=click.IntRange(100),
    help="Prompts are random token ids below this.",
)
@click.option(
    "--kv-bytes-per-token",
    type=click.IntRange(1),
    help="Where the engine has no host tier that says it.",
)
@click.option("--seed", default=1, show_default=True, help="Of the prompts.")
def calibrate(url: str, out: Path, api_key_file: Path | None, **options: Any) -> None:
    """Measure the engine at URL through its OpenAI API, and write its model for `simulate`.

    Measures prefill by length and by position, decode by concurrency, the overhead of a request;
    reads its memory from /metrics and its tiers from /v1/scopekv/tiers, where that answers. The
    engine should do nothing else meanwhile, and count cached tokens
    (--enable-prompt-tokens-details).
    """
    key = os.environ.get("SCOPEKV_API_KEY", "")
    if api_key_file is not None:
        key = api_key_file.read_text("utf-8").strip()
    asked = EngineAsked(url=server_root(url), key=key or "none", **options)

    parent = out.absolute().parent
    if not os.access(parent, os.W_OK):
        raise click.ClickException(f"cannot write {out}: make the folder {parent} first")
    found: list[Speeds] = []

    async def body() -> None:
        found.append(await measure(asked, lambda line: click.echo(line, err=True)))

    run(body)
    if found:
        out.write_text(json.dumps(as_json(found[0]), indent=2) + "\n", "utf-8")
        click.echo(f"written: {out}")


async def measure(asked: EngineAsked, say: Callable[[str], None]) -> Speeds:
    """Ask the engine and fit what it did. Raises Unavailable where it does not answer."""
    async with target(asked.url, asked.model) as server:
        metrics = await _get(server, "/metrics", asked.key)
        tiers = await _tiers(server, asked.key)
        capacity = capacity_of(metrics, tiers, asked.kv_bytes_per_token)
        probe = _Probe(server, asked)
        await probe.ask(probe.tokens(_SHORT_TOKENS), 2)  # what is made at the first request
        observed = await probe.prefills(say)
        decoded = await probe.decodes(say)
        burst = await probe.burst(say)
    return speeds_of(
        asked.model,
        f"measured by scopekv calibrate: {len(observed)} prefills of up to {asked.tokens_max} "
        f"tokens, up to {asked.concurrency_max} sequences at once",
        observed=observed,
        decoded=decoded,
        burst=burst,
        capacity=capacity,
        tiers=tier_speeds(tiers),
        sequences_max=max(256, asked.concurrency_max),
    )


class _Probe:
    """Sends prompts of random token ids, each new unless it is meant to be cached."""

    def __init__(self, server: Target, asked: EngineAsked) -> None:
        self._server, self._asked = server, asked
        self._dice = random.Random(asked.seed)  # noqa: S311 - prompts of no meaning

    def tokens(self, count: int) -> list[int]:
        return [self._dice.randrange(_FIRST_ID, self._asked.vocabulary) for _ in range(count)]

    async def ask(self, prompt: list[int], max_tokens: int) -> Timed:
        return await self._server.ask(prompt, key=self._asked.key, max_tokens=max_tokens)

    async def prefills(self, say: Callable[[str], None]) -> list[Observed]:
        """Whole prompts of rising length, and the same again with a new end: by position."""
        found: list[Observed] = []
        lengths = [max(_SHORT_TOKENS, int(share * self._asked.tokens_max)) for share in _SHARES]
        for number in range(_ROUNDS):
            for length in lengths:
                prompt = self.tokens(length)
                end = self.tokens(max(_SHORT_TOKENS, length // 4))
                for one in (prompt, prompt[: length - len(end)] + end):
                    timed = await self.ask(one, 1)
                    seconds = timed.ttft_ms / 1e3
                    found.append(Observed(timed.cached_tokens, timed.input_tokens, seconds))
            say(
                f"prefill: round {number + 1} of {_ROUNDS}, {lengths[-1]} tokens in "
                f"{found[-2].seconds:.3f} s"
            )
        return found

    async def decodes(self, say: Callable[[str], None]) -> list[Decoded]:
        """Sequences at once, twice as many each time."""
        found: list[Decoded] = []
        count = 1
        while count <= self._asked.concurrency_max:
            asks = [self.ask(self.tokens(_SHORT_TOKENS), _ANSWER_TOKENS) for _ in range(count)]
            timed = await asyncio.gather(*asks)
            each = [
                (one.total_ms - one.ttft_ms) / 1e3 / (one.output_tokens - 1)
                for one in timed
                if one.output_tokens > 1
            ]
            if not each:
                raise Unavailable("the engine answers with one token: decode cannot be measured")
            found.append(Decoded(count, median(each)))
            say(
                f"decode: {count} at once, {1 / max(found[-1].token_seconds, 1e-9):,.0f} tokens/s "
                "each"
            )
            count *= 2
        return found

    async def burst(self, say: Callable[[str], None]) -> Burst:
        """Short prompts that are cached, one alone and many at once."""
        prompt = self.tokens(2 * _SHORT_TOKENS)
        await self.ask(prompt, 1)
        alone = [(await self.ask(prompt, 1)).ttft_ms for _ in range(_ROUNDS)]
        count = max(2, self._asked.concurrency_max)
        every = await asyncio.gather(*(self.ask(prompt, 1) for _ in range(count)))
        computed = max(one.input_tokens - one.cached_tokens for one in every)
        slowest = max(one.ttft_ms for one in every)
        burst = Burst(count, computed, slowest / 1e3, median(alone) / 1e3)
        say(
            f"overhead: {burst.one_seconds * 1e3:.1f} ms a request alone, "
            f"{burst.each_seconds * 1e3:.1f} ms more for each at once"
        )
        return burst


async def _get(server: Target, path: str, key: str) -> bytes:
    headers = [(b"authorization", b"Bearer " + key.encode())]
    answer = await server.pool.request("GET", path, headers, b"", timeout_seconds=10)
    async with answer:
        content = await answer.read(_METRICS_BYTES_MAX)
    if answer.status != 200:
        raise Unavailable(f"the engine answered {path} with {answer.status}: is it a vLLM server?")
    return content


async def _tiers(server: Target, key: str) -> Mapping[str, Any]:
    """What the plugin reports; nothing where there is none."""
    try:
        report = msgspec.json.decode(await _get(server, "/v1/scopekv/tiers", key))
    except (Unavailable, msgspec.DecodeError):
        return {}
    found = report.get("tiers") if isinstance(report, dict) else None
    return found if isinstance(found, dict) else {}
