"""Who shares what: documents with nested, crossing and disjoint audiences, end users, rules."""

from __future__ import annotations

import itertools

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.isolation import assert_isolated
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
BLOCK = 32
_serial = itertools.count()


def publish(stage: Stage, audience: str, words: int = 60) -> str:
    """A new document; its text."""
    name = f"doc-{next(_serial)}"
    text = text_of(name, words)
    stage.deployment.publish(name, audience, text)
    return text


async def chat(stage: Stage, key: str, *contents: str) -> int:
    return (await stage.client.chat(key, *contents)).cached


async def test_a_document_in_each_place_is_recognised(stage: Stage, keys: Keys) -> None:
    """System message, user message, second message part, plain completion."""
    own = text_of("own", 20)
    one, two, three, four = (publish(stage, "org:acme") for _ in range(4))
    parts = [{"type": "text", "text": text} for text in (three, own)]
    bodies = [
        [{"role": "system", "content": one}, {"role": "user", "content": own}],
        [{"role": "user", "content": two + "\n\n" + own}],
        [{"role": "user", "content": parts}],
        [{"role": "user", "content": four}, {"role": "assistant", "content": own}],
    ]
    for messages in bodies:
        await stage.client.chat(keys["alice"], "", messages=messages)
        ann = (await stage.client.chat(keys["ann"], "", messages=messages)).cached
        bob = (await stage.client.chat(keys["bob"], "", messages=messages)).cached
        assert ann > 3 * BLOCK
        assert bob == 0
    await stage.client.complete(keys["alice"], one + own)
    assert (await stage.client.complete(keys["ann"], one + own)).cached > 3 * BLOCK
    assert (await stage.client.complete(keys["bob"], one + own)).cached == 0


async def test_nested_audiences_share_as_far_as_the_caller_may(stage: Stage, keys: Keys) -> None:
    """public, then organisation, then group, then one user: each reader stops where it must."""
    texts = [
        publish(stage, audience, 50)
        for audience in ("public", "org:acme", "group:acme/eng", "user:acme/alice")
    ]
    await stage.look()
    prompt, question = "\n\n".join(texts), text_of("nested", 20)
    alice = await chat(stage, keys["alice"], prompt, question)
    public = alice  # warmed before anybody asked
    assert public > 3 * BLOCK
    pat = await chat(stage, keys["pat"], prompt, question)
    ann = await chat(stage, keys["ann"], prompt, question)
    bob = await chat(stage, keys["bob"], prompt, question)
    again = await chat(stage, keys["alice"], prompt, question)
    assert bob == public < pat < ann < again


async def test_crossing_audiences_meet_in_their_intersection(stage: Stage, keys: Keys) -> None:
    """eng = alice, ann; law = alice, pat. Only alice reads past the second document."""
    eng, law = publish(stage, "group:acme/eng"), publish(stage, "group:acme/law")
    prompt, question = eng + "\n\n" + law, text_of("crossing", 20)
    assert await chat(stage, keys["alice"], prompt, question) == 0
    ann = await chat(stage, keys["ann"], prompt, question)
    assert ann > 3 * BLOCK
    assert await chat(stage, keys["pat"], prompt, question) == 0
    assert await chat(stage, keys["alice"], prompt, question) > ann
    turned = law + "\n\n" + eng
    await chat(stage, keys["alice"], turned, question)
    assert await chat(stage, keys["ann"], turned, question) == 0
    assert await chat(stage, keys["pat"], turned, question) > 3 * BLOCK


async def test_disjoint_audiences_share_nothing(stage: Stage, keys: Keys) -> None:
    text = text_of("same words", 60)
    stage.deployment.publish("ours", "org:acme", text)
    stage.deployment.publish("theirs", "org:globex", text)

    async def ask(name: str) -> int:
        return await chat(stage, keys[name], text, text_of("disjoint", 20))

    await assert_isolated(ask, owner="alice", others=["bob"])
    assert await ask("ann") > 3 * BLOCK


async def test_a_document_after_private_text_is_shared_with_nobody(
    stage: Stage, keys: Keys
) -> None:
    text = publish(stage, "org:acme")

    async def ask(name: str) -> int:
        private = text_of("private first", 20)
        return await chat(stage, keys[name], "", private, text, "go on")

    await assert_isolated(ask, owner="alice", others=["ann"], shared_tokens=0)


async def test_a_changed_word_of_a_document_is_private(stage: Stage, keys: Keys) -> None:
    text = publish(stage, "org:acme")
    altered = text[:-1] + "!"

    async def ask(name: str) -> int:
        messages = [{"role": "user", "content": altered}]
        return (await stage.client.chat(keys[name], "", messages=messages)).cached

    await chat(stage, keys["alice"], text, "q")
    await assert_isolated(ask, owner="alice", others=["ann"])


async def test_end_users_and_sessions_of_a_service_account(stage: Stage, keys: Keys) -> None:
    prompt = text_of("record", 60)

    async def by_field(user: str) -> int:
        return (await stage.client.chat(keys["desk"], prompt, user=user)).cached

    async def by_header(user: str) -> int:
        headers = [(b"x-scopekv-user", user.encode())]
        return (await stage.client.chat(keys["desk"], prompt, headers=headers)).cached

    async def by_session(name: str) -> int:
        user, _, session = name.partition("/")
        headers = [(b"x-scopekv-user", user.encode()), (b"x-scopekv-session", session.encode())]
        return (
            await stage.client.chat(keys["desk"], "in a session", prompt, headers=headers)
        ).cached

    await assert_isolated(by_field, owner="eve", others=["dan", "Eve", "eve ", ""])
    assert await by_header("eve") > 0, "the header and the field name one end user"
    await assert_isolated(by_session, owner="eve/1", others=["eve/2", "dan/1", "/1", "eve/"])
    assert await chat(stage, keys["alice"], prompt) == 0


async def test_an_end_user_of_one_application_is_not_anothers(stage: Stage, keys: Keys) -> None:
    other = stage.deployment.account("globex", "desk", service=True)
    second = stage.deployment.account("acme", "desk2", service=True)
    accounts = {"ours": keys["desk"], "second": second, "theirs": other}

    async def ask(name: str) -> int:
        return (await stage.client.chat(accounts[name], text_of("app", 60), user="eve")).cached

    await assert_isolated(ask, owner="ours", others=["second", "theirs"])


async def test_role_rules_widen_and_narrow_within_the_organisation(
    stage: Stage, keys: Keys
) -> None:
    system = text_of("instructions", 60)
    await chat(stage, keys["alice"], system, text_of("a", 20))
    assert await chat(stage, keys["ann"], system, text_of("b", 20)) > 3 * BLOCK
    assert await chat(stage, keys["bob"], system, text_of("c", 20)) == 0
    rules = stage.deployment.administration.rules
    try:
        rules.set(LOCAL_OPERATOR, "acme", tools=None, system="user", messages=None)

        async def ask(name: str) -> int:
            return await chat(stage, keys[name], text_of("narrow", 60), text_of("d", 20))

        await assert_isolated(ask, owner="alice", others=["ann", "bob"])
        rules.set(LOCAL_OPERATOR, "acme", tools=None, system="org", messages="org")
        shared = text_of("everybody's question", 60)
        await chat(stage, keys["alice"], shared)
        assert await chat(stage, keys["ann"], shared) > 3 * BLOCK
        assert await chat(stage, keys["bob"], shared) == 0
    finally:
        rules.set(LOCAL_OPERATOR, "acme", tools="org", system="org", messages="user")


async def test_tools_are_the_organisations(stage: Stage, keys: Keys) -> None:
    """This model's template does not show tools; they must not break the sharing of the rest."""
    system = text_of("tool rules", 60)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    await stage.client.chat(keys["alice"], system, "x", tools=tools)
    assert (await stage.client.chat(keys["ann"], system, "y", tools=tools)).cached > 3 * BLOCK
    assert (await stage.client.chat(keys["bob"], system, "z", tools=tools)).cached == 0
