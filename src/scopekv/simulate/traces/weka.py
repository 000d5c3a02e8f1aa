"""Conversations of a coding agent, one a line (kv-cache-tester, as re-encoded for this project).

    {"id", "block_size", "tool_tokens", "system_tokens", "models", "requests":
        [[seconds, input, output, subagent, model, think_seconds, [start, length, start, ...]]]}

Block ids are local to a conversation; here they get its number in front. What the file has no id
for, the tokens after the last full block, gets an id that never comes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scopekv.errors import Misuse
from scopekv.simulate.traces.arrivals import Arrivals, interleave
from scopekv.simulate.traces.lines import Lines, read_object, take, whole
from scopekv.simulate.traces.request import TracedRequest

_LOCAL_BITS = 32  # local ids and, from half of it on, the tails
_TAIL = 1 << (_LOCAL_BITS - 1)
_TOOL_BLOCKS_MAX = 1 << 20
_SECONDS_MAX = 1e10


def read_weka(lines: Lines, arrivals: Arrivals, *, share_tools: bool) -> Iterator[TracedRequest]:
    """Requests of all conversations in order of time.

    `share_tools`: conversations with as many tool tokens have the same tool definitions. That is
    an inference: the data does not say it.
    """
    return interleave(_conversations(lines, share_tools), arrivals)


def _conversations(lines: Lines, share_tools: bool) -> Iterator[Iterator[TracedRequest]]:
    size = 0
    for session, text in enumerate(lines):
        fields = read_object(lines, text)
        own = whole(lines, fields.get("block_size"), "block_size", 1)
        size = size or own
        if own != size:
            raise lines.wrong(f"has blocks of {own} tokens, those above of {size}")
        try:
            requests = sorted(take(lines, fields, "requests", list), key=lambda each: each[0])
            made = _Conversation(lines, fields, session, requests, share_tools)
            if requests:
                yield iter(made)
        except (TypeError, LookupError) as error:
            raise lines.wrong("has a request that is not [seconds, input, ...]") from error


class _Conversation:
    """One line, decoded; its requests are made as they are asked for."""

    def __init__(
        self,
        lines: Lines,
        fields: dict[str, Any],
        session: int,
        requests: list[Any],
        share_tools: bool,
    ) -> None:
        self._place = f"{lines.path}, line {lines.number}"
        self._block_tokens = whole(lines, fields.get("block_size"), "block_size", 1)
        self._tools = whole(lines, fields.get("tool_tokens"), "tool_tokens")
        self._system = whole(lines, fields.get("system_tokens"), "system_tokens")
        self._base, self._session = session << _LOCAL_BITS, session
        self._requests, self._share_tools = requests, share_tools
        if self._tools >= _TOOL_BLOCKS_MAX:
            raise lines.wrong("has tool_tokens out of bounds")

    def __iter__(self) -> Iterator[TracedRequest]:
        for number, request in enumerate(self._requests):
            try:
                at, size, output, _, _, _, runs = request
                if not 0 <= at < _SECONDS_MAX or not type(size) is type(output) is int:
                    raise Misuse("its time is from 0 s, its lengths are whole numbers")
                yield TracedRequest(
                    at_seconds=float(at),
                    input_tokens=size,
                    output_tokens=output,
                    block_tokens=self._block_tokens,
                    block_ids=self._ids(size, runs, number),
                    session=self._session,
                    tools_tokens=min(self._tools, size),
                    system_tokens=min(self._system, max(0, size - self._tools)),
                )
            except (Misuse, TypeError, ValueError) as error:
                raise Misuse(f"{self._place}: request {number} is wrong: {error}") from error

    def _ids(self, size: int, runs: list[int], number: int) -> list[int]:
        ids: list[int] = []
        if sum(runs[1::2]) > -(-size // self._block_tokens) or min(runs, default=0) < 0:
            raise Misuse("its ids are more than its blocks, or below 0")
        for start, length in zip(runs[::2], runs[1::2], strict=True):
            ids += range(self._base + start, self._base + start + length)
        if len(ids) * self._block_tokens < size:
            ids.append(self._base + _TAIL + number)
        tools = self._tools // self._block_tokens
        if self._share_tools and ids[:tools] == list(range(self._base + 1, self._base + 1 + tools)):
            ids[:tools] = range(
                -self._tools * _TOOL_BLOCKS_MAX, tools - self._tools * _TOOL_BLOCKS_MAX
            )
        return ids
