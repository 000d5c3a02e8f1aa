"""The same text under two scopes: two objects that have nothing in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from scopekv.audit.results import Check, Severity
from scopekv.audit.store.examining import OBJECT_BYTES_MAX
from scopekv.audit.store.judging import judged, not_tested
from scopekv.audit.store.media import Found, Medium
from scopekv.audit.store.placing import Canaries
from scopekv.audit.store.randomness import body_of, nonce_of

NAME, TITLE = "store.scopes", "The same text under two scopes has neither equal bytes nor names"
_RUN_BYTES = 16


async def two_scopes(media: Sequence[Medium], canaries: Canaries | None) -> Check:
    """Compare the first caller's objects of a prompt with the second's of the same prompt."""
    if canaries is None or canaries.again is None or canaries.fresh is None:
        return not_tested(NAME, TITLE, "needs a gateway and keys of two organisations")
    again, fresh = canaries.again, canaries.fresh
    broken, compared = [], 0
    if again.told.cached_tokens:
        broken.append(f"the second caller read {again.told.cached_tokens} tokens of the first one")
    for medium in media:
        mine = canaries.ids.objects.get(medium.place, ())
        theirs = again.objects.get(medium.place, ())
        if mine and not theirs and fresh.objects.get(medium.place):
            broken.append(f"{medium.kind}: one object serves both scopes")
        shared, runs = await asyncio.to_thread(_compare, medium, mine, theirs)
        compared += len(mine) * len(theirs)
        if shared:
            broken.append(f"{medium.kind}: {shared} equal names in two folders")
        if runs:
            broken.append(f"{medium.kind}: {runs} equal runs of {_RUN_BYTES} bytes")
    return judged(
        NAME,
        TITLE,
        broken=broken,
        held="no equal name, no equal run of bytes, no equal nonce",
        control="every store got objects of both callers",
        control_ok=canaries.ids.everywhere and again.everywhere,
        tried=compared,
        severity=Severity.HIGH,
        evidence={"compared_pairs": compared, "objects": _counts(canaries)},
    )


def _compare(medium: Medium, mine: Sequence[Found], theirs: Sequence[Found]) -> tuple[int, int]:
    """Equal names, and equal runs of bytes at the same or another place. Blocks."""
    names = {one.leaf for one in mine} & {one.leaf for one in theirs}
    known: set[bytes] = set()
    for one in mine:
        known.update(_runs(medium.read(one.name, OBJECT_BYTES_MAX) or b""))
    equal = 0
    for one in theirs:
        equal += sum(run in known for run in _runs(medium.read(one.name, OBJECT_BYTES_MAX) or b""))
    return len(names), equal


def _runs(content: bytes) -> set[bytes]:
    body, nonce = body_of(content), nonce_of(content)
    whole = range(0, len(body) - _RUN_BYTES + 1, _RUN_BYTES)
    runs = {body[start : start + _RUN_BYTES] for start in whole}
    return runs | {nonce} if nonce else runs


def _counts(canaries: Canaries) -> Mapping[str, int]:
    return {
        "first_caller": sum(map(len, canaries.ids.objects.values())),
        "second_caller": sum(map(len, canaries.again.objects.values())) if canaries.again else 0,
    }
