"""The store audit as a whole: place canaries, read everything, tamper if told to, say what was.

listen ─▶ place canaries ─▶ list and read stores ─▶ logs, metrics, events ─▶ tamper ─▶ result
"""

from __future__ import annotations

import asyncio
import platform
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field

from scopekv import __version__
from scopekv.audit.results import AuditResult, Check, NotTested, Plain, Verdict
from scopekv.audit.store.asking import Asker, PromptMaker
from scopekv.audit.store.content_checks import names, plaintext, sealed
from scopekv.audit.store.events import Listener, events
from scopekv.audit.store.examining import Examined, Wanted, examine
from scopekv.audit.store.guesses import Guesses, insider_guesses, public_guesses, scope_guesses
from scopekv.audit.store.media import Medium, open_medium
from scopekv.audit.store.needles import (
    NAME_OF_OURS,
    Needle,
    Words,
    of_token_ids,
    of_words,
    spellings,
)
from scopekv.audit.store.placing import Canaries, place_canaries
from scopekv.audit.store.scope_checks import two_scopes
from scopekv.audit.store.scratch import ScratchMedium
from scopekv.audit.store.shape_checks import learned, leftovers, modes, sizes
from scopekv.audit.store.tamper_checks import NAME, TITLE, Tampered, tamper_all, untested
from scopekv.audit.store.target import Progress, StoreSettings, StoreTarget
from scopekv.audit.store.telling import Hidden, logs, metrics
from scopekv.core.sealing import OVERHEAD_BYTES
from scopekv.errors import Unavailable

_WORDS_MAX = 8  # of the text canary that are looked for: any block holds some
NEVER = (
    NotTested("memory of engines and hosts", "blocks there are plain, as the engine's own are"),
    NotTested("versions, snapshots and backups of a store", "they are not listed"),
    NotTested("secrets of fewer than six bytes", "random bytes hold them by chance"),
)


@dataclass(slots=True)
class _Seen:
    """What the audit has so far. Checks are in the order of the report."""

    canaries: Canaries | None = None
    stores: list[Examined] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    tampered: Tampered = field(default_factory=Tampered)
    not_tested: list[NotTested] = field(default_factory=list)
    complete: bool = True


async def audit_store(
    target: StoreTarget, settings: StoreSettings, progress: Progress
) -> AuditResult:
    """Run the audit. Changes nothing but with `settings.tamper`, and then puts it back.

    Raises `ConfigError` for a target that cannot be audited, `Unavailable` where a store or the
    gateway is out of reach. Cancelled, it puts back what was changed and returns what it has seen,
    as not complete, or is cancelled if that is nothing.
    """
    began, monotonic = time.time_ns(), time.monotonic()
    seen = _Seen()
    async with AsyncExitStack() as stack:
        if target.reopen is not None:
            stack.push_async_callback(target.reopen)
        media = []
        for location in target.stores:
            medium = await asyncio.to_thread(open_medium, location)
            stack.callback(medium.close)
            media.append(medium)
        maker = PromptMaker(settings.seed, began, settings.canary_tokens)
        dice = random.Random(f"store dice/{settings.seed}")  # noqa: S311 - no secret
        run = _Run(target, settings, progress, media, maker, dice, stack)
        try:
            await _audit(run, seen)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not seen.checks:
                raise
            task.uncancel()
            seen.complete = False
    return _result(target, settings, seen, began, time.monotonic() - monotonic)


@dataclass(frozen=True, slots=True, repr=False)
class _Run:
    target: StoreTarget
    settings: StoreSettings
    progress: Progress
    media: Sequence[Medium]
    maker: PromptMaker
    dice: random.Random
    stack: AsyncExitStack


async def _audit(run: _Run, seen: _Seen) -> None:
    target, settings, steps = run.target, run.settings, len(run.media) + 4
    asker: Asker | None = None
    async with Listener(target.events) as listener:
        if target.callers is not None:
            run.progress("placing known prompts", 0, steps)
            asker = await run.stack.enter_async_context(Asker(target.callers))
            two = bool(target.callers.other_key)
            seen.canaries = await place_canaries(asker, run.media, run.maker, settings, two=two)
        tickets = await target.tickets() if target.tickets else ()
        needles, guesses, served = _sought(run, seen.canaries, tickets)
        await _read_stores(run, seen, needles, guesses, served)
        run.progress("reading logs, metrics and events", steps - 2, steps)
        hidden = Hidden(needles, Words(target.names))
        seen.checks.append(await logs(target.logs, hidden))
        seen.checks.append(await metrics(target.metrics, hidden))
    ids = _ids(seen.canaries)
    seen.checks.append(events(target.events, listener.payloads, hidden, ids))
    why = untested(target, settings, seen.canaries)
    if why or asker is None or seen.canaries is None:
        seen.not_tested.append(NotTested(f"{NAME}: {TITLE.lower()}", why))
        return
    made = seen.tampered
    try:
        await tamper_all(
            made,
            asker,
            run.media,
            seen.canaries,
            maker=run.maker,
            target=target,
            settings=settings,
            dice=run.dice,
            progress=run.progress,
        )
    except Unavailable as error:
        made.checks.append(Check(f"{NAME}.whole", TITLE, Verdict.BLIND, f"cut short: {error}"))
    seen.checks += made.checks


def _sought(
    run: _Run, canaries: Canaries | None, tickets: Sequence[str]
) -> tuple[list[Needle], Guesses, int]:
    """What is looked for in contents, and in names; and how many tickets served the latter."""
    target = run.target
    needles = [
        needle for secret in target.secrets for needle in spellings(secret.kind, secret.content)
    ]
    needles += of_words(NAME_OF_OURS, target.names)
    prompts: list[Sequence[int]] = []
    lengths: set[int] = set()
    if canaries is not None:
        needles += of_words("text of a prompt", canaries.words[:_WORDS_MAX])
        prompts = [one.prompt for one in canaries.all if not isinstance(one.prompt, str)]
        for ids in prompts:
            needles += of_token_ids("token ids of a prompt", ids)
        lengths = {
            one.size_bytes - OVERHEAD_BYTES
            for placed in canaries.all
            for found in placed.objects.values()
            for one in found
        }
    guesses = public_guesses(prompts, target.names)
    scope_guesses(guesses, target.scopes)
    return needles, guesses, insider_guesses(guesses, prompts, tickets, lengths)


def _ids(canaries: Canaries | None) -> Sequence[int]:
    prompt = canaries.ids.prompt if canaries is not None else ""
    return () if isinstance(prompt, str) else prompt


async def _read_stores(
    run: _Run, seen: _Seen, needles: Sequence[Needle], guesses: Guesses, served: int
) -> None:
    if not run.media:
        return
    settings, canaries = run.settings, seen.canaries
    wanted = Wanted(
        needles,
        Words(run.target.names),
        guesses,
        settings.objects_max,
        settings.bytes_max,
        time.time(),
    )
    for number, medium in enumerate(run.media):
        run.progress(f"reading {medium.kind}", number + 1, len(run.media) + 4)
        first = canaries.names(medium.place) if canaries is not None else set()
        seen.stores.append(await asyncio.to_thread(examine, medium, wanted, first, run.dice))
    planted = ScratchMedium.planted(
        needles, guesses, run.target.names, dice=run.dice, now=wanted.now
    )
    scratch = await asyncio.to_thread(examine, planted, wanted, (), run.dice)
    stores = seen.stores
    seen.checks += [
        plaintext(stores, scratch, len(needles)),
        sealed(stores, scratch),
        names(stores, scratch, len(guesses.made), served),
        await two_scopes(run.media, canaries),
        sizes(stores),
        modes(stores, scratch),
        leftovers(stores, scratch),
        learned(stores),
    ]


def _result(
    target: StoreTarget, settings: StoreSettings, seen: _Seen, began: int, seconds: float
) -> AuditResult:
    stores = seen.stores
    figures: dict[str, Plain] = {
        "objects": sum(len(one.objects) for one in stores),
        "bytes": sum(one.size_bytes for one in stores),
        "plaintext_hits": sum(one.hits.total() + one.judge.readable for one in stores),
        "names_confirmed": sum(one.confirmed.total() + one.named for one in stores),
        "tampers": seen.tampered.tried,
        "tampers_served": seen.tampered.served,
    }
    used: dict[str, Plain] = {**asdict(settings), "canaries": began}
    reading = [
        NotTested(f"the bodies of {len(one.objects) - one.read} objects in {one.place}", "a sample")
        for one in stores
        if one.read + one.vanished < len(one.objects)
    ]
    return AuditResult(
        audit="store",
        target=", ".join(one.place for one in stores) or "logs, metrics and events",
        seed=settings.seed,
        started_at=began // 10**9,
        seconds=seconds,
        checks=tuple(seen.checks),
        not_tested=(*seen.not_tested, *reading, *_left_out(target), *NEVER),
        figures=figures,
        settings=used,
        versions={
            "scopekv": __version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        },
        complete=seen.complete,
    )


def _left_out(target: StoreTarget) -> list[NotTested]:
    """What the target lacks, and what follows."""
    found = []
    if target.callers is None:
        found.append(
            NotTested("known prompts", "no gateway and key: only patterns were looked for")
        )
    if not target.scopes:
        found.append(NotTested("folders that name a known scope", "no scopes were named"))
    if target.tickets is None:
        found.append(NotTested("names that a stolen engine could compute", "no tickets at hand"))
    if not target.secrets:
        found.append(NotTested("the deployment's own keys", "none were given to look for"))
    return found
