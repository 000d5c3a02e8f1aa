"""L6 over HTTP: after a revocation said success, nothing that it reached is read again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
import pytest_asyncio

from scopekv.core.chains import Tag, tag
from scopekv.core.receipts import read_pair
from scopekv.simulate.client import Answer
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
Keys = dict[str, str]
TRIALS = 12
IN_FLIGHT = 20
_serial = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    tmp_path_factory: pytest.TempPathFactory, model: SimulatedModel
) -> AsyncIterator[Stage]:
    """Two engines with the plugin."""
    stage = Stage(tmp_path_factory.mktemp("pair"), model, plugins=(True, True))
    async with stage:
        stage.deployment.gateway.revoker.calls.seconds = 0.2
        yield stage


@pytest.fixture(scope="module")
def names(pair: Stage) -> Keys:
    account = pair.deployment.account
    made = {name: account("acme", name) for name in ("alice", "ann")}
    made["ada"] = account("acme", "ada", roles=["org_admin"])
    made["pat"] = account("acme", "pat", roles=["publisher"])
    made["eve"] = account("globex", "eve", roles=["org_admin"])
    made["root"] = account("hq", "root", roles=["operator"])
    pair.deployment.group("acme", "eng", "alice", "ann")
    return made


async def revoke(stage: Stage, key: str, kind: str, **body: Any) -> Answer:
    path = f"/admin/v1/revocations/{kind}"
    return await stage.client.send("POST", path, {"wait_seconds": 30} | body, key=key)


async def receipt(stage: Stage, key: str, uid: str) -> Any:
    return (await stage.client.send("GET", f"/admin/v1/receipts/{uid}", key=key)).json


async def until(stage: Stage, key: str, uid: str, state: str, *, heard_of: int = 1) -> Any:
    """The receipt once it is in that state and says something of so many instances."""
    async with asyncio.timeout(60):
        while True:
            shown = await receipt(stage, key, uid)
            heard = {line["instance"] for line in shown["lines"]}
            if shown["state"] == state and len(heard) >= heard_of:
                return shown
            await asyncio.sleep(0.02)


def tags_of(stage: Stage, uid: str) -> frozenset[Tag]:
    with stage.deployment.world.registry.read() as view:
        found = view.receipts.get(uid)
    assert found
    secret = stage.deployment.world.scope_secret
    return frozenset(tag(read_pair(name, secret)) for name in found.tags)


def reads(stage: Stage, tags: frozenset[Tag], since: float) -> int:
    """How many prefills read a block under one of `tags` since then."""
    return sum(
        at >= since and not read.isdisjoint(tags)
        for engine in stage.engines
        for at, read in engine.seen.reads
    )


class Load:
    """So many requests always under way, on one prompt, until it is left."""

    def __init__(self, stage: Stage, key: str, text: str) -> None:
        self._stage, self._key, self._text = stage, key, text
        self._tasks: list[asyncio.Task[None]] = []
        self._over = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._work(n)) for n in range(IN_FLIGHT)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    async def _work(self, number: int) -> None:
        while not self._over:
            answer = await self._stage.client.chat(self._key, self._text, f"question {number}")
            assert answer.status == 200


@pytest.mark.parametrize("kind", ["documents", "users", "memberships"])
async def test_no_read_follows_a_success_under_load(pair: Stage, names: Keys, kind: str) -> None:
    """Requests hold tickets minted before, and reach their engine at any time after."""
    for engine in pair.engines:
        engine.behaviour.head_seconds = 0.1
    before = 0
    try:
        for _ in range(TRIALS):
            name = f"doc-{next(_serial)}"
            text = text_of(name, 60)
            group = kind == "memberships"
            if kind != "users":
                audience = "group:acme/eng" if group else "org:acme"
                pair.deployment.publish(name, audience, text)
            body = {
                "documents": {"document": f"acme/{name}"},
                "users": {"org": "acme", "name": "ann"},
                "memberships": {"org": "acme", "group": "eng", "name": "ann"},
            }[kind]
            if group:
                path = "/admin/v1/orgs/acme/groups/eng/members/ann"
                assert (await pair.client.send("PUT", path, key=names["ada"])).status == 200
            began = time.monotonic()
            async with Load(pair, names["ann"], text):
                async with asyncio.timeout(60):
                    while sum(at >= began for e in pair.engines for at, _ in e.seen.reads) < 4:
                        await asyncio.sleep(0.02)
                answer = await revoke(pair, names["ada"], kind, **body)
                success = time.monotonic()
                assert answer.status == 200, answer.content
                await asyncio.sleep(0.15)
            made = answer.json["receipt"]
            assert {line["state"] for line in made["lines"]} == {"done"}
            assert {line["instance"] for line in made["lines"]} == {"engine-0", "engine-1"}
            tags = tags_of(pair, made["id"])
            before += reads(pair, tags, began)
            assert reads(pair, tags, success) == 0
    finally:
        for engine in pair.engines:
            engine.behaviour.head_seconds = 0.0
    assert before > TRIALS, "the positive control: the blocks were read before"


async def test_a_paused_instance_is_incomplete_until_it_goes_on(pair: Stage, names: Keys) -> None:
    text = text_of("paused", 60)
    for _ in range(4):
        await pair.client.chat(names["alice"], text)
    pair.engines[1].behaviour.paused = True
    try:
        body = {"org": "acme", "name": "alice", "wait_seconds": 1}
        answer = await revoke(pair, names["ada"], "users", **body)
        assert answer.status == 202
        made = await until(
            pair, names["ada"], answer.json["receipt"]["id"], "incomplete", heard_of=2
        )
    finally:
        pair.engines[1].behaviour.paused = False
    lines = {line["instance"]: (line["state"], line["reason"]) for line in made["lines"]}
    assert lines == {"engine-0": ("done", ""), "engine-1": ("incomplete", "timed_out")}
    assert any("restart" in text for text in made["advice"])
    shown = await until(pair, names["ada"], made["id"], "done")
    assert shown["finished_at"]
    assert sum(line["removed"] for line in shown["lines"]) > 0


async def test_a_busy_purge_is_asked_again(pair: Stage, names: Keys) -> None:
    pair.engine.behaviour.purges_busy = 3
    answer = await revoke(pair, names["ada"], "users", org="acme", name="ann")
    assert answer.status == 200
    assert pair.engine.behaviour.purges_busy == 0
    pair.engine.behaviour.purges_busy = 10**6
    try:
        answer = await revoke(pair, names["ada"], "users", org="acme", name="ann", wait_seconds=1)
        assert answer.status == 202
        await until(pair, names["ada"], answer.json["receipt"]["id"], "busy")
    finally:
        pair.engine.behaviour.purges_busy = 0
    await until(pair, names["ada"], answer.json["receipt"]["id"], "done")


async def test_a_tier_in_trouble_is_incomplete_until_it_is_repaired(
    pair: Stage, names: Keys
) -> None:
    pair.engine.behaviour.purge_error = "/secret/path: read-only"
    try:
        answer = await revoke(pair, names["ada"], "orgs", org="acme", wait_seconds=1)
        assert answer.status == 202
        uid = answer.json["receipt"]["id"]
        made = await until(pair, names["ada"], uid, "incomplete")
    finally:
        pair.engine.behaviour.purge_error = ""
    assert "/secret" not in repr(made)
    assert ("directory", "incomplete", "tier_error") in {
        (line["tier"], line["state"], line["reason"]) for line in made["lines"]
    }
    pair.engine.behaviour.purge_error = None
    await asyncio.sleep(0.1)
    shown = await receipt(pair, names["ada"], made["id"])
    assert shown["state"] == "incomplete", "a tier that is not named any more confirms nothing"
    path = f"/admin/v1/receipts/{made['id']}/close"
    body = {"reason": "the folder was deleted"}
    assert (await pair.client.send("POST", path, body, key=names["ada"])).status == 403
    closed = await pair.client.send("POST", path, body, key=names["root"])
    assert closed.json["state"] == "closed"


async def test_other_organisations_see_nothing(pair: Stage, names: Keys) -> None:
    answer = await revoke(pair, names["ada"], "users", org="acme", name="ann")
    path = f"/admin/v1/receipts/{answer.json['receipt']['id']}"
    for key in ("eve", "alice"):
        assert (await pair.client.send("GET", path, key=names[key])).status == 404
    assert (await revoke(pair, names["eve"], "users", org="acme", name="ann")).status == 404
    assert (await revoke(pair, names["alice"], "users", org="acme", name="ann")).status == 403
    listed = await pair.client.send("GET", "/admin/v1/receipts", key=names["eve"])
    assert listed.json["data"] == []


async def test_bad_bodies_are_refused(pair: Stage, names: Keys) -> None:
    for body in ({"org": "acme"}, {"org": "acme", "name": "ann", "wait_seconds": 601}):
        answer = await pair.client.send(
            "POST", "/admin/v1/revocations/users", body, key=names["ada"]
        )
        assert answer.status == 400


async def test_withdrawing_leaves_a_receipt_that_is_carried_out(pair: Stage, names: Keys) -> None:
    name = f"doc-{next(_serial)}"
    text = text_of(name, 60)
    pair.deployment.publish(name, "org:acme", text)
    for _ in range(3):
        await pair.client.chat(names["ann"], text, "q")
    path = f"/admin/v1/documents/acme%2F{name}/withdraw"
    answer = await pair.client.send("POST", path, key=names["pat"])
    shown = await until(pair, names["pat"], answer.json["receipt"], "done")
    assert sum(line["removed"] for line in shown["lines"]) > 0


async def test_metrics_name_nobody(pair: Stage, names: Keys) -> None:
    answer = await revoke(pair, names["ada"], "users", org="acme", name="ann")
    text = (await pair.client.send("GET", "/metrics", key=names["root"])).content.decode()
    assert 'scopekv_receipts{state="pending"}' in text
    assert "scopekv_purge_seconds_count" in text
    for secret in ("acme", "ann", answer.json["receipt"]["id"], "rcp_"):
        assert secret not in text
