"""Revoking under load: is anything read after success, and how soon are the bytes gone?

    python benchmarks/revoke.py [--trials 200] [--real-trials 6] [--quick] [--json FILE]

Two instances with host memory, a directory, Valkey and S3 (real servers). Each trial writes blocks
of a fresh scope into all tiers, goes on asking for them, and revokes them while requests run: a
document, an account, a session or a membership in turn. Time starts with the call.

    reads_after_success        prefills that read an affected block after success, whenever the
                               request began; and cached probes: prompts of the account that were
                               asked once before, and once after, so nothing of them may be cached
    seconds_to_bytes_gone_max  until no outer tier lists a folder of the scope: disk, Valkey, S3

First with simulated engines (everything but the model is real; every read of a block is seen), 20
requests a second, three trials at a time; then a few trials with two real engines, at the rate that
they can serve here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from _progress import tell
from _revoke_stage import Stage, real, servers, simulated
from _revoke_trial import (
    GONE_SECONDS_MAX,
    KINDS,
    MEDIA,
    PROBED,
    Load,
    Pace,
    Tally,
    subject_of,
    trial,
)

from scopekv.cli.options import default_data_dir
from scopekv.engines.model import ensure_model
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import text_of


async def run(stage: Stage, trials: int, pace: Pace) -> dict[str, Any]:
    """All trials on one stage."""
    account = stage.deployment.account
    admin = account("acme", "ada", roles=["org_admin"])
    others = [account(f"other-{number}", "user") for number in range(3)]
    tally = Tally()
    load = Load(stage, pace, others, tally)
    numbers = iter(range(trials))

    async def lane() -> None:
        for number in numbers:
            kind = pace.kinds[number % len(pace.kinds)]
            subject = subject_of(stage, kind, number, pace)
            await trial(stage, load, subject, admin, pace, tally)
            tell(f"trial {number + 1}/{trials}")

    loading = asyncio.create_task(load.run())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(pace.lanes):
                group.create_task(lane())
    finally:
        loading.cancel()
    await load.drain()
    await asyncio.sleep(1)
    tally.reads_after += sum(stage.reads(tags, success) for tags, success in tally.successes)
    ended = frozenset(one for tags, _ in tally.successes for one in tags)
    left = await asyncio.to_thread(stage.holding, ended)
    figures = summary(tally, trials) | {"chains_left_at_end": sum(left.values())}
    if stage.engines:
        counters = [engine.tiers.counters() for engine in stage.engines if engine.tiers]
        for name in counters[0]:
            figures[f"blocks_from_{name}"] = sum(one[name] for one in counters)
        figures |= await paused(stage, admin)
    return figures


async def paused(stage: Stage, admin: str) -> dict[str, Any]:
    """One instance stands still: the answer is incomplete, and turns done once it goes on."""
    key = stage.deployment.account("acme", "paused")
    await stage.client.chat(key, text_of("paused", 40), max_tokens=1)
    behaviour = stage.engines[1].behaviour
    behaviour.paused = True
    try:
        answer = await stage.client.send(
            "POST",
            "/admin/v1/revocations/users",
            {"org": "acme", "name": "paused", "wait_seconds": 7},
            key=admin,
        )
    finally:
        behaviour.paused = False
    began, receipt = time.monotonic(), answer.json["receipt"]
    state = receipt["state"]
    while receipt["state"] != "done" and time.monotonic() - began < GONE_SECONDS_MAX:
        await asyncio.sleep(0.1)
        path = f"/admin/v1/receipts/{receipt['id']}"
        receipt = (await stage.client.send("GET", path, key=admin)).json
    return {
        "paused_state": state,
        "resumed_state": receipt["state"],
        "resumed_seconds": time.monotonic() - began,
    }


def summary(tally: Tally, trials: int) -> dict[str, Any]:
    if tally.reads_before == 0 and sum(tally.held_before.values()) == 0:
        raise RuntimeError("nothing was ever cached, so nothing was shown")
    return {
        "trials": trials,
        "reads_after_success": tally.reads_after,
        "reads_before_revoking": tally.reads_before,
        "probes": tally.probes,
        "seconds_to_bytes_gone_max": max(tally.gone_seconds),
        "seconds_to_bytes_gone_median": statistics.median(tally.gone_seconds),
        "revoke_seconds_median": statistics.median(tally.revoke_seconds),
        "revoke_seconds_max": max(tally.revoke_seconds),
        "revoke_not_200": trials - tally.statuses[200],
        "requests": tally.answers.total(),
        "requests_not_200": tally.answers.total() - tally.answers[200],
        **{f"trials_with_bytes_in_{name}": tally.held_before[name] for name in MEDIA},
    }


async def main(options: argparse.Namespace, data_dir: Path) -> dict[str, Any]:
    model_dir = ensure_model(data_dir)
    figures: dict[str, Any] = {"load_average_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as name:
        folder = Path(name)
        with servers(folder) as (valkey, s3):
            model = SimulatedModel.load(model_dir, max_model_len=2048)
            if options.trials:
                pace = Pace(20, before=0.8, after=0.1, words=40, kinds=KINDS, lanes=3)
                made = simulated(folder / "simulated", model, valkey.url(), s3.url())
                (folder / "simulated").mkdir(mode=0o700)
                async with made as stage:
                    figures |= await run(stage, options.trials, pace)
                figures["load_average_simulated"] = os.getloadavg()[0]
            if options.real_trials:
                pace = Pace(1.5, before=8, after=1, words=15, kinds=PROBED, lanes=1)
                (folder / "real").mkdir(mode=0o700)
                cache = data_dir / "cache" / "vllm"
                async with real(folder / "real", model_dir, cache, valkey, s3.url()) as stage:
                    found = await run(stage, options.real_trials, pace)
                figures |= {f"real_{name}": value for name, value in found.items()}
                figures["load_average_real"] = os.getloadavg()[0]
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=200, help="on simulated engines")
    parser.add_argument("--real-trials", type=int, default=6, help="on two real engines")
    parser.add_argument("--quick", action="store_true", help="8 trials, none on real engines")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.trials, options.real_trials = 8, 0
    data_dir = Path(os.environ.get("SCOPEKV_DATA_DIR") or default_data_dir()).absolute()
    figures = uvloop.run(main(options, data_dir))
    print()
    for name, value in figures.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        print(f"{name:34} {shown:>10}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
