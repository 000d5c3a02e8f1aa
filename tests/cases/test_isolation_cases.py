"""Cases I1, I3, I7, I8, I13: what a client says, and what names look like, opens nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.bodies import STRIPPED
from scopekv.simulate.isolation import Leak, NothingProved, assert_isolated
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
HEADERS = (
    *(b"x-scopekv-user", b"x-scopekv-session", b"x-scopekv-org", b"x-session-id"),
    *(b"x-request-id", b"x-data-parallel-rank", b"openai-organization", b"x-cache-salt"),
    *(b"x-user-id", b"x-tenant-id", b"x-forwarded-user", b"x-correlation-id"),
)


@pytest.mark.parametrize("field", sorted(STRIPPED))
async def test_i1_a_field_set_to_anothers_value_opens_nothing(
    stage: Stage, keys: Keys, field: str
) -> None:
    """Alice and Bob send one value; Bob also tries the very salt and ticket she was given."""
    prompt = text_of(f"i1 {field}", 50)
    objects = {"kv_transfer_params", "vllm_xargs", "kv_hints", "ec_transfer_params"}
    stolen: dict[str, object] = {}

    async def ask(name: str) -> int:
        value: object = {"scopekv": "x"} if field in objects else "alice"
        fields: dict[str, Any] = {field: value} | (stolen if name == "bob" else {})
        answer = await stage.client.chat(keys[name], prompt, **fields)
        if name == "alice":
            call = stage.engine.seen.calls[-1]
            stolen["cache_salt"] = call.salt
            stolen["kv_transfer_params"] = call.body["kv_transfer_params"]
        return answer.cached

    await assert_isolated(ask, owner="alice", others=["bob", "ann"])


@pytest.mark.parametrize("header", HEADERS)
async def test_i1_a_header_set_to_anothers_value_opens_nothing(
    stage: Stage, keys: Keys, header: bytes
) -> None:
    prompt = text_of(f"i1 {header.decode()}", 50)

    async def ask(name: str) -> int:
        return (await stage.client.chat(keys[name], prompt, headers=[(header, b"alice")])).cached

    await assert_isolated(ask, owner="alice", others=["bob", "ann"])


async def test_i3_a_test_of_isolation_fails_while_caching_is_off() -> None:
    """Nobody ever hits: that is no proof of isolation. Everybody hits: that is a leak."""

    async def nobody_hits(_name: str) -> int:
        return 0

    async def everybody_hits(_name: str) -> int:
        return 96

    with pytest.raises(NothingProved):
        await assert_isolated(nobody_hits, owner="alice", others=["bob"])
    with pytest.raises(Leak):
        await assert_isolated(everybody_hits, owner="alice", others=["bob"])
    with pytest.raises(NothingProved):
        await assert_isolated(nobody_hits, owner="alice", others=["bob"], shared_tokens=32)


async def test_i7_names_that_join_to_the_same_text_are_apart(stage: Stage) -> None:
    account = stage.deployment.account
    pairs = [("org_1", "2345"), ("org_12", "345"), ("org_123", "45")]
    keys = {f"{org}+{name}": account(org, name, service=True) for org, name in pairs}
    prompt = text_of("i7", 50)

    async def ask(who: str) -> int:
        return (await stage.client.chat(keys[who], prompt)).cached

    first, *rest = keys
    await assert_isolated(ask, owner=first, others=rest)

    async def as_end_user(who: str) -> int:
        user, session = who.split("|")
        headers = [(b"x-scopekv-user", user.encode()), (b"x-scopekv-session", session.encode())]
        return (await stage.client.chat(keys[first], prompt, headers=headers)).cached

    others = ["a|bc", "abc|", "|abc", "ab/|c", "ab\\x00|c"]
    await assert_isolated(as_end_user, owner="ab|c", others=others)


async def test_i8_the_credential_wins_over_what_the_request_names(stage: Stage, keys: Keys) -> None:
    prompt = text_of("i8", 50)
    audit = stage.deployment.administration.audit
    before = len(audit.list(LOCAL_OPERATOR, after=0, limit=1000).data)

    async def ask(name: str) -> int:
        headers = [(b"openai-organization", b"acme"), (b"x-scopekv-org", b"acme")]
        fields = {"organization": "acme", "org": "acme", "tenant": "acme", "user_id": "alice"}
        return (await stage.client.chat(keys[name], prompt, headers=headers, **fields)).cached

    await assert_isolated(ask, owner="alice", others=["bob"])
    entries = audit.list(LOCAL_OPERATOR, after=0, limit=1000).data[before:]
    claims = [e for e in entries if getattr(e, "action", "") == "claim_organisation"]
    assert {getattr(e, "actor", "") for e in claims} == {"globex/bob"}
    assert {getattr(e, "outcome", "") for e in claims} == {"denied"}


async def test_i13_the_first_touch_of_unpublished_text_is_a_miss(stage: Stage, keys: Keys) -> None:
    """Another organisation's first copy of a text is no hit, and gets the same answer."""
    text = text_of("i13", 60)

    async def ask(name: str) -> int:
        return (await stage.client.chat(keys[name], text, "and now?")).cached

    assert await ask("alice") == 0
    assert await ask("bob") == 0
    assert await ask("ann") > 96, "the positive control: within the organisation it is shared"
    texts = {(await stage.client.chat(keys[n], text, "and now?")).text for n in ("alice", "bob")}
    assert len(texts) == 1
