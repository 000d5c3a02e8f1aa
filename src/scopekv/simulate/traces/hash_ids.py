"""JSON lines with `hash_ids`: Mooncake's traces (FAST'25), and what others write in its form.

    {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}
    and, where known, "block_size", "session", "user", "org"              (`naming`)
    {"chat_id", "parent_chat_id", "timestamp": seconds, ...}              Qwen-Bailian, 16 tokens

Ids are whole numbers or texts, of each block or of the full ones alone. An id names all tokens up
to its block's end; where ids name single blocks, prefixes get names of their own (`chain`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

from scopekv.errors import Misuse
from scopekv.simulate.traces.lines import Lines, read_object, take, whole
from scopekv.simulate.traces.naming import Senders, Sessions
from scopekv.simulate.traces.ordering import by_time
from scopekv.simulate.traces.request import TracedRequest

BLOCK_TOKENS = 512
_SIZES = tuple(1 << power for power in range(3, 15))
_LINES_FIRST = 1000
_CHECKED_MAX = 1 << 18  # ids whose place in a prefix is remembered
_TAIL = 1 << 80  # no id of a trace is as low as minus this
_MASK = (1 << 64) - 1


class SingleBlocks(Misuse):
    """The ids name single blocks, not whole prefixes: read the trace with `chain`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`block_tokens` to an id; timestamps count so many to a second; `chain`: see above."""

    block_tokens: int = BLOCK_TOKENS
    per_second: int = 1000
    chain: bool = False


def layout_of(lines: Lines) -> Layout:
    """What the first lines say: `block_size`, else the size that lengths and ids agree on.

    Of several such sizes it is 512, else one with which the last, partial block has an id.
    """
    first: dict[str, Any] = {}
    every, full, named = set(_SIZES), set(_SIZES), False
    for text in islice(lines, _LINES_FIRST):
        fields = read_object(lines, text)
        first = first or fields
        length = whole(lines, fields.get("input_length"), "input_length", 1)
        count = len(take(lines, fields, "hash_ids", list))
        if first.get("block_size") is not None:
            full, named = {whole(lines, first["block_size"], "block_size", 1)}, True
            break
        named = named or count > 0
        full = {size for size in full if count in (length // size, -(-length // size))}
        every = {size for size in every & full if count == -(-length // size)}
    size = next((each for each in (BLOCK_TOKENS, *sorted(every), *sorted(full)) if each in full), 0)
    size = size if named else 0
    if {"chat_id", "parent_chat_id"} <= first.keys():
        return Layout(size or 16, 1, chain=True)
    return Layout(size or BLOCK_TOKENS)


def read_hash_ids(lines: Lines, layout: Layout) -> Iterator[TracedRequest]:
    """Requests in order of time, the first at 0 s. Raises Misuse for a line that is none.

    Raises SingleBlocks where ids that should name prefixes follow different ids.
    """
    for at, number, one in by_time(lines, _requests(lines, layout)):
        ids, size, length, output, session, user, org = one
        if len(ids) * size < length:
            ids = [*ids, -_TAIL - number]
        seconds = at / layout.per_second
        yield TracedRequest(seconds, length, output, size, ids, session, user=user, org=org)


def _requests(lines: Lines, layout: Layout) -> Iterator[tuple[float, Any]]:
    sessions, senders, names = Sessions(), Senders(), _Names(lines, layout.chain)
    size = layout.block_tokens
    for text in lines:
        fields = read_object(lines, text)
        at = take(lines, fields, "timestamp", (int, float))
        if not -(1 << 63) < at < 1 << 63 or math.isnan(at):
            raise lines.wrong("has a 'timestamp' out of all bounds")
        length = whole(lines, fields.get("input_length"), "input_length", 1)
        output = whole(lines, fields.get("output_length"), "output_length")
        ids = names.of(take(lines, fields, "hash_ids", list))
        said = fields.get("block_size")
        if said is not None and whole(lines, said, "block_size", 1) != size:
            raise lines.wrong(f"has another block_size than the first, {size}: one for a trace")
        if len(ids) not in (length // size, -(-length // size)):
            raise lines.wrong(
                f"has {len(ids)} hash_ids for {length} tokens; in blocks of {size} they are "
                f'{-(-length // size)}. If blocks have another size: write "block_size" into the '
                "first line"
            )
        found = (ids, size, length, output, sessions.of(lines, fields), *senders.of(lines, fields))
        yield at, found


class _Names:
    """The names of a prompt's prefixes."""

    def __init__(self, lines: Lines, chain: bool) -> None:
        self._lines, self._chain = lines, chain
        self._before: dict[int, int | None] = {}  # an id: the one before it

    def of(self, ids: list[Any]) -> Sequence[int]:
        if not all(type(one) is int for one in ids):
            ids = [self._number(one) for one in ids]
        if self._chain:
            return _chained(ids)
        before, last = self._before, None
        for one in ids:
            if before.get(one, last) != last:
                raise self._single()
            if len(before) < _CHECKED_MAX:
                before[one] = last
            last = one
        if len(set(ids)) != len(ids):
            raise self._single()
        return ids

    def _number(self, one: object) -> int:
        if type(one) is int:
            return one
        if not isinstance(one, str):
            raise self._lines.wrong("has hash_ids that are no whole numbers and no texts")
        return int.from_bytes(blake2b(one.encode(), digest_size=8).digest(), "big")

    def _single(self) -> SingleBlocks:
        wrong = self._lines.wrong("has an id after another one than before: ids of single blocks")
        return SingleBlocks(str(wrong))


def _chained(ids: Sequence[int]) -> list[int]:
    """A name for each prefix: 64 bits of (the name before, id), mixed as SplitMix64 does."""
    name, names = 0, []
    for one in ids:
        name = (name * 0x9E3779B97F4A7C15 + one + 1) & _MASK
        name = ((name ^ name >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        name = ((name ^ name >> 27) * 0x94D049BB133111EB) & _MASK
        name ^= name >> 31
        names.append(name)
    return names
