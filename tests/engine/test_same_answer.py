"""L7: a scoped hit gives bit for bit what a stock hit gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from scopekv.engines.embedded import EngineInstance
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.stage import text_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]
Keys = dict[str, str]
BLOCK = 32
GREEDY: dict[str, Any] = {"max_tokens": 12, "logprobs": True, "top_logprobs": 5}


def told(answer: Answer) -> tuple[int, list[Any]]:
    """Cached tokens, and every token with its log-probability and those of its rivals."""
    return answer.cached, answer.json["choices"][0]["logprobs"]["content"]


def document_ending_early_in_a_block(model_dir: Path) -> str:
    """So that the glue after it, which stock vLLM shares as well, fills no further block."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    for words in range(50, 90):
        text = text_of("equal", words)
        count = len(tokenizer.encode(f"<|im_start|>system\n{text}", add_special_tokens=False).ids)
        if 2 <= count % BLOCK <= 18:
            return text
    raise AssertionError("no length fits")


async def test_l7_scoped_hits_equal_stock_hits_bit_for_bit(
    model_dir: Path,
    deployment: Deployment,
    client: PlainClient,
    keys: Keys,
    stock: EngineInstance,
) -> None:
    document = document_ending_early_in_a_block(model_dir)
    deployment.publish("equal", "org:acme", document)
    plain = PlainClient(stock.url, client.model)
    turns = [("alice", "apples"), ("ann", "bridges"), ("ann", "bridges"), ("alice", "apples")]
    try:
        scoped, other = [], []
        for name, topic in turns:
            question = f"{topic}: {text_of('?', 12)}"
            scoped.append(told(await client.chat(keys[name], document, question, **GREEDY)))
            other.append(told(await plain.chat(stock.api_key, document, question, **GREEDY)))
    finally:
        await plain.close()
    cached = [count for count, _ in scoped]
    assert cached[0] == 0
    assert 3 * BLOCK < cached[1] < cached[2], "the document from another, then all from herself"
    assert cached == [count for count, _ in other]
    assert [content for _, content in scoped] == [content for _, content in other]
