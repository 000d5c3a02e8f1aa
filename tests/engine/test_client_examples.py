"""The official clients' own examples of caching, rewritten: their usage is right to the token.

Every prompt is asked for its length first; blocks are 32 tokens, and an engine reads whole ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
import pytest_asyncio
from anthropic.types import Usage
from openai import AsyncOpenAI

from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.stage import text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
BLOCK = 32
TOOL: Any = {
    "name": "get_weather",
    "description": "The weather in a place. " + text_of("what the tool is for", 20),
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
NO_CALLS: Any = {"type": "none"}  # the small model calls no tools


def whole_blocks(tokens: int) -> int:
    return tokens // BLOCK * BLOCK


def marked(text: str, ttl: str = "5m") -> Any:
    """A text block with a cache breakpoint."""
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": ttl}}


class Counted:
    """The anthropic client of one caller, and what it must be told of each request."""

    def __init__(self, api: anthropic.AsyncAnthropic, model: str) -> None:
        self.api, self.model = api, model
        self.prompt_tokens = self.cached_tokens = 0

    async def ask(self, *, known: int, max_tokens: int = 2, **request: Any) -> Any:
        """Send it; `known`: tokens that are the same as in an earlier request. Checks the usage."""
        counted = await self.api.messages.count_tokens(model=self.model, **request)
        answer = await self.api.messages.create(model=self.model, max_tokens=max_tokens, **request)
        self.told(answer.usage, counted.input_tokens, known)
        return answer

    def told(self, usage: Usage, total: int, known: int) -> None:
        read = whole_blocks(min(known, total - 1))
        assert usage.cache_read_input_tokens == read
        assert usage.cache_creation_input_tokens == whole_blocks(total) - read
        assert usage.input_tokens == total - whole_blocks(total)
        self.prompt_tokens += total
        self.cached_tokens += read

    async def tokens(self, **request: Any) -> int:
        return (await self.api.messages.count_tokens(model=self.model, **request)).input_tokens


@pytest_asyncio.fixture(loop_scope="session")
async def claude(
    deployment: Deployment, client: PlainClient, request: pytest.FixtureRequest
) -> AsyncIterator[Counted]:
    """A caller of an organisation of its own, so that nothing was read for it before."""
    name = request.node.name.replace("_", "-")[:40]
    key = deployment.account(name, "ada")
    async with anthropic.AsyncAnthropic(base_url=client.url, api_key=key, max_retries=0) as api:
        yield Counted(api, client.model)


async def test_a_long_system_text_with_a_breakpoint_is_read_by_the_second_call(
    claude: Counted,
) -> None:
    system = ["You analyse books. ", marked(text_of("the whole book", 120), "1h")]
    blocks: Any = [{"type": "text", "text": system[0]}, system[1]]
    one: Any = [{"role": "user", "content": text_of("major themes", 20)}]
    await claude.ask(known=0, system=blocks, messages=one)
    whole = await claude.tokens(system=blocks, messages=one)
    await claude.ask(known=whole, system=blocks, messages=one)
    async with claude.api.messages.stream(
        model=claude.model, max_tokens=2, system=blocks, messages=one
    ) as stream:
        claude.told((await stream.get_final_message()).usage, whole, whole)


async def test_pre_warming_pays_at_the_first_question(claude: Counted) -> None:
    request: Any = {
        "system": [marked(text_of("warmed book", 100))],
        "messages": [{"role": "user", "content": "What is it about?"}],
    }
    whole = await claude.tokens(**request)
    warm = await claude.ask(known=0, max_tokens=0, **request)
    assert (warm.content, warm.usage.output_tokens) == ([], 0)
    await claude.ask(known=whole, **request)


async def test_a_conversation_with_a_moving_breakpoint(claude: Counted) -> None:
    system = [marked(text_of("moving rules", 60))]
    turns: list[Any] = []
    known = 0
    for number in range(4):
        question = marked(text_of(f"moving question {number}", 25))
        asked = [*turns, {"role": "user", "content": [question]}]
        answer = await claude.ask(known=known, max_tokens=1, system=system, messages=asked)
        known = await claude.tokens(system=system, messages=asked)
        plain = {"role": "user", "content": [{"type": "text", "text": question["text"]}]}
        turns += [plain, {"role": "assistant", "content": answer.content[0].text or "."}]


async def test_an_agent_loop_with_tools_reads_nine_tenths_from_the_cache(claude: Counted) -> None:
    system = [marked(text_of("agent rules", 100))]
    turns: list[Any] = [{"role": "user", "content": text_of("the task", 60)}]
    known, previous = 0, None
    for turn in range(20):
        request: Any = {
            "system": system,
            "tools": [TOOL],
            "tool_choice": NO_CALLS,
            "messages": list(turns),
        }
        whole = await claude.tokens(**request)
        answer = await claude.api.messages.create(
            model=claude.model,
            max_tokens=1,
            diagnostics={"previous_message_id": previous},
            **request,
        )
        claude.told(answer.usage, whole, known)
        assert answer.diagnostics is None, "the conversation only grows"
        known, previous = whole, answer.id
        use = {"type": "tool_use", "id": f"t{turn}", "name": TOOL["name"], "input": {"place": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "sunny"}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert claude.cached_tokens / claude.prompt_tokens > 0.9


async def test_a_changed_system_text_is_diagnosed_in_a_stream(claude: Counted) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    rules = text_of("diagnosed on the engine", 60)
    first = await claude.ask(known=0, system=rules, messages=said)
    asked: Any = {"previous_message_id": first.id}
    request: Any = {"system": "It is 10:15. " + rules, "messages": said, "diagnostics": asked}
    async with claude.api.messages.stream(model=claude.model, max_tokens=2, **request) as stream:
        last = await stream.get_final_message()
    assert last.diagnostics is not None
    assert last.diagnostics.cache_miss_reason is not None
    assert last.diagnostics.cache_miss_reason.type == "system_changed"


async def test_chats_and_responses_of_a_growing_conversation(
    openai: AsyncOpenAI, deployment: Deployment, client: PlainClient
) -> None:
    key = deployment.account("talkers", "tom")
    api = openai.with_options(api_key=key)
    turns: list[Any] = [{"role": "system", "content": text_of("talk rules", 60)}]
    known = 0
    for number in range(3):
        turns.append({"role": "user", "content": text_of(f"talk {number}", 25)})
        chat = await api.chat.completions.create(
            model=client.model, messages=turns, max_tokens=1, temperature=0
        )
        usage = chat.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        read = whole_blocks(min(known, usage.prompt_tokens - 1))
        assert usage.prompt_tokens_details.cached_tokens == read
        answer = await api.responses.create(
            model=client.model,
            instructions=turns[0]["content"],
            input=turns[1:],
            max_output_tokens=1,
            prompt_cache_key="talk",
        )
        assert answer.usage is not None
        assert answer.usage.input_tokens == usage.prompt_tokens
        again = whole_blocks(usage.prompt_tokens - 1)
        assert answer.usage.input_tokens_details.cached_tokens == again
        known = usage.prompt_tokens
        turns.append({"role": "assistant", "content": chat.choices[0].message.content or "."})
