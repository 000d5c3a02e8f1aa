"""L6 and I14: what was taken away is gone at the next request, wherever it was remembered."""

from __future__ import annotations

import itertools

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
BLOCK = 32
_serial = itertools.count()


class Shared:
    """A document that alice has put into the cache and ann has read from it."""

    def __init__(self, stage: Stage, keys: Keys) -> None:
        self.stage, self.keys = stage, keys
        self.name = f"doc-{next(_serial)}"
        self.text = text_of(self.name, 60)

    async def read(self, name: str) -> int:
        question = text_of(f"{name} {next(_serial)}", 20)
        return (await self.stage.client.chat(self.keys[name], self.text, question)).cached

    async def prepare(self, audience: str) -> str:
        uid = self.stage.deployment.publish(self.name, audience, self.text)
        await self.read("alice")
        assert await self.read("ann") > 3 * BLOCK, "the positive control"
        return uid


async def test_a_withdrawn_document_is_not_read_again(stage: Stage, keys: Keys) -> None:
    shared = Shared(stage, keys)
    uid = await shared.prepare("org:acme")
    stage.deployment.administration.documents.withdraw(LOCAL_OPERATOR, uid)
    rules = stage.deployment.administration.rules
    rules.set(LOCAL_OPERATOR, "acme", tools="org", system="user", messages="user")
    try:
        assert await shared.read("ann") == 0
        assert await shared.read("alice") == 0
    finally:
        rules.set(LOCAL_OPERATOR, "acme", tools="org", system="org", messages="user")


async def test_a_revised_document_starts_anew(stage: Stage, keys: Keys) -> None:
    shared = Shared(stage, keys)
    uid = await shared.prepare("org:acme")
    documents = stage.deployment.administration.documents
    documents.revise(LOCAL_OPERATOR, uid, shared.text + " More.")
    documents.revise(LOCAL_OPERATOR, uid, shared.text)
    assert await shared.read("ann") == 0, "the same text again is a new epoch"
    assert await shared.read("alice") > 3 * BLOCK


async def test_a_narrowed_audience_shuts_the_others_out(stage: Stage, keys: Keys) -> None:
    shared = Shared(stage, keys)
    uid = await shared.prepare("org:acme")
    documents = stage.deployment.administration.documents
    documents.set_audience(LOCAL_OPERATOR, uid, "group:acme/eng")
    assert await shared.read("alice") == 0
    assert await shared.read("ann") > 3 * BLOCK
    assert await shared.read("pat") == 0
    assert await shared.read("bob") == 0


async def test_i14_a_removed_member_reads_no_more(stage: Stage, keys: Keys) -> None:
    shared = Shared(stage, keys)
    await shared.prepare("group:acme/eng")
    groups = stage.deployment.administration.groups
    groups.set_member(LOCAL_OPERATOR, "acme", "eng", "ann", inside=False)
    try:
        assert await shared.read("ann") == 0
        assert await shared.read("alice") == 0, "the group's documents start anew"
        assert await shared.read("alice") > 3 * BLOCK
    finally:
        groups.set_member(LOCAL_OPERATOR, "acme", "eng", "ann", inside=True)
    assert await shared.read("ann") > 3 * BLOCK


async def test_a_raised_epoch_empties_a_users_own_cache(stage: Stage, keys: Keys) -> None:
    prompt = text_of("own", 60)
    for expected in (False, True):
        assert bool((await stage.client.chat(keys["bob"], prompt)).cached) is expected
    stage.deployment.administration.epochs.bump(LOCAL_OPERATOR, "user:globex/bob")
    assert (await stage.client.chat(keys["bob"], prompt)).cached == 0
    assert (await stage.client.chat(keys["bob"], prompt)).cached > 0


async def test_a_user_made_anew_under_an_old_name_inherits_nothing(stage: Stage) -> None:
    prompt = text_of("diary", 60)
    accounts = stage.deployment.administration.accounts
    key = stage.deployment.account("umbrella", "jill")
    for expected in (False, True):
        assert bool((await stage.client.chat(key, prompt)).cached) is expected
    accounts.delete(LOCAL_OPERATOR, "umbrella", "jill", service=False)
    again = stage.deployment.account("umbrella", "jill")
    assert (await stage.client.chat(again, prompt)).cached == 0


async def test_a_withdrawn_public_document_is_unpinned(stage: Stage, keys: Keys) -> None:
    text = text_of("bulletin", 60)
    uid = stage.deployment.publish("bulletin", "public", text)
    await stage.look()
    pinned = len(stage.engine.plugin.status()["pinned"]) if stage.engine.plugin else 0
    assert pinned == 3
    assert (await stage.client.chat(keys["bob"], text, "q")).cached > 3 * BLOCK
    stage.deployment.administration.documents.withdraw(LOCAL_OPERATOR, uid)
    await stage.look()
    assert stage.engine.plugin is not None
    assert stage.engine.plugin.status()["pinned"] == {}
    assert (await stage.client.chat(keys["bob"], text, "q")).cached == 0
