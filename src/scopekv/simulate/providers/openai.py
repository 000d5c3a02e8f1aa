"""OpenAI's prompt cache before GPT-5.6, as its documentation has it.

automatic                  for prompts of 1,024 tokens or more; tools, schema and text alike
read                       the longest prefix in common, in steps of 128 tokens
kept                       5 to 10 minutes from its last use (here 5), 24 hours where asked
shared                     within one organisation
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from scopekv.simulate.providers.words import words

MINIMUM_TOKENS = 1024
STEP_TOKENS = 128
KEEP_SECONDS = 300.0
LONG_SECONDS = 86_400.0


class PrefixCache:
    """Prompts of every organisation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str, tuple[str, ...]], float] = {}

    def use(self, organisation: str, body: Mapping[str, Any]) -> tuple[int, int]:
        """Return the tokens of the prompt, and how many of them were read."""
        prompt = _prompt(body)
        model, now = str(body["model"]), self._clock()
        most = 0
        for (owner, of, kept), until in self._kept.items():
            if (owner, of) == (organisation, model) and until > now:
                most = max(most, _common(prompt, kept))
        read = most // STEP_TOKENS * STEP_TOKENS if most >= MINIMUM_TOKENS else 0
        if len(prompt) >= MINIMUM_TOKENS:
            long = body.get("prompt_cache_retention") == "24h"
            seconds = LONG_SECONDS if long else KEEP_SECONDS
            self._kept[organisation, model, prompt] = now + seconds
        return len(prompt), read


def _prompt(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Tools and schema first, then what was said."""
    return laid_out(body)[0]


def laid_out(body: Mapping[str, Any]) -> tuple[tuple[str, ...], list[int]]:
    """The tokens, and after how many of them a breakpoint of the request's own stands."""
    parts: list[Any] = list(body.get("tools") or ())
    parts += [body[name] for name in ("response_format", "text") if body.get(name)]
    if body.get("instructions"):
        parts += ["system", body["instructions"]]
    given = body.get("messages") or body.get("input") or []
    tokens = list(chain.from_iterable(map(words, parts)))
    marks: list[int] = []
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        tokens += words(item.get("role", item.get("type", "")))
        content = item.get("content")
        for part in content if isinstance(content, list) else [{"text": content or ""}]:
            tokens += words(part.get("text", part))
            if "prompt_cache_breakpoint" in part:
                marks.append(len(tokens))
        rest = {k: v for k, v in item.items() if k not in ("role", "content")}
        tokens += words(rest) if rest else ()
    return tuple(tokens), marks


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _chosen(body: Mapping[str, Any]) -> str | None:
    """The function that the request chooses, if it does."""
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    tool = body["tools"][0]
    return str(tool.get("function", tool)["name"])


def chat_answer(
    body: Mapping[str, Any], prompt: int, read: int, written: int = 0
) -> dict[str, Any]:
    """A whole chat completion."""
    name = _chosen(body)
    message: dict[str, Any] = {"role": "assistant", "content": "four words of answer"}
    if name:
        function = {"name": name, "arguments": '{"word": "lamp"}'}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if name else "stop"}
    return _chat(body, "chat.completion") | {
        "choices": [choice],
        "usage": _usage(prompt, read, written),
    }


def chat_events(body: Mapping[str, Any], prompt: int, read: int) -> Iterator[bytes]:
    """The same as a stream; the usage where it is asked for."""
    message = chat_answer(body, prompt, read)["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if message["content"]:
        deltas += [{"content": word + " "} for word in message["content"].split(" ")]
    else:
        deltas.append({"tool_calls": [{"index": 0} | message["tool_calls"][0]]})
    head = _chat(body, "chat.completion.chunk")
    for delta in deltas:
        yield _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    ended = {
        "index": 0,
        "delta": {},
        "finish_reason": "stop" if message["content"] else "tool_calls",
    }
    yield _data(head | {"choices": [ended]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _data(head | {"choices": [], "usage": _usage(prompt, read)})
    yield b"data: [DONE]\n\n"


def response_answer(body: Mapping[str, Any], prompt: int, read: int) -> dict[str, Any]:
    """A whole response."""
    name = _chosen(body)
    text = {"type": "output_text", "text": "four words of answer", "annotations": []}
    item: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant"}
    item |= {"status": "completed", "content": [text]}
    if name:
        item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name}
        item |= {"arguments": '{"word": "lamp"}', "status": "completed"}
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 4,
    }
    return _response(body, "completed") | {"output": [item], "usage": usage}


def response_events(body: Mapping[str, Any], prompt: int, read: int) -> Iterator[bytes]:
    """The same as a stream: its beginning, the words, and the whole at the end."""
    begun = _response(body, "in_progress") | {"output": [], "usage": None}
    whole = response_answer(body, prompt, read)
    item = whole["output"][0]
    told: list[tuple[str, dict[str, Any]]] = [("created", {"response": begun})]
    place = {"output_index": 0}
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    bare = item | empty
    told.append(("output_item.added", place | {"item": bare}))
    inside = place | {"item_id": item["id"]}
    if item["type"] == "message":
        inside |= {"content_index": 0}
        part = item["content"][0]
        told.append(("content_part.added", inside | {"part": part | {"text": ""}}))
        told += [
            ("output_text.delta", inside | {"delta": word, "logprobs": []})
            for word in ("four ", "words ", "of ", "answer")
        ]
        told.append(("output_text.done", inside | {"text": part["text"], "logprobs": []}))
        told.append(("content_part.done", inside | {"part": part}))
    else:
        arguments = item["arguments"]
        told.append(("function_call_arguments.delta", inside | {"delta": arguments}))
        done = inside | {"arguments": arguments, "name": item["name"]}
        told.append(("function_call_arguments.done", done))
    told += [("output_item.done", place | {"item": item}), ("completed", {"response": whole})]
    for number, (kind, content) in enumerate(told):
        yield _named(f"response.{kind}", content | {"sequence_number": number})


def _chat(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body["model"]}


def _response(body: Mapping[str, Any], status: str) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": body["model"]}
    return head | {
        "status": status,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }


def _usage(prompt: int, read: int, written: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": read, "cache_write_tokens": written, "audio_tokens": 0}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": 4,
        "total_tokens": prompt + 4,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _data(content: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(content).encode()


def _named(kind: str, content: dict[str, Any]) -> bytes:
    data = json.dumps({"type": kind} | content).encode()
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
