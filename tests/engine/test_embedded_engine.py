"""Stock vLLM, started by us, answers with the converted model."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from scopekv.engines.embedded import EngineInstance
from scopekv.engines.model import MODEL_NAME

pytestmark = [pytest.mark.engine]


def post(instance: EngineInstance, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        instance.url + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {instance.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.mark.asyncio(loop_scope="session")
async def test_the_engine_names_the_capital_of_france(stock: EngineInstance) -> None:
    body = {
        "model": MODEL_NAME,
        "prompt": "The capital of France is",
        "max_tokens": 3,
        "temperature": 0,
    }
    answer = await asyncio.to_thread(post, stock, "/v1/completions", body)
    assert "Paris" in answer["choices"][0]["text"]
    # Long enough for whole blocks of 32 tokens to come from the cache the second time.
    body |= {"prompt": "A short story about a lighthouse. " * 20}
    cached = [
        (await asyncio.to_thread(post, stock, "/v1/completions", body))["usage"][
            "prompt_tokens_details"
        ]["cached_tokens"]
        for _ in range(2)
    ]
    assert cached[0] == 0
    assert cached[1] >= 128
    assert cached[1] % 32 == 0


def test_transformers_reads_the_folders_tokenizer_as_it_is(model_dir: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    text = "<|im_start|>user\nIt's 2024, naïve 東京.<|im_end|>\n"
    ours = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(model_dir)
    assert theirs.encode(text) == ours.encode(text).ids
    messages = [{"role": "user", "content": "Hi"}]
    shown = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert shown.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert (theirs.eos_token_id, theirs.pad_token_id, theirs.bos_token_id) == (2, 2, 1)
