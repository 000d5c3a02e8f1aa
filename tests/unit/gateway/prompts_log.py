"""The prepared prompts as a log of requests, and what an engine and `scopekv lint` say of each."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from scopekv.cli.lint import lint
from scopekv.simulate.client import Answer, PlainClient
from tests.unit.gateway.broken_prompts import (
    BROKEN,
    CLEAN,
    MODEL,
    RULES,
    SEARCH,
    TALK,
    chat,
    tool,
)
from tests.unit.gateway.more_broken_prompts import CHAT, MESSAGES, RESPONSES, messages

Sent = tuple[str, dict[str, Any]]
COMPLETIONS = "/v1/completions"
# Scopes that differ where tokens do not, and one text in every API. All of it was read before.
MORE: list[Sent] = [
    (CHAT, chat("", TALK[0], user="u1")),
    (CHAT, chat("", TALK[0], user="u2")),
    (CHAT, chat("", TALK[0], tools=[SEARCH])),
    (CHAT, chat("", TALK[0], tools=[tool("other")])),
    (CHAT, chat(RULES, TALK[0], user="u1")),
    (MESSAGES, messages(RULES, TALK[0], metadata={"user_id": "u1"})),
    (MESSAGES, messages(RULES, TALK[0], TALK[1], TALK[2])),
    (RESPONSES, {"instructions": RULES, "input": TALK[0]}),
    (COMPLETIONS, {"prompt": TALK[0]}),
    (COMPLETIONS, {"prompt": TALK[0] + " " + TALK[1]}),
]


def requests(model: str) -> list[Sent]:
    """The prepared prompts, each broken pair and each clean one, for an engine of one model."""
    pairs = [row[2:] for row in BROKEN] + [row[1:] for row in CLEAN]
    prepared = [(CHAT, body) for pair in pairs for body in pair if body["model"] == MODEL]
    made = []
    for path, body in prepared + MORE:
        most = "max_output_tokens" if path == RESPONSES else "max_tokens"
        whole = body | {"model": model, most: 1}
        if "tools" in body:
            whole["tool_choice"] = "none"
        made.append((path, whole))
    return made


def _cached(answer: Answer) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them came from the cache."""
    assert answer.status == 200, answer.content[:300]
    usage = answer.json["usage"]
    if "cache_read_input_tokens" in usage:
        read, made = usage["cache_read_input_tokens"], usage.get("cache_creation_input_tokens") or 0
        return usage["input_tokens"] + read + made, read
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return usage.get("prompt_tokens") or usage["input_tokens"], details["cached_tokens"]


async def measured(client: PlainClient, key: str) -> list[tuple[int, int]]:
    """Send them all, one after the other. Prompt and cached tokens of each."""
    return [
        _cached(await client.send("POST", path, body, key=key))
        for path, body in requests(client.model)
    ]


async def expected(model: str, model_dir: Path, folder: Path) -> list[tuple[int, int]]:
    """The same from `scopekv lint`, which asks no engine."""
    log = folder / "log.jsonl"
    rows = [json.dumps({"api": path, "body": body}) for path, body in requests(model)]
    log.write_text("\n".join(rows))
    options = ["--model-dir", str(model_dir), "--window", "200", "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, lint, [str(log), *options])
    assert result.exit_code == 0, result.output
    return [(row["prompt_tokens"], row["expected_tokens"]) for row in json.loads(result.stdout)]
