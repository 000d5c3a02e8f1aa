"""Listening at an engine's event bus as anybody could who reaches it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

from scopekv.adapters.kv_events import check_endpoint
from scopekv.audit.results import Check, Severity
from scopekv.audit.store.judging import judged, not_tested, plural
from scopekv.audit.store.needles import NAME_OF_OURS, WINDOW
from scopekv.audit.store.telling import Hidden
from scopekv.errors import ConfigError

NAME, TITLE = (
    "store.events",
    "Events name nobody, hold no salt and no ticket, and reach nobody else",
)
PAYLOAD_BYTES_MAX = 64 << 20
_PLAIN_CHARS = 24  # of an event's own words; a tag has 64 hex digits, `isolated-` 32 and 9 more


class Listener:
    """Collects what is published from `__aenter__` to `__aexit__`, up to a limit."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.payloads: list[bytes] = []
        self.cut = False
        self._endpoints = endpoints
        self._context: zmq.asyncio.Context | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._endpoints:
            self._context = zmq.asyncio.Context()
        for endpoint in self._endpoints:
            assert self._context is not None  # noqa: S101  for the type checker
            socket = self._context.socket(zmq.SUB)
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.SUBSCRIBE, b"")
            try:
                socket.connect(endpoint)
            except zmq.ZMQError as error:
                raise ConfigError(f"the event endpoint {endpoint[:200]!r}: {error}") from None
            self._tasks.append(asyncio.create_task(self._listen(socket)))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            if sum(map(len, self.payloads)) > PAYLOAD_BYTES_MAX:
                self.cut = True
                return
            self.payloads.append(frames[-1])


def events(
    endpoints: Sequence[str], payloads: Sequence[bytes], hidden: Hidden, token_ids: Sequence[int]
) -> Check:
    """Judge what came. Token ids in vLLM's own events are told, and no fault of a closed bus."""
    if not endpoints:
        return not_tested(NAME, TITLE, "no event endpoint was named", Severity.MEDIUM)
    broken = [f"{plural(count, 'bus')} that others can reach" for count in _open(endpoints)]
    found: Counter[str] = Counter()
    tags, with_ids = set(), 0
    for payload in payloads:
        strings, ids = _contents(payload)
        with_ids += _holds(ids, token_ids[:WINDOW])
        tags |= {text for text in strings if len(text) == 64}
        found.update(hidden.within(payload).keys())
        for text in strings:
            long = len(text) > _PLAIN_CHARS and len(text) != 64
            found["a long text"] += long and not text.startswith("isolated-")
            found[NAME_OF_OURS] += bool(hidden.words.within(text))
    ids_apart = {what: count for what, count in found.items() if count and "token ids" not in what}
    broken += [f"{what} stood in {plural(count, 'batch')}" for what, count in ids_apart.items()]
    return judged(
        NAME,
        TITLE,
        broken=broken,
        held=f"{plural(len(payloads), 'batch')} with opaque tags alone"
        + (", and token ids, as vLLM has them" if with_ids else ""),
        control="events of the audit's own prompts came",
        control_ok=bool(payloads),
        tried=len(payloads),
        severity=Severity.MEDIUM,
        evidence={"batches": len(payloads), "tags": len(tags), "batches_with_our_ids": with_ids},
    )


def _open(endpoints: Sequence[str]) -> list[int]:
    """One number if any of them can be listened at by others: how many."""
    count = 0
    for endpoint in endpoints:
        try:
            check_endpoint(endpoint)
        except ConfigError:
            count += 1
    return [count] if count else []


def _contents(payload: bytes) -> tuple[set[str], list[int]]:
    """Every string, and every list of numbers in a row, anywhere in a batch."""
    strings: set[str] = set()
    numbers: list[int] = []
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        _walk(msgspec.msgpack.decode(payload), strings, numbers)
    return strings, numbers


def _walk(node: Any, strings: set[str], numbers: list[int]) -> None:
    if isinstance(node, str):
        strings.add(node)
    elif isinstance(node, int):
        numbers.append(node)
    elif isinstance(node, dict):
        for item in (*node.keys(), *node.values()):
            _walk(item, strings, numbers)
    elif isinstance(node, (list, tuple)):
        for item in node:
            _walk(item, strings, numbers)


def _holds(numbers: Sequence[int], window: Sequence[int]) -> bool:
    """Whether these numbers stand there in a row."""
    size = len(window)
    wanted = list(window)
    return bool(size) and any(
        list(numbers[at : at + size]) == wanted for at in range(len(numbers) - size + 1)
    )
