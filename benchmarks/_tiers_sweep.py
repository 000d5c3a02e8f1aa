"""A slow tier, from memory speed to a hang, on the real tier, estimators and decision (L9).

A directory tier lies behind a delay for each call. Requests run one after the other in real time;
only prefill is modelled, as a sleep of tokens / `PREFILL`. Each request runs twice: with the tier,
and without any. The loop asks, plans, waits and gives up as `ScopedOffloadingManager` does.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _progress import tell

from scopekv.adapters.objects import open_store
from scopekv.core.chains import Chain
from scopekv.core.fetching import FetchPlan, stalled
from scopekv.engines.vllm.offloading.planning import Planner
from scopekv.ports import ObjectKey, ObjectStat, ObjectStore
from scopekv.ports.objects import Bytes, Wanted
from scopekv.simulate.sealed_tier import TierStage, link
from scopekv.store.settings import TierSettings
from scopekv.store.tier import Block, Done, Presence

DELAYS_MS = (0.0, 1.0, 5.0, 10.0, 20.0, 50.0)
PREFILL = 10_000.0  # tokens a second
TOKENS, BLOCK_TOKENS, BLOCK_BYTES = 2_000, 32, 737_280
PROMPTS = 10  # stored before a step; one request in ten is new
CAPACITY_BYTES = 2 << 30
POLL_SECONDS = 0.001
WARM_UP_TOKENS = 256


class Delayed:
    """An object store that is as far away as it is told."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.medium = store.medium
        self.seconds = 0.0
        self.answers = threading.Event()
        self.answers.set()

    def _travel(self) -> None:
        self.answers.wait()
        if self.seconds:
            time.sleep(self.seconds)

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        self._travel()
        self._store.put(key, parts)

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        self._travel()
        return self._store.get(key, into)

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        self._travel()
        return self._store.present(keys)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        self._travel()
        return self._store.delete(keys)

    def chains(self) -> Iterator[str]:
        self._travel()
        return self._store.chains()

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        self._travel()
        return self._store.objects(chain)

    def quarantine(self, key: ObjectKey) -> None:
        self._travel()
        self._store.quarantine(key)

    def quarantined(self) -> Iterator[ObjectStat]:
        self._travel()
        return self._store.quarantined()

    def close(self) -> None:
        self.answers.set()
        self._store.close()


@dataclass
class Step:
    """TTFT of each request in seconds, with the tier and without."""

    with_tier: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    given_up: int = 0

    @property
    def p99_ratio(self) -> float:
        return _p99(self.with_tier) / _p99(self.without)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


class Engine:
    """One request at a time on one tier."""

    def __init__(self, stage: TierStage, chain: Chain) -> None:
        self.planner = Planner(BLOCK_TOKENS, BLOCK_BYTES, 5_000.0)
        self._stage, self._tier, self._chain = stage, stage.tier, chain
        self._slots = memoryview(bytearray(os.urandom(BLOCK_BYTES) * (TOKENS // BLOCK_TOKENS)))
        self._over: dict[int, Done] = {}
        self.prefill(0, WARM_UP_TOKENS)

    def blocks(self, prompt: str) -> list[Block]:
        return [
            Block(
                self._chain,
                hashlib.sha256(f"{prompt}/{at}".encode()).digest(),
                0,
                self._slots[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES],
                depth=at,
                cost=BLOCK_TOKENS / PREFILL,
            )
            for at in range(TOKENS // BLOCK_TOKENS)
        ]

    def serve(self, prompt: str, step: Step) -> float:
        """TTFT of one request."""
        blocks = self.blocks(prompt)
        began = time.perf_counter()
        held = self._held(blocks)
        plan = self.planner.plan(TOKENS, 0, [(0, held)] if held else [], [self._tier], 0)
        step.reasons[str(plan.reason)] += 1
        done = self._fetch(blocks[: plan.blocks], plan, step) if plan.blocks else 0
        self.prefill(done * BLOCK_TOKENS, TOKENS)
        seconds = time.perf_counter() - began
        if held < len(blocks):
            self._tier.store(self._stage.job(), blocks[held:])
        return seconds

    def prefill(self, start: int, end: int) -> None:
        began = time.perf_counter()
        time.sleep((end - start) / PREFILL)
        self.planner.observe(start, end - start, time.perf_counter() - began)

    def _held(self, blocks: Sequence[Block]) -> int:
        """Leading blocks that the tier has, asked for as long as the manager would."""
        patience = self.planner.patience_seconds(0, TOKENS)[1]
        asked = [(block.chain, block.block_hash, block.group_idx) for block in blocks]
        began = time.monotonic()
        while True:
            answers = self._tier.lookup(asked)
            unknown = answers[0] is Presence.UNKNOWN
            if not unknown or time.monotonic() - began > patience:
                break
            time.sleep(POLL_SECONDS)
        present = [answer is Presence.PRESENT for answer in answers]
        return present.index(False) if False in present else len(present)

    def _fetch(self, blocks: Sequence[Block], plan: FetchPlan, step: Step) -> int:
        job_id, began = self._stage.job(), time.monotonic()
        self._tier.load(job_id, blocks)
        while not self._collected(job_id):
            done = self._tier.progress(job_id)
            if done is not None and stalled(time.monotonic() - began, done, plan):
                self._tier.abandon(job_id)
                step.given_up += 1
                while not self._collected(job_id):
                    time.sleep(POLL_SECONDS)
                break
            time.sleep(POLL_SECONDS)
        ok = set(self._over.pop(job_id).ok)
        return next((at for at in range(len(blocks)) if at not in ok), len(blocks))

    def _collected(self, job_id: int) -> bool:
        self._over.update((done.job_id, done) for done in self._tier.finished())
        return job_id in self._over

    def keep(self, prompts: Sequence[str]) -> None:
        """Store whole prompts, and wait until they are."""
        for prompt in prompts:
            job_id = self._stage.job()
            self._tier.store(job_id, self.blocks(prompt))
            self._stage.until(lambda job_id=job_id: self._collected(job_id))  # type: ignore[misc]


@contextmanager
def _engine(folder: Path) -> Iterator[tuple[Engine, Delayed]]:
    store = Delayed(open_store(str(folder)))
    settings = TierSettings(capacity_bytes=CAPACITY_BYTES)
    stage = TierStage(store, settings=settings, block_bytes=BLOCK_BYTES).ready()
    try:
        yield Engine(stage, stage.grant(link("organisation"), link("user"))), store
    finally:
        store.seconds = 0.0
        store.answers.set()
        stage.close()


def play(folder: Path, delay_ms: float | None, requests: int) -> Step:
    """One step; no delay is a hang that begins before the first request."""
    step, dice = Step(), random.Random(1)
    known = [f"known {number}" for number in range(PROMPTS)]
    with _engine(folder) as (engine, store):
        engine.keep(known)
        if delay_ms is None:
            store.answers.clear()
        else:
            store.seconds = delay_ms / 1e3
        for number in range(requests):
            prompt = f"new {number}" if number % 10 == 9 else dice.choice(known)
            step.with_tier.append(engine.serve(prompt, step))
            began = time.perf_counter()
            time.sleep(TOKENS / PREFILL)
            step.without.append(time.perf_counter() - began)
    return step


def measure(work: Path, *, requests: int) -> dict[str, Any]:
    """The whole sweep."""
    steps: list[dict[str, Any]] = []
    for delay_ms in (*DELAYS_MS, None):
        name = "hang" if delay_ms is None else f"{delay_ms:g} ms"
        tell(f"sweep: {name}")
        step = play(work / f"sweep-{name.replace(' ', '')}", delay_ms, requests)
        steps.append(
            {
                "step": name,
                "p99_ratio": step.p99_ratio,
                "median_ratio": statistics.median(step.with_tier) / statistics.median(step.without),
                "p99_ms": 1e3 * _p99(step.with_tier),
                "p99_ms_without": 1e3 * _p99(step.without),
                "given_up": step.given_up,
                "reasons": dict(step.reasons),
                "load_average": os.getloadavg()[0],
            }
        )
    return {
        "slow_tier_p99_ratio_max": max(step["p99_ratio"] for step in steps),
        "sweep_requests": requests,
        "sweep_steps": steps,
    }


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'round trip':10} {'p99 ratio':>10} {'median':>8} {'p99 ms':>8} {'no tier':>8}"]
    for step in figures["sweep_steps"]:
        reasons = ", ".join(f"{name} {count}" for name, count in step["reasons"].items())
        lines.append(
            f"{step['step']:10} {step['p99_ratio']:10.3f} {step['median_ratio']:8.3f}"
            f" {step['p99_ms']:8.1f} {step['p99_ms_without']:8.1f}"
            f"  {reasons}; given up {step['given_up']}"
        )
    return "\n".join(lines)
