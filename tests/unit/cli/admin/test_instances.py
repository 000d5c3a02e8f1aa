"""`scopekv admin instance` in front of what is no gateway."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from scopekv.cli.admin.instances import instance
from scopekv.gateway.http import Reply, Request, Server


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (404, b'{"detail":"Not Found"}', "does not answer as a ScopeKV gateway"),  # an engine
        (404, b"<html>", "does not answer as a ScopeKV gateway"),
        (200, b"[]", "does not answer as a ScopeKV gateway"),
        (403, b'{"error":{"message":"not for you"}}', "not for you (status 403)"),
    ],
)
async def test_another_kind_of_server_is_named_as_such(
    status: int, content: bytes, words: str
) -> None:
    async def answer(_request: Request, reply: Reply) -> None:
        reply.send(status, [(b"content-type", b"application/json")], content)

    server = Server(answer)
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        arguments = ["list", "--gateway", url, "--api-key", "sk-scopekv-x"]
        result = await asyncio.to_thread(CliRunner().invoke, instance, arguments)
    finally:
        await server.close(grace_seconds=0)
    assert result.exit_code == 1
    assert words in result.output
