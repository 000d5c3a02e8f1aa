"""A tenant floods unique prompts; how much of its cache does another tenant lose?

    python benchmarks/fairness.py [--minutes 5] [--json FILE]

One real engine with little memory: 48 blocks of its own, 128 MiB of host memory, a directory of 256
MiB. The victim holds three conversations in turn, one question every few seconds, each of which
grows and begins anew at a limit. It does so alone, and then, on a fresh engine, while another
tenant sends unique prompts without a pause.

    victim_hit_rate_...   cached tokens / prompt tokens over the victim's requests

The victim's conversations fit into what the directory guarantees it: two fifths of it.
The engine's own memory evicts what was used longest ago, whoever's it is; the tiers behind it keep
each tenant's guaranteed share.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from _progress import tell
from _tiers_engine import Tiered, tiered

from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model
from scopekv.simulate.stage import text_of

TIERS = ("host=128MiB", "directory=256MiB")
ENGINE_BLOCKS = 48
POSITIONS = 1024
CONVERSATIONS = 3
SECONDS_BETWEEN = 4.0
OPENING_WORDS, QUESTION_WORDS, TURNS_MAX = 60, 8, 8
FLOOD_WORDS = 90
FLOODERS = 2


@dataclass
class Victim:
    """The victim's requests, the same in both runs."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_ms: list[float] = field(default_factory=list)
    lowest: list[tuple[int, int]] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    async def run(self, stage: Tiered, key: str, turns: int, pause: float) -> None:
        texts = [""] * CONVERSATIONS
        for turn in range(turns):
            place, at = turn % CONVERSATIONS, turn // CONVERSATIONS
            if at % TURNS_MAX == 0:
                texts[place] = text_of(f"conversation {place} {at}", OPENING_WORDS)
            texts[place] += " " + text_of(f"question {place} {at}", QUESTION_WORDS)
            due = time.monotonic() + pause
            timed = await stage.ask(key, texts[place])
            self.prompt_tokens += timed.input_tokens
            self.cached_tokens += timed.cached_tokens
            self.ttft_ms.append(timed.ttft_ms)
            if at % TURNS_MAX and timed.cached_tokens < timed.input_tokens - 100:
                self.lowest.append((timed.cached_tokens, timed.input_tokens))
            tell(f"turn {turn + 1}/{turns}, hit rate {self.hit_rate:.1%}")
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def flood(stage: Tiered, key: str, serial: itertools.count[int]) -> None:
    while True:
        await stage.ask(key, text_of(f"flood {next(serial)}", FLOOD_WORDS))


async def one_run(
    folder: Path, model_dir: Path, cache_dir: Path, turns: int, *, flooded: bool
) -> dict[str, Any]:
    """A fresh engine, the victim's turns, and the flood if wanted."""
    blocks = ("--num-gpu-blocks-override", str(ENGINE_BLOCKS))
    made = tiered(folder, model_dir, cache_dir, TIERS, max_model_len=POSITIONS, arguments=blocks)
    async with made as stage:
        key = stage.deployment.account("victims", "user")
        other = stage.deployment.account("flooders", "user")
        victim, serial = Victim(), itertools.count()
        count = FLOODERS if flooded else 0
        floods = [asyncio.create_task(flood(stage, other, serial)) for _ in range(count)]
        began = time.monotonic()
        try:
            await victim.run(stage, key, turns, SECONDS_BETWEEN if flooded else 0.5)
        finally:
            for task in floods:
                task.cancel()
            ended = await asyncio.gather(*floods, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                raise RuntimeError("the flood ended early") from error
        report = await stage.settled()
    name = "flooded" if flooded else "alone"
    counts = report["tiers"]["directory"]
    return {
        f"victim_hit_rate_{name}": victim.hit_rate,
        f"victim_ttft_ms_median_{name}": sorted(victim.ttft_ms)[turns // 2],
        f"seconds_{name}": time.monotonic() - began,
        f"prompts_of_the_flood_{name}": next(serial),
        f"returns_that_lost_blocks_{name}": len(victim.lowest),
        f"directory_loaded_{name}": counts["loaded"],
        f"directory_evicted_{name}": counts["evicted"],
        f"load_average_{name}": os.getloadavg()[0],
    }


async def main(options: argparse.Namespace, data_dir: Path) -> dict[str, Any]:
    model_dir, cache_dir = ensure_model(data_dir), data_dir / "cache" / "vllm"
    turns = max(6, round(options.minutes * 60 / SECONDS_BETWEEN))
    figures: dict[str, Any] = {"minutes": options.minutes, "turns": turns}
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as folder:
        for flooded in (False, True):
            place = Path(folder) / f"flooded-{flooded}"
            figures |= await one_run(place, model_dir, cache_dir, turns, flooded=flooded)
    lost = figures["victim_hit_rate_alone"] - figures["victim_hit_rate_flooded"]
    return figures | {"points_lost": 100 * lost}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="of the flood")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute()
    figures = uvloop.run(main(options, data_dir))
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else value
        print(f"{name:36} {shown:>12}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
