"""vLLM's KV events over ZeroMQ: the subscriber, and the decoder that leaves token ids at the door.

    message := topic, sequence number (8 bytes, big endian), MessagePack [time, [event, ...], rank]

The bus is not authenticated, and its events carry prompts. So it is taken from a socket file in a
folder that is ours alone, or from this machine's loopback, and from nowhere else (case I10).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from scopekv.core.events import Batch, Cleared, Event, Removed, Stored, medium_of
from scopekv.errors import ConfigError, Corrupt

SOCKET_PATH_MAX = 107  # bytes of a socket's name in Linux, without the closing NUL
QUEUE_MAX = 100_000  # batches; what comes beyond is lost, and seen as a gap
_MASK = (1 << 64) - 1
OnBatch = Callable[[Batch], None]


class _Event(msgspec.Struct, tag=True, gc=False):
    """What is not named in a subclass is skipped while parsing: no object is made of it."""


class _BlockStored(_Event, tag="BlockStored"):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _BlockRemoved(_Event, tag="BlockRemoved"):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _AllBlocksCleared(_Event, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_BlockStored | _BlockRemoved | _AllBlocksCleared]


_DECODER = msgspec.msgpack.Decoder(_Batch)


def decode_batch(sequence: int, payload: bytes) -> Batch:
    """Read one message's payload. Raises `Corrupt`, whose message holds nothing of it.

    Cost: about 2 µs for a block of 32 tokens.
    """
    try:
        read = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Corrupt("a KV event batch is not what vLLM 0.31 to 0.33 publishes") from None
    events = tuple(event for one in read.events if (event := _event(one)) is not None)
    return Batch(sequence, read.ts, events)


def _event(read: _BlockStored | _BlockRemoved | _AllBlocksCleared) -> Event | None:
    """None for a medium that is no place of ours."""
    if isinstance(read, _AllBlocksCleared):
        return Cleared()
    medium = medium_of(read.medium)
    if medium is None:
        return None
    hashes: list[Any] = read.block_hashes
    if hashes and not all(type(one) is int for one in hashes):
        hashes = [_short(one) for one in hashes]
    kind = Stored if isinstance(read, _BlockStored) else Removed
    return kind(medium, hashes)


def _short(published: int | bytes) -> int:
    """An engine with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 publishes whole hashes."""
    return published if isinstance(published, int) else int.from_bytes(published, "big") & _MASK


def check_endpoint(endpoint: str) -> str:
    """Return the endpoint if nobody else can listen there; else raise `ConfigError`."""
    scheme, _, rest = endpoint.partition("://")
    if scheme == "ipc" and rest.startswith("/"):
        _check_socket(Path(rest))
        return endpoint
    found = re.fullmatch(r"\[?([0-9a-zA-Z.:]+?)\]?:([0-9]{1,5})", rest) if scheme == "tcp" else None
    if found is not None and _is_loopback(found[1]):
        return endpoint
    raise ConfigError(
        f"the KV event endpoint {endpoint[:200]!r} is neither ipc:///path nor tcp:// on a loopback "
        "address. Its events hold prompts and are not authenticated: start the engine with an ipc "
        "endpoint in a folder of mode 0700, or bring it to 127.0.0.1 through a tunnel of your own."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_socket(path: Path) -> None:
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise ConfigError(
            f"the KV event socket {path} has a name of more than {SOCKET_PATH_MAX} bytes, which "
            "Linux does not take. Use a shorter data directory."
        )
    try:
        found = path.parent.stat()
    except OSError as error:
        raise ConfigError(
            f"the folder of the KV event socket {path} cannot be read: {error.strerror}"
        ) from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"others on this machine can reach the KV event socket in {path.parent}, and its "
            f"events hold prompts. Make the folder yours alone: chmod 700 {path.parent}"
        )


class KVEventSubscriber:
    """One engine's events. Use: `start`, then `stop`; once each, on one event loop.

    `on_batch` gets every batch in the order of arrival; `on_lost` is called when the connection
    breaks, or when a message cannot be read: batches may be missing from then on. ZeroMQ connects
    again by itself.
    """

    def __init__(self, endpoint: str, on_batch: OnBatch, on_lost: Callable[[], None]) -> None:
        """Raises `ConfigError` for an endpoint that others can listen at."""
        self.endpoint = check_endpoint(endpoint)
        self.connected = asyncio.Event()
        self._on_batch, self._on_lost = on_batch, on_lost
        self._context: zmq.asyncio.Context | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Connect, now or as soon as somebody publishes there, and listen from then on."""
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.SUB)
        socket.set(zmq.RCVHWM, QUEUE_MAX)
        socket.set(zmq.RECONNECT_IVL, 20)
        socket.set(zmq.RECONNECT_IVL_MAX, 200)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.SUBSCRIBE, b"")
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        socket.connect(self.endpoint)
        self._tasks = [
            asyncio.create_task(self._receive(socket)),
            asyncio.create_task(self._watch(monitor)),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    async def _receive(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            try:
                if len(frames) != 3 or len(frames[1]) != 8:
                    raise Corrupt("a KV event message has three parts")
                batch = decode_batch(int.from_bytes(frames[1], "big"), frames[2])
            except Corrupt:
                self._on_lost()
                continue
            self._on_batch(batch)

    async def _watch(self, monitor: zmq.asyncio.Socket) -> None:
        with contextlib.closing(monitor):
            while True:
                event = parse_monitor_message(await monitor.recv_multipart())["event"]
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self.connected.set()
                else:
                    self.connected.clear()
                # After both: batches from before a connection stands are not delivered.
                self._on_lost()
