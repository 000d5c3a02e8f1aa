"""One trial of revoking under load: a subject with blocks, requests for them, the call."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from _revoke_stage import Stage

from scopekv.core.chains import Tag, holds_any
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
