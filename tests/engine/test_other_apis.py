"""Messages and Responses on the real engine: the official clients, and usage right to the token."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from openai import AsyncOpenAI

from scopekv.simulate.client import PlainClient
from scopekv.simulate.stage import text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
BLOCK = 32
Keys = dict[str, str]


async def test_messages_whole_and_streamed(client: PlainClient, keys: Keys, document: str) -> None:
    ask: dict[str, Any] = {
        "model": client.model,
        "max_tokens": 3,
        "system": [{"type": "text", "text": document, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": text_of("messages", 40)}],
    }
    read = []
    for who in ("alice", "bob", "alice"):
        async with anthropic.AsyncAnthropic(base_url=client.url, api_key=keys[who]) as api:
            counted = await api.messages.count_tokens(
                model=ask["model"], system=ask["system"], messages=ask["messages"]
            )
            if who == "bob":
                async with api.messages.stream(**ask) as stream:
                    usage = (await stream.get_final_message()).usage
            else:
                usage = (await api.messages.create(**ask)).usage
        cached, made = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        assert usage.input_tokens + cached + made == counted.input_tokens
        read.append((cached, counted.input_tokens))
    assert read[0][0] == read[1][0] > 3 * BLOCK, "the document, which is public"
    assert read[2][0] == read[2][1] // BLOCK * BLOCK, "all of one's own but the last partial block"


async def test_responses_share_the_blocks_of_chats(client: PlainClient, keys: Keys) -> None:
    system, text = text_of("responses rules", 40), text_of("responses", 40)
    first = await client.chat(keys["alice"], system, text)
    url = f"{client.url}/v1"
    async with AsyncOpenAI(base_url=url, api_key=keys["alice"]) as api:
        answer = await api.responses.create(
            model=client.model, instructions=system, input=text, max_output_tokens=3
        )
    assert answer.usage is not None
    total = int(first.json["usage"]["prompt_tokens"])
    assert answer.usage.input_tokens == total
    assert answer.usage.input_tokens_details.cached_tokens == total // BLOCK * BLOCK
