"""Case I14: permissions that change while a request, or a look-up, is under way."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scopekv.core.scopes import Scope
from scopekv.errors import Unauthenticated
from scopekv.gateway.access import Access
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.http import Request
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.probes import Probes
from scopekv.gateway.reading import Reader
from scopekv.gateway.settings import GatewaySettings, ProbeSettings, RoutingSettings
from scopekv.ports import KeyRecord, Versions
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of, until


class SlowRegistry:
    """Its answers from another thread are on their way while other things happen."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._loop = threading.current_thread()
        self.read, self.told, self.go = threading.Event(), threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def key(self, digest: bytes) -> KeyRecord | None:
        found: KeyRecord | None = self._inner.key(digest)
        self.read.set()
        if threading.current_thread() is not self._loop:
            self.go.wait(10)
        return found

    def audit(self, **what: str) -> None:
        self.told.set()
        self.go.wait(10)
        self._inner.audit(**what)


def request(key: str) -> Request:
    headers = [(b"authorization", b"Bearer " + key.encode())]
    return Request("GET", "/v1/models", "", headers, b"")


async def test_i14_an_answer_that_was_under_way_is_not_remembered(tmp_path: Path) -> None:
    """The key is blocked between the registry's reading and the gateway's keeping it."""
    deployment = Deployment(tmp_path)
    secret = deployment.account("acme", "alice")
    slow = SlowRegistry(deployment.world.registry)
    access = Access(slow, in_thread=True, identities=None)
    await access.refresh()
    first = asyncio.create_task(access.principal(request(secret)))
    assert await asyncio.to_thread(slow.read.wait, 10)
    accounts = deployment.administration.accounts
    accounts.set_blocked(LOCAL_OPERATOR, "acme", "alice", service=False, blocked=True)
    await access.refresh()  # another request has seen the change
    slow.go.set()
    with pytest.raises(Unauthenticated):
        await first
    with pytest.raises(Unauthenticated):
        await access.principal(request(secret))
    deployment.world.registry.close()


async def test_i14_who_waits_after_being_known_does_not_stand_after_a_change(
    tmp_path: Path,
) -> None:
    """The key is blocked while the audit log is told of a claim that the request makes."""
    deployment = Deployment(tmp_path)
    secret = deployment.account("acme", "alice")
    slow = SlowRegistry(deployment.world.registry)
    access = Access(slow, in_thread=False, identities=None)
    reader = Reader(access, Probes(access, Metrics(), ProbeSettings()))
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    headers = [*request(secret).headers, (b"x-scopekv-org", b"globex")]
    asked = Request("POST", "/v1/chat/completions", "", headers, body)
    job = asyncio.create_task(reader.job(asked, 0.0))
    assert await asyncio.to_thread(slow.told.wait, 10)
    accounts = deployment.administration.accounts
    accounts.set_blocked(LOCAL_OPERATOR, "acme", "alice", service=False, blocked=True)
    await access.refresh()  # another request has seen the change
    slow.go.set()
    assert not await access.stands((await job).caller.versions, waited=False)
    deployment.world.registry.close()


@pytest.mark.parametrize("remote", [False, True])
async def test_i14_no_epoch_of_after_a_change_with_a_membership_of_before(
    tmp_path: Path, remote: bool
) -> None:
    """Another process changes the registry, and nobody here has asked what it says since."""
    deployment = Deployment(tmp_path)
    secret = deployment.account("acme", "alice")
    deployment.group("acme", "eng", "alice")
    deployment.publish("i14", "group:acme/eng", text_of("i14", 60))
    access = Access(deployment.world.registry, in_thread=remote, identities=None)
    principal = await access.principal(request(secret))
    before = access.versions
    assert principal.groups, "the positive control"
    (document,) = deployment.world.registry.documents()
    groups = deployment.administration.groups
    groups.set_member(LOCAL_OPERATOR, "acme", "eng", "alice", inside=False)
    epoch = await access.epoch(document.document.scope)
    assert not await access.stands(before, waited=False)
    assert not (await access.principal(request(secret))).groups
    assert await access.epoch(document.document.scope) == epoch
    deployment.world.registry.close()


class CountingRegistry:
    """How often the counters were compared."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.compared = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def versions(self) -> Versions:
        self.compared += 1
        found: Versions = self._inner.versions()
        return found


@pytest.mark.parametrize("remote", [False, True])
async def test_i14_only_requests_that_were_here_before_share_a_comparison(
    tmp_path: Path, remote: bool
) -> None:
    deployment = Deployment(tmp_path)
    secret = deployment.account("acme", "alice")
    registry = CountingRegistry(deployment.world.registry)
    access = Access(registry, in_thread=remote, identities=None)
    came = time.monotonic()
    for _ in range(3):
        await access.principal(request(secret), came)
    assert registry.compared == (3 if remote else 1)
    accounts = deployment.administration.accounts
    accounts.set_blocked(LOCAL_OPERATOR, "acme", "alice", service=False, blocked=True)
    with pytest.raises(Unauthenticated):
        await access.principal(request(secret), time.monotonic())
    with pytest.raises(Unauthenticated):
        await access.principal(request(secret))
    deployment.world.registry.close()


async def test_i14_a_change_during_a_request_counts_for_the_next_one(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    keys = {name: stage.deployment.account("acme", name) for name in ("alice", "ann")}
    stage.deployment.group("acme", "eng", "alice", "ann")
    document = text_of("i14", 60)
    stage.deployment.publish("i14", "group:acme/eng", document)
    async with stage:

        async def ask(name: str) -> int:
            return (await stage.client.chat(keys[name], document, text_of(name, 20))).cached

        assert await ask("alice") == 0
        stage.engine.behaviour = Behaviour(head_seconds=0.3)
        running = asyncio.ensure_future(ask("ann"))
        while not stage.engine.seen.running:  # the engine has it: it was decided before the change
            await asyncio.sleep(0.005)
        groups = stage.deployment.administration.groups
        groups.set_member(LOCAL_OPERATOR, "acme", "eng", "ann", inside=False)
        await running
        stage.engine.behaviour = Behaviour()
        assert (await stage.client.chat(keys["ann"], document, "a new question")).cached == 0
        assert await ask("alice") == 0, "the group's documents start anew, and ann left nothing"
        assert await ask("alice") > 96, "the positive control"


async def test_i14_a_burst_of_changes_and_requests_ends_with_the_last_word(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    key = stage.deployment.account("acme", "alice")
    async with stage:
        accounts = stage.deployment.administration.accounts
        for round_number in range(10):
            blocked = round_number % 2 == 0
            asked = [asyncio.ensure_future(stage.client.chat(key, "hi")) for _ in range(4)]
            await asyncio.to_thread(
                accounts.set_blocked,
                LOCAL_OPERATOR,
                "acme",
                "alice",
                service=False,
                blocked=blocked,
            )
            assert (await stage.client.chat(key, "hi")).status == (401 if blocked else 200)
            await asyncio.gather(*asked)


async def test_i14_a_change_while_a_request_is_prepared_opens_nothing(
    tmp_path: Path, model: SimulatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of after the change with a membership of before would."""
    stage = Stage(tmp_path, model, plugins=(True,))
    keys = {name: stage.deployment.account("acme", name) for name in ("alice", "ann")}
    stage.deployment.group("acme", "eng", "alice", "ann")
    document = text_of("retry", 60)
    stage.deployment.publish("retry", "group:acme/eng", document)
    async with stage:
        assert (await stage.client.chat(keys["alice"], document, "one")).status == 200
        groups = stage.deployment.administration.groups
        access = stage.deployment.gateway.access
        original = access.epoch

        async def late(scope: Scope) -> int:
            """The change falls between reading the caller and reading the epochs."""
            monkeypatch.setattr(access, "epoch", original)
            groups.set_member(LOCAL_OPERATOR, "acme", "eng", "ann", inside=False)
            await access.refresh()
            return await original(scope)

        monkeypatch.setattr(access, "epoch", late)
        answer = await stage.client.chat(keys["ann"], document, "two")
        assert answer.cached == 0
        assert (await stage.client.chat(keys["alice"], document, "three")).cached == 0
        assert (await stage.client.chat(keys["alice"], document, "four")).cached > 0


async def test_i14_who_waited_for_a_place_is_asked_anew(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """What others were told while it waited says nothing of it now."""
    routing = RoutingSettings(in_flight_max=1)
    stage = Stage(tmp_path, model, settings=GatewaySettings((), port=0, routing=routing))
    keys = {name: stage.deployment.account("acme", name) for name in ("alice", "ann", "pat")}
    async with stage:
        for key in keys.values():
            assert (await stage.client.chat(key, "hi")).status == 200
        stage.engine.behaviour = Behaviour(held=True)
        first = asyncio.create_task(stage.client.chat(keys["alice"], "first"))
        room = stage.deployment.gateway.room
        await until(lambda: stage.engine.seen.running == 1)
        second = asyncio.create_task(stage.client.chat(keys["ann"], "second"))
        await until(lambda: room.waiting == 1)
        assert (await stage.client.send("GET", "/v1/models", key=keys["pat"])).status == 200
        stage.deployment.administration.accounts.set_blocked(
            LOCAL_OPERATOR, "acme", "ann", service=False, blocked=True
        )
        stage.engine.behaviour = Behaviour()
        assert ((await first).status, (await second).status) == (200, 401)
        assert len(stage.engine.seen.calls) == 4
        assert (room.taken, room.waiting) == (0, 0)
