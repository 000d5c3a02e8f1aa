"""What asks the routers: prompts of an exact size, one call at a time, and many at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import cast

from scopekv.engines.model import MODEL_NAME

WORDS = "the of and to in is that for it as was with be by on not he his but at are this have from"


class Bodies:
    """Chats of an exact size in bytes, each new from its first word on."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._words = WORDS.split()
        self._serial = itertools.count(self._dice.randrange(10**6))
        text = " ".join(self._dice.choices(self._words, k=12_000))
        self._text = text

    def make(self, size_bytes: int, stream: bool) -> bytes:
        head = f"{next(self._serial)} {self._dice.getrandbits(64):x} "
        start = self._dice.randrange(200)
        room = size_bytes - len(_chat(head, stream))
        return _chat(head + self._text[start : start + room], stream)


def _chat(text: str, stream: bool) -> bytes:
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 64, "stream": stream}
    return json.dumps(body, separators=(",", ":")).encode()


class Answer:
    """Follows one HTTP/1.1 answer: is its body there, is it whole? Raises where it is no 200."""

    __slots__ = ("_data", "_end", "begun", "whole")

    def __init__(self) -> None:
        self._data = bytearray()
        self._end: int | None = None  # of a body with a length
        self.begun = self.whole = False

    def feed(self, part: bytes) -> None:
        self._data += part
        if not self.begun:
            head_end = self._data.find(b"\r\n\r\n")
            if head_end < 0 or len(self._data) == head_end + 4:
                return
            head = bytes(self._data[:head_end]).lower()
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(f"refused: {bytes(self._data[:300])!r}")
            self.begun = True
            _, found, length = head.partition(b"content-length:")
            if found:
                self._end = head_end + 4 + int(length.split(b"\r\n")[0])
        if self._end is not None:
            self.whole = len(self._data) >= self._end
        else:
            self.whole = self._data.endswith(b"0\r\n\r\n")


def call(connection: socket.socket, data: bytes) -> tuple[float, float]:
    """Milliseconds to the first byte of the body, and to the last."""
    answer, first = Answer(), 0.0
    began = time.perf_counter()
    connection.sendall(data)
    while not answer.whole:
        part = connection.recv(262_144)
        if not part:
            raise RuntimeError("the connection ended in mid-answer")
        answer.feed(part)
        if answer.begun and not first:
            first = time.perf_counter() - began
    return first * 1e3, (time.perf_counter() - began) * 1e3


class Client(asyncio.Protocol):
    """One closed-loop connection."""

    def __init__(self, next_request: Callable[[], bytes | None]) -> None:
        self._next, self._answer = next_request, Answer()
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            self._answer.feed(data)
        except RuntimeError as error:
            self._finish(error)
            return
        if self._answer.whole:
            self._answer = Answer()
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(error or ConnectionError("the connection ended in mid-answer"))

    def _send(self) -> None:
        data = self._next()
        if data is None:
            self._finish(None)
        else:
            self._transport.write(data)

    def _finish(self, error: Exception | None) -> None:
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
            self._transport.abort()


async def closed_loop(port: int, connections: int, requests: Iterator[bytes]) -> int:
    """Send these requests, so many at a time. Returns how many were answered."""
    loop, sent = asyncio.get_running_loop(), itertools.count()

    def next_request() -> bytes | None:
        data = next(requests, None)
        if data is not None:
            next(sent)
        return data

    made = [
        await loop.create_connection(lambda: Client(next_request), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    return next(sent)
