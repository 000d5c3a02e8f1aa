"""`diagnostics` of `/v1/messages`, by the anthropic package: of one's own requests alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.gateway.explaining import diagnostics
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of
from tests.http.official_clients import anthropic_client

if TYPE_CHECKING:
    from anthropic.types import Message

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
UNKNOWN = "msg_" + 24 * "0"


class Talk:
    """One caller's client; each request names an earlier one."""

    def __init__(self, stage: Stage, key: str) -> None:
        self.api = anthropic_client(stage.deployment.url, key)
        self.model = stage.model.name

    async def ask(
        self, system: str, *turns: str, after: str | None = None, **fields: Any
    ) -> Message:
        made: Message = await self.api.messages.create(
            **self.body(system, *turns), diagnostics={"previous_message_id": after}, **fields
        )
        return made

    def body(self, system: str, *turns: str) -> dict[str, Any]:
        roles = ("user", "assistant")
        said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
        return {"model": self.model, "max_tokens": 2, "system": system, "messages": said}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talks(stage: Stage, keys: Keys) -> AsyncIterator[dict[str, Talk]]:
    made = {name: Talk(stage, key) for name, key in keys.items()}
    yield made
    for talk in made.values():
        await talk.api.close()


@pytest.fixture
def alice(talks: dict[str, Talk]) -> Talk:
    return talks["alice"]


def reason(message: Any) -> Any:
    assert message.diagnostics is not None
    assert message.diagnostics.cache_miss_reason is not None
    return message.diagnostics.cache_miss_reason


async def test_a_conversation_that_grows_has_nothing_to_tell(stage: Stage, alice: Talk) -> None:
    rules = text_of("diagnosed rules", 90)
    first = await alice.ask(rules, "hi")
    second = await alice.ask(rules, "hi", "hello", "and?", after=first.id)
    assert first.id.startswith("msg_")
    assert first.id != second.id
    assert first.diagnostics is None
    assert second.diagnostics is None
    assert "diagnostics" in second.model_fields_set, "null, and not left out"
    assert "diagnostics" not in stage.engine.seen.calls[-1].body


async def test_what_changed_and_how_much_it_cost(alice: Talk) -> None:
    rules, talk = text_of("diagnosed change", 90), [text_of(f"diagnosed {i}", 50) for i in range(3)]
    first = await alice.ask(rules, *talk)
    again = await alice.ask(rules, *talk, after=first.id)
    other = await alice.ask("It is Monday. " + rules, *talk, after=first.id)
    edited = await alice.ask(rules, talk[0], "no", talk[2], after=first.id)
    whole = again.usage.cache_read_input_tokens or 0
    assert reason(other).type == "system_changed"
    assert reason(edited).type == "messages_changed"
    for message in (other, edited):
        read = message.usage.cache_read_input_tokens or 0
        total = read + message.usage.input_tokens
        assert (
            reason(message).cache_missed_input_tokens == min(whole, (total - 1) // 32 * 32) - read
        )


async def test_a_stream_tells_it_at_its_beginning(alice: Talk) -> None:
    rules = text_of("diagnosed stream", 90)
    first = await alice.ask(rules, "hi")
    asked: Any = {"previous_message_id": first.id}
    body = alice.body("It is 10:15. " + rules, "hi")
    async with alice.api.messages.stream(**body, diagnostics=asked) as stream:
        events = [event async for event in stream]
        last = await stream.get_final_message()
    starts = [event.message for event in events if event.type == "message_start"]
    assert [reason(start).type for start in starts] == ["system_changed"]
    assert reason(last).type == "system_changed"
    assert last.content
    assert last.id == starts[0].id
    after = await alice.ask("It is 10:15. " + rules, "hi", "yes", "so?", after=last.id)
    assert after.diagnostics is None, "a stream's own id is one to name later"


async def test_the_beta_client_gets_the_same(alice: Talk) -> None:
    rules = text_of("diagnosed beta", 90)
    first = await alice.ask(rules, "hi")
    asked: Any = {"previous_message_id": first.id}
    second = await alice.api.beta.messages.create(
        **alice.body("Be brief. " + rules, "hi"),
        diagnostics=asked,
        betas=["cache-diagnosis-2026-04-07"],
    )
    assert reason(second).type == "system_changed"


async def test_anothers_message_and_an_unknown_one_look_the_same(
    stage: Stage, talks: dict[str, Talk]
) -> None:
    rules = text_of("diagnosed secret", 90)
    secret = await talks["alice"].ask(rules, "hi")
    looked = len(stage.engine.seen.calls)
    for who in ("ann", "bob", "desk"):
        denied = await talks[who].ask(rules, "hi", after=secret.id)
        unknown = await talks[who].ask(rules, "hi", after=UNKNOWN)
        assert reason(denied).to_dict() == {"type": "previous_message_not_found"}
        assert denied.diagnostics == unknown.diagnostics, "denied and unknown look the same (L10)"
    assert len(stage.engine.seen.calls) == looked + 6


async def test_one_end_user_of_an_account_is_not_compared_with_another(
    talks: dict[str, Talk],
) -> None:
    desk, rules = talks["desk"], text_of("diagnosed desk", 90)
    first = await desk.ask(rules, "hi", metadata={"user_id": "u1"})
    other = await desk.ask("No. " + rules, "hi", after=first.id, metadata={"user_id": "u2"})
    same = await desk.ask("No. " + rules, "hi", after=first.id, metadata={"user_id": "u1"})
    assert reason(other).type == "previous_message_not_found"
    assert reason(same).type == "system_changed"


async def test_an_engine_that_renders_prompts_itself_leaves_nothing_to_compare(
    tmp_path: Path, model: SimulatedModel
) -> None:
    async with Stage(tmp_path, model, plugins=(False,)) as bare:
        alice = Talk(bare, bare.deployment.account("acme", "alice"))
        first = await alice.ask(text_of("diagnosed bare", 60), "hi")
        after = await alice.ask(text_of("diagnosed other", 60), "hi", after=first.id)
        await alice.api.close()
    assert reason(after).to_dict() == {"type": "unavailable"}


async def test_an_answer_does_not_wait_for_long(
    stage: Stage, alice: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = text_of("diagnosed late", 90)
    first = await alice.ask(rules, "hi")
    texts = stage.deployment.gateway.fleet.instances[0].texts
    assert texts is not None
    monkeypatch.setattr(diagnostics, "WAIT_SECONDS_MAX", 0.0)
    busy, read = threading.Event(), list[Any]()
    monkeypatch.setattr(diagnostics, "prompt_of", lambda *given: read.append(given))
    texts.worker.submit(busy.wait)
    late = await alice.ask("Be late. " + rules, "hi", after=first.id)
    await alice.ask(rules, "hi")
    busy.set()
    await asyncio.wrap_future(texts.worker.submit(int))
    assert not read, "what nobody waits for any more is not computed"
    assert late.diagnostics is not None
    assert late.diagnostics.cache_miss_reason is None, "pending, as documented"


async def test_what_was_sent_before_a_revocation_is_not_found(
    stage: Stage, talks: dict[str, Talk]
) -> None:
    """Also before it is forgotten, which takes a moment."""
    rules = text_of("diagnosed revoked", 90)
    await stage.deployment.gateway.forgetter.stop()
    first = await talks["bob"].ask(rules, "hi")
    stage.deployment.administration.revocations.user(LOCAL_OPERATOR, "globex", "bob")
    after = await talks["bob"].ask("No. " + rules, "hi", after=first.id)
    stage.deployment.gateway.forgetter.start()
    assert reason(after).type == "previous_message_not_found"


async def test_a_comparison_that_fails_fails_no_request(
    alice: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = text_of("diagnosed fault", 90)
    first = await alice.ask(rules, "hi")
    monkeypatch.setattr(diagnostics, "divergence", None)
    after = await alice.ask("No. " + rules, "hi", after=first.id)
    assert after.content
    assert reason(after).type == "unavailable"


async def test_a_prompt_only_read_into_the_cache_can_be_named(alice: Talk) -> None:
    rules = text_of("diagnosed warm", 90)
    body = alice.body(rules, "hi") | {"max_tokens": 0}
    warm = await alice.api.messages.create(**body)
    after = await alice.ask(rules + " Be brief.", "hi", after=warm.id)
    assert reason(after).type == "system_changed"


@pytest.mark.parametrize("asked", ["msg_1", 1, [1], {"previous_message_id": 7}])
async def test_wrong_fields_are_refused_with_a_word(alice: Talk, asked: Any) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match="previous_message_id"):
        await alice.api.messages.create(**alice.body("a", "hi"), diagnostics=asked)
