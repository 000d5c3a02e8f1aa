"""What the stores' contents and names say: secrets in plain text, bytes that are not random,
names that confirm a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scopekv.audit.results import Check, Severity
from scopekv.audit.store.examining import Examined
from scopekv.audit.store.judging import judged, not_tested, plural
from scopekv.audit.store.patterns import EXAMPLES, PATTERNS
from scopekv.audit.store.randomness import DEVIATE_MAX


def plaintext(stores: Sequence[Examined], scratch: Examined, needles: int) -> Check:
    """No secret in any spelling, and none of our formats, in content or name."""
    hits: Counter[str] = sum((one.hits for one in stores), Counter())
    read = sum(one.read for one in stores)
    return judged(
        "store.plaintext",
        "No store holds text, token ids, names, keys, tickets or salts that can be read",
        broken=[f"{what} stood in {plural(count, 'object')}" for what, count in hits.items()],
        held=f"none of {needles} spellings, and none of {len(PATTERNS)} formats, stood in "
        f"{plural(read, 'object')} or in any name",
        control="the same search found each that was planted in a scratch store, and every store "
        "had objects to read",
        control_ok=scratch.hits.total() >= needles + len(EXAMPLES) and _all_read(stores),
        tried=(needles + len(PATTERNS)) * read,
        evidence={"hits": dict(hits), "searched_bytes": sum(one.read_bytes for one in stores)},
    )


def sealed(stores: Sequence[Examined], scratch: Examined) -> Check:
    """Bodies are as good as random, and none repeats."""
    broken = []
    for one in stores:
        judge = one.judge
        if judge.readable:
            broken.append(
                f"{one.kind}: {plural(judge.readable, 'object')} of {judge.judged} not random"
            )
        if judge.pooled_deviate > DEVIATE_MAX:
            broken.append(f"{one.kind}: byte values of all objects together are not even")
        if judge.repeats:
            broken.append(f"{one.kind}: {plural(judge.repeats, 'run')} of 16 bytes came twice")
        if judge.nonces_twice:
            broken.append(f"{one.kind}: {plural(judge.nonces_twice, 'nonce')} served twice")
    found = scratch.judge
    return judged(
        "store.sealed",
        "Objects cannot be told from random bytes, and no two hold the same",
        broken=broken,
        held=f"{plural(sum(one.judge.judged for one in stores), 'object')} looked random",
        control="plain numbers and a repeated body in a scratch store were told from random ones, "
        "and every store had objects long enough",
        control_ok=found.readable >= 2
        and found.repeats > 0
        and all(one.judge.judged for one in stores),
        tried=sum(one.judge.judged for one in stores),
        evidence={one.place: _randomness(one) for one in stores},
    )


def _randomness(one: Examined) -> dict[str, float]:
    return {
        "judged": one.judge.judged,
        "too_short": one.judge.too_short,
        "worst_deviate": round(one.judge.worst_deviate, 2),
        "pooled_deviate": round(one.judge.pooled_deviate, 2),
        "least_compressed_ratio": round(min(one.judge.least_ratio, 1.0), 4),
        "repeats": one.judge.repeats,
    }


def names(
    stores: Sequence[Examined], scratch: Examined, guesses: int, insider_tickets: int
) -> Check:
    """No listing confirms a guess."""
    title = "Names are keyed: who knows a prompt word for word cannot find it in a listing"
    named = sum(one.named for one in stores)
    if not guesses and not named:
        return not_tested(
            "store.names", title, "no known prompt to guess names of", Severity.MEDIUM
        )
    confirmed: Counter[str] = sum((one.confirmed for one in stores), Counter())
    broken = [
        f"{plural(count, 'name')} could be computed: {how}" for how, count in confirmed.items()
    ]
    if named:
        broken.append(f"{plural(named, 'name')} held a name of the deployment")
    listed = sum(len(one.objects) for one in stores)
    whose = "an outsider's and an engine's" if insider_tickets else "an outsider's"
    return judged(
        "store.names",
        title,
        broken=broken,
        held=f"none of {guesses:,} guesses, {whose}, stood in {plural(listed, 'name')}",
        control="a name made of a guess was found in a scratch store, and the guessed prompts "
        "were in the stores",
        control_ok=bool(scratch.confirmed) and all(one.objects for one in stores),
        tried=guesses,
        severity=Severity.MEDIUM,
        evidence={"confirmed": dict(confirmed), "tickets_used": insider_tickets},
    )


def _all_read(stores: Sequence[Examined]) -> bool:
    return bool(stores) and all(one.read for one in stores)
