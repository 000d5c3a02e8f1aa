"""Streamed answers: their events stay whole, and a client that leaves ends them."""

import asyncio
import json

import pytest

from scopekv.gateway.http import Reply, Request
from scopekv.gateway.http.reply import EVENT_BYTES_MAX
from tests.unit.gateway.http.sockets import (
    connected,
    on_uvloop,
    post,
    read_reply,
    serving,
    until,
)

EVENTS = [(b"content-type", b"text/event-stream")]


@pytest.mark.parametrize("partial", [b"", b'data: {"id', b'data: {"id": 1}\n'])
@on_uvloop
async def test_a_stream_that_fails_ends_in_one_error_event_that_parses(partial: bytes) -> None:
    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, EVENTS)
        await reply.write(b'data: {"id": 0}\n\n' + partial)
        raise RuntimeError("instance died")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        status, _, body = await read_reply(reader)
        assert await reader.read() == b""
    events = [json.loads(event.removeprefix(b"data: ")) for event in body.split(b"\n\n")[:-1]]
    assert status == 200
    assert events[0] == {"id": 0}
    assert events[1]["error"]["code"] == "internal_error"
    assert len(events) == 2


@on_uvloop
async def test_split_events_arrive_whole_and_unchanged() -> None:
    stream = b"data: a\n\ndata: b\r\n\r\n: comment\n\ndata: [DONE]\n\ntail"

    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, EVENTS)
        for byte in stream:
            await reply.write(bytes([byte]))
        await reply.finish()

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        assert (await read_reply(reader))[2] == stream


class Wire:
    """A connection that keeps what each write gave it."""

    gone = closes = False
    date = b"date: then\r\n"

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    async def drain(self) -> None:
        pass


@on_uvloop
async def test_what_is_at_hand_goes_out_in_one_write_with_the_head_and_with_the_end() -> None:
    request, wire = Request("POST", "/", "", [], b""), Wire()
    reply = Reply(wire, request)
    await reply.start(200, EVENTS, b"data: 1\n\ndata: ")
    await reply.write(b"2")
    await reply.finish(b"\n\n")
    head, end = wire.writes
    assert head.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    assert end == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"


@on_uvloop
async def test_another_stream_that_fails_is_cut_so_that_it_does_not_look_complete() -> None:
    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, [(b"content-type", b"application/json")])
        await reply.write(b"[1,")
        raise RuntimeError

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await read_reply(reader)


@pytest.mark.parametrize("leave", ["abort", "close", "half-close"])
@pytest.mark.parametrize("streaming", [True, False])
@on_uvloop
async def test_a_client_that_leaves_cancels_the_handler(leave: str, streaming: bool) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        if streaming:
            await reply.start(200, EVENTS)
            await reply.write(b"data: 1\n\n")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(handler) as (server, port), connected(port) as (_, writer):
        writer.write(post())
        await begun.wait()
        if leave == "abort":
            writer.transport.abort()
        elif leave == "close":
            writer.close()
        else:
            writer.write_eof()
        await cancelled.wait()
        await until(lambda: server.connections == 0)


@on_uvloop
async def test_work_after_a_complete_reply_outlives_the_client() -> None:
    go, booked = asyncio.Event(), asyncio.Event()

    async def handler(_request: Request, reply: Reply) -> None:
        reply.send(200, [], b"done")
        await go.wait()
        booked.set()

    async with serving(handler) as (server, port):
        async with connected(port) as (reader, writer):
            writer.write(post())
            await read_reply(reader)
        await until(lambda: server.connections == 0)
        go.set()
        await booked.wait()


@on_uvloop
async def test_an_error_after_part_of_an_event_is_an_event_of_its_own() -> None:
    """One too long to be kept goes on in parts; the error must not become the end of it."""

    async def handler(_request: Request, reply: Reply) -> None:
        await reply.start(200, EVENTS)
        await reply.write(b"data: " + b"x" * (EVENT_BYTES_MAX + 1))
        raise RuntimeError("the engine is gone")

    async with serving(handler) as (_, port), connected(port) as (reader, writer):
        writer.write(post())
        _, _, body = await read_reply(reader)
        long, _, last = body.rstrip().rpartition(b"\n\n")
        assert long == b"data: " + b"x" * (EVENT_BYTES_MAX + 1)
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "internal_error"
