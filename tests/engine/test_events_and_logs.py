"""I10: what the engine publishes and logs is opaque to whoever lacks the deployment's secret."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import zmq

from scopekv.core.scopes import Narrowing, private_scope
from scopekv.engines.embedded import EngineInstance
from scopekv.engines.settings import EngineSettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.stage import text_of
from scopekv.simulate.tickets import TicketMaker

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
Keys = dict[str, str]
NAMES = ("acme", "globex", "alice", "bob", "manual", "eve", "session-7", "public", "document")


async def drained(events: Any) -> list[bytes]:
    """The payloads published so far; events leave with the engine's next step."""
    payloads = []
    for _ in range(20):
        while events.poll(0):
            payloads.append(events.recv_multipart(zmq.NOBLOCK)[-1])
        await asyncio.sleep(0.05)
    return payloads


def extra_keys_in(node: Any) -> list[str]:
    """Every string anywhere in a decoded event batch: names of events, extra keys, media."""
    if isinstance(node, dict):
        node = [*node.keys(), *node.values()]
    if isinstance(node, (list, tuple)):
        return [found for item in node for found in extra_keys_in(item)]
    return [node] if isinstance(node, str) else []


async def ask_around(client: PlainClient, keys: Keys, document: str) -> None:
    headers = [(b"x-scopekv-session", b"session-7")]
    for name in ("alice", "bob"):
        await client.chat(keys[name], document, text_of("asks", 30))
    await client.chat(keys["desk"], text_of("desk", 30), user="eve", headers=headers)
    await client.chat(keys["alice"], "a last step, so that the events before it leave")


async def test_i10_events_hold_no_name_no_salt_and_no_ticket(
    events: Any, client: PlainClient, deployment: Deployment, keys: Keys, document: str
) -> None:
    await ask_around(client, keys, document)
    payloads = await drained(events)
    assert payloads, "the positive control: something was published"
    strings = {text for p in payloads for text in extra_keys_in(msgspec.msgpack.decode(p))}
    tags = {text for text in strings if len(text) == 64}
    assert len(tags) >= 4, "the positive control: scoped blocks were published"
    raw = b"".join(payloads)
    for name in NAMES:
        assert name.encode() not in raw, name
    secrets = salts_of(deployment, "alice") | salts_of(deployment, "bob")
    assert not secrets & strings
    assert not any(salt.encode() in raw for salt in secrets)
    plain = {"BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU", "kv", "full_attention"}
    odd = {s for s in strings - tags - plain if not s.startswith("isolated-")}
    assert not any(len(text) > 24 for text in odd), "no ticket, and nothing long but a tag"


def salts_of(deployment: Deployment, name: str) -> set[str]:
    """Every salt and scope id of a user, as whoever holds the secret would write them."""
    world = deployment.world
    with world.registry.read() as view:
        found = [view.accounts.get(org.uid, name) for org in view.orgs.list("", 100)]
    made: set[str] = set()
    for account in found:
        if account is not None:
            for narrowing in (Narrowing(), Narrowing(end_user="eve")):
                scope = private_scope(account.principal, narrowing)
                made |= {scope.salt(world.scope_secret, 0), scope.id(world.scope_secret).hex()}
    assert made
    return made


async def test_i10_the_engines_debug_log_holds_nothing_secret(
    engines: Any,
    engine: EngineInstance,
    client: PlainClient,
    direct: PlainClient,
    tickets: TicketMaker,
    deployment: Deployment,
    keys: Keys,
    document: str,
) -> None:
    ids = [7 + i % 500 for i in range(70)]
    good = tickets.text(ids, [64], ["a", "b"])
    await ask_around(client, keys, document)
    for ticket in (good, good[:-2], "not-a-ticket-but-secret"):
        fields: dict[str, Any] = {
            "kv_transfer_params": {"scopekv": ticket},
            "cache_salt": "salt-of-a-caller",
        }
        await direct.complete(engine.api_key, ids, **fields)
    settings: EngineSettings = engines._settings  # the folder of its own log
    log = (settings.log_dir / f"{engine.name}.log").read_text(errors="replace")
    assert "DEBUG" in log, "the positive control: the log is at that level"
    hidden = {good, good[:40], good[-40:], "not-a-ticket-but-secret", "salt-of-a-caller"}
    hidden |= {engine.api_key, document[:40], text_of("asks", 30)[:40], *keys.values()}
    hidden |= salts_of(deployment, "alice") | salts_of(deployment, "bob")
    assert [secret[:16] for secret in hidden if secret in log] == []


async def test_metrics_of_the_engine_name_nobody(
    engine: EngineInstance, direct: PlainClient
) -> None:
    answer = await direct.send("GET", "/metrics", key=engine.api_key)
    text = answer.content.decode()
    assert "vllm:prefix_cache_hits" in text
    assert not [name for name in NAMES if f'"{name}"' in text]
