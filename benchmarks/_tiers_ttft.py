"""TTFT of a real engine, by where a prompt's blocks come from: nowhere, its own memory, each tier.

Two engines, one after the other: with a directory tier, and with a Valkey tier (a real server).
Prompts are plain completions through the gateway. Every hit is checked: its cached tokens, and the
blocks that its tier says it loaded.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests.contracts

from _progress import tell
from _tiers_engine import Tiered, tiered

from scopekv.simulate.stage import text_of
from tests.contracts.object_servers import VALKEY_PASSWORD, ValkeyServers

LENGTHS = (500, 1500, 3000, 6000)
BLOCK_TOKENS = 32
HITS = 5
RECOMPUTES = {500: 5, 1500: 5, 3000: 3, 6000: 2}
HANG_TOKENS, HANGS = 500, 5
WAYS = ("recompute", "engine", "host", "directory", "valkey")


class Prompts:
    """Texts of so many tokens that no other prompt begins like."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))

    def make(self, name: str, tokens: int) -> str:
        ids = self._tokenizer.encode(text_of(name, tokens), add_special_tokens=False).ids
        return str(self._tokenizer.decode(ids[:tokens]))


async def _hits(
    stage: Tiered, key: str, prompt: str, way: str, tier: str, hits: int
) -> list[float]:
    """TTFT in ms of so many hits that come from one place."""
    found = []
    for _ in range(hits):
        if way != "engine":
            await stage.forget(host=way != "host")
        before = (await stage.settled())["tiers"][tier]["loaded"]
        timed = await stage.ask(key, prompt)
        loaded = (await stage.settled())["tiers"][tier]["loaded"] - before
        whole = (timed.input_tokens - 1) // BLOCK_TOKENS
        if timed.cached_tokens < whole * BLOCK_TOKENS or loaded != (whole if way == tier else 0):
            raise RuntimeError(
                f"not a hit in {way}: {timed.cached_tokens} of {timed.input_tokens} tokens cached, "
                f"{loaded} blocks from {tier}"
            )
        found.append(timed.ttft_ms)
    return found


async def _recompute(
    stage: Tiered, key: str, prompts: Prompts, name: str, tokens: int, times: int
) -> tuple[list[float], str]:
    """TTFT of fresh prompts, and the last of them."""
    found, prompt = [], ""
    for number in range(times):
        prompt = prompts.make(f"{name} {tokens} {number}", tokens)
        timed = await stage.ask(key, prompt)
        if timed.cached_tokens:
            raise RuntimeError("a fresh prompt was cached")
        found.append(timed.ttft_ms)
        await stage.settled()
    return found, prompt


async def _with_directory(
    stage: Tiered, prompts: Prompts, lengths: Sequence[int], hits: int
) -> dict[str, list[float]]:
    key, spent = stage.deployment.account("acme", "alice"), {}
    for tokens in lengths:
        tell(f"ttft: {tokens} tokens, directory")
        times = min(hits, RECOMPUTES[tokens])
        found = await _recompute(stage, key, prompts, "one", tokens, times)
        spent[f"recompute_{tokens}"], prompt = found
        for way in ("engine", "host", "directory"):
            got = await _hits(stage, key, prompt, way, "directory", hits)
            spent[f"{way}_{tokens}"] = got
    return spent


async def _with_valkey(
    stage: Tiered, prompts: Prompts, lengths: Sequence[int], hits: int, valkey: ValkeyServers
) -> dict[str, list[float]]:
    key, spent = stage.deployment.account("acme", "alice"), {}
    for tokens in lengths:
        tell(f"ttft: {tokens} tokens, Valkey")
        _, prompt = await _recompute(stage, key, prompts, "two", tokens, 1)
        spent[f"valkey_{tokens}"] = await _hits(stage, key, prompt, "valkey", "valkey", hits)
    spent |= await _hang(stage, key, prompts, valkey, min(hits, HANGS))
    return spent


async def _hang(
    stage: Tiered, key: str, prompts: Prompts, valkey: ValkeyServers, times: int
) -> dict[str, list[float]]:
    """Prompts that lie in Valkey while it stands still, against fresh ones while it works."""
    tell("ttft: a store that hangs")
    fresh: list[float] = []
    texts = []
    for number in range(times):
        got, text = await _recompute(stage, key, prompts, f"hang {number}", HANG_TOKENS, 1)
        fresh += got
        texts.append(text)
    await stage.forget(host=True)
    valkey.send(signal.SIGSTOP)
    try:
        hanging = [(await stage.ask(key, text)).ttft_ms for text in texts]
    finally:
        valkey.send(signal.SIGCONT)
    return {"hang_recompute": fresh, "hang_hanging": hanging}


async def measure(
    work: Path, model_dir: Path, cache_dir: Path, *, lengths: Sequence[int] = LENGTHS, hits: int
) -> dict[str, Any]:
    """Medians in ms, by way and prompt length."""
    prompts = Prompts(model_dir)
    tiers = ("host=1.5GiB", "directory=4GiB")
    async with tiered(work / "with-directory", model_dir, cache_dir, tiers) as stage:
        spent = await _with_directory(stage, prompts, lengths, hits)
    load = os.getloadavg()[0]
    valkey = ValkeyServers(work)
    valkey.start()
    try:
        tiers = ("host=1.5GiB", f"valkey://127.0.0.1:{valkey.ports[0]}/0,4GiB")
        environment = {"SCOPEKV_VALKEY_PASSWORD": VALKEY_PASSWORD}
        made = tiered(work / "with-valkey", model_dir, cache_dir, tiers, environment=environment)
        async with made as stage:
            spent |= await _with_valkey(stage, prompts, lengths, hits, valkey)
    finally:
        valkey.kill()
    medians = {f"ttft_ms_{name}": statistics.median(values) for name, values in spent.items()}
    pairs = zip(spent["hang_hanging"], spent["hang_recompute"], strict=True)
    return medians | {
        "hang_real_ratio": medians["ttft_ms_hang_hanging"] / medians["ttft_ms_hang_recompute"],
        "hang_real_ratio_worst": max(hanging / fresh for hanging, fresh in pairs),
        "ttft_lengths": list(lengths),
        "ttft_recomputes": {name: len(v) for name, v in spent.items() if name[0] == "r"},
        "load_average_ttft": [load, os.getloadavg()[0]],
    }


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'TTFT ms':>8} tokens" + "".join(f"{way:>12}" for way in WAYS)]
    for tokens in figures["ttft_lengths"]:
        row = [figures[f"ttft_ms_{way}_{tokens}"] for way in WAYS]
        lines.append(f"{tokens:15}" + "".join(f"{value:12.0f}" for value in row))
    hang = figures["hang_real_ratio"]
    return "\n".join([*lines, f"Valkey hangs, {HANG_TOKENS} tokens: {hang:.3f} times recompute"])
