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
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from _revoke_stage import Stage, real, servers, simulated

from scopekv.cli.options import default_data_dir
from scopekv.core.chains import Tag, holds_any
from scopekv.engines.model import ensure_model
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import text_of

KINDS = ("documents", "users", "sessions", "memberships")
MEDIA = ("directory", "valkey", "s3")
PROBED = KINDS[1:3]  # a document is read again at once, by the gateway and by whoever asks first
PROMPTS, PROBES = 6, 2
GONE_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Pace:
    """How a run is timed. Seconds; `words` of a prompt."""

    requests_per_second: float
    before: float
    after: float
    words: int
    kinds: tuple[str, ...]
    lanes: int


@dataclass
class Subject:
    """What one trial revokes, and who asks for it how."""

    kind: str
    key: str
    body: dict[str, Any]
    system: str
    headers: list[tuple[bytes, bytes]]
    name: str


@dataclass
class Tally:
    """What the trials found."""

    reads_after: int = 0
    reads_before: int = 0
    probes: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    gone_seconds: list[float] = field(default_factory=list)
    revoke_seconds: list[float] = field(default_factory=list)
    held_before: Counter[str] = field(default_factory=Counter)
    successes: list[tuple[frozenset[Tag], float]] = field(default_factory=list)


class Load:
    """Requests at a steady rate until it is left: half on the subject's prompts, half on others."""

    def __init__(self, stage: Stage, pace: Pace, others: list[str], tally: Tally) -> None:
        self._stage, self._pace, self._others, self._tally = stage, pace, others, tally
        self.subjects: list[Subject] = []
        self._serial = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dice = random.Random(1)

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due, time.monotonic() - 1) + 1 / self._pace.requests_per_second
            task = asyncio.create_task(self._one(next(self._serial)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _one(self, number: int) -> None:
        if self.subjects and number % 2:
            subject = self._dice.choice(self.subjects)
            prompt = self._dice.randrange(PROMPTS)
            answer = await ask(self._stage, subject, f"question {prompt}", self._pace)
        else:
            text = text_of(f"other {number}", self._pace.words)
            key = self._others[number % len(self._others)]
            answer = await self._stage.client.chat(key, text, max_tokens=1)
        self._tally.answers[answer.status] += 1

    async def drain(self) -> None:
        await asyncio.gather(*self._tasks)


async def ask(stage: Stage, subject: Subject, question: str, pace: Pace) -> Any:
    text = text_of(f"{subject.name} {question}", pace.words)
    contents = (subject.system, text) if subject.system else (text,)
    return await stage.client.chat(subject.key, *contents, headers=subject.headers, max_tokens=1)


def subject_of(stage: Stage, kind: str, number: int, pace: Pace) -> Subject:
    """Fresh accounts and documents; nothing of an earlier trial."""
    deployment, name = stage.deployment, f"{kind}-{number}"
    user = f"user-{number}"
    key = deployment.account("acme", user)
    system, headers = "", []
    if kind in ("documents", "memberships"):
        system = text_of(f"document {name}", 3 * pace.words)
        audience = "org:acme"
        if kind == "memberships":
            deployment.group("acme", f"group-{number}", user)
            audience = f"group:acme/group-{number}"
        deployment.publish(name, audience, system)
    if kind == "sessions":
        headers = [(b"x-scopekv-session", b"s1")]
    body = {
        "documents": {"document": f"acme/{name}"},
        "users": {"org": "acme", "name": user},
        "sessions": {"org": "acme", "name": user, "session": "s1"},
        "memberships": {"org": "acme", "group": f"group-{number}", "name": user},
    }[kind]
    return Subject(kind, key, body, system, headers, name)


async def trial(
    stage: Stage, load: Load, subject: Subject, admin: str, pace: Pace, tally: Tally
) -> None:
    """Load, revoke under it, look."""
    probes = [f"probe {n}" for n in range(PROBES)] if subject.kind in PROBED else []
    for question in probes:
        await ask(stage, subject, question, pace)
    load.subjects.append(subject)
    began = time.monotonic()
    await asyncio.sleep(pace.before)
    listed = await asyncio.to_thread(stage.chains)
    called = time.monotonic()
    answer = await stage.client.send(
        "POST",
        f"/admin/v1/revocations/{subject.kind}",
        {"wait_seconds": 30} | subject.body,
        key=admin,
    )
    success = time.monotonic()
    tally.statuses[answer.status] += 1
    tally.revoke_seconds.append(success - called)
    tags = stage.tags_of(answer.json["receipt"]["id"])
    for name, chains in listed.items():
        tally.held_before[name] += any(holds_any(chain, tags) for chain in chains)
    found = await asyncio.gather(*(ask(stage, subject, question, pace) for question in probes))
    tally.probes += len(found)
    cached = sum(one.cached > 0 for one in found)
    tally.gone_seconds.append(await gone(stage, tags, called))
    await asyncio.sleep(pace.after)
    load.subjects.remove(subject)
    tally.reads_before += stage.reads(tags, began)
    tally.successes.append((tags, success))
    tally.reads_after += cached
    if cached or answer.status != 200:
        print(f"\n{subject.name}: {cached} probes cached, {answer.content[:600]!r}")
    stage.forget_calls()


async def gone(stage: Stage, tags: frozenset[Tag], since: float) -> float:
    """Seconds until no outer tier lists a folder of these tags; raises after a minute."""
    while True:
        left = await asyncio.to_thread(stage.holding, tags)
        seconds = time.monotonic() - since
        if not any(left.values()):
            return seconds
        if seconds > GONE_SECONDS_MAX:
            raise RuntimeError(f"bytes are left after {seconds:.0f} s: {left}")
        await asyncio.sleep(0.02)


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
            print(f"trial {number + 1}/{trials}", end="\r", flush=True)

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
