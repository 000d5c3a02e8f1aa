"""OpenAI's Responses API: `/v1/responses`, without its server-side memory.

A stored response would be found by whoever names it, and an engine keeps them for all alike: so
nothing is stored, and what would read a stored one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scopekv.errors import Misuse
from scopekv.gateway.apis.api import Api, Body, Head, unchanged
from scopekv.gateway.template import NotRenderable
from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import EventTap, Shares, Tap

RESPONSES = "/v1/responses"
_STORED = ("previous_response_id", "conversation", "previous_input_messages")
# What changes the rendered prompt in ways that only the engine knows.
_ENGINE_RENDERS = ("reasoning", "prompt", "text", "chat_template_kwargs")
_RETENTIONS = (None, "in_memory", "in-memory", "24h")
_ITEM_FIELDS = {"type", "role", "content", "id", "status"}


def checked(body: Body) -> Body:
    """Refuse what rests on stored responses; nothing of this one is stored."""
    for name in _STORED:
        if body.get(name):
            raise Misuse(f"{name}: nothing is stored here; send the whole conversation as input")
    if body.get("background"):
        raise Misuse("background responses are not available here: nothing is stored")
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        raise Misuse("input must be a text or a list of items")
    if body.get("prompt_cache_retention") not in _RETENTIONS:
        raise Misuse("prompt_cache_retention must be in_memory or 24h")
    return body | {"store": False}


def _for_engine(body: Body) -> Body:
    """An engine keeps blocks as its operator says."""
    return {key: value for key, value in body.items() if key != "prompt_cache_retention"}


def as_chat(body: Body) -> Mapping[str, Any]:
    """The request as a chat. Raises `NotRenderable` for what only the engine can render."""
    if any(body.get(name) for name in _ENGINE_RENDERS) or body.get("tools"):
        raise NotRenderable("a field that changes what the template renders")
    if body.get("truncation", "disabled") != "disabled":
        raise NotRenderable("an input that the engine may shorten")
    messages: list[dict[str, Any]] = []
    instructions = body.get("instructions")
    if instructions:
        if not isinstance(instructions, str):
            raise Misuse("instructions must be a string")
        messages.append({"role": "system", "content": instructions})
    given = body["input"]
    if isinstance(given, str):
        return {"messages": [*messages, {"role": "user", "content": given}]}
    return {"messages": [*messages, *(_message(item) for item in given)]}


def _paths(body: Body) -> list[str]:
    head = ["$.instructions"] if body.get("instructions") else []
    if isinstance(body["input"], str):
        return [*head, "$.input"]
    return [*head, *(f"$.input[{index}].content" for index in range(len(body["input"])))]


def _message(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or not item.keys() <= _ITEM_FIELDS:
        raise NotRenderable("an item that is not a message")
    if item.get("type", "message") != "message" or item.get("status", "completed") != "completed":
        raise NotRenderable("an item that is not a whole message")
    role = {"developer": "system"}.get(str(item.get("role")), item.get("role"))
    content = item.get("content")
    if isinstance(content, list):
        content = [_part(part) for part in content]
    return {"role": role, "content": content}


def _part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in ("input_text", "output_text", "text"):
        raise NotRenderable("a part that is not text")
    return {"type": "text", "text": part.get("text")}


def _with_ids(body: Body, _tokens: Tokens) -> Body:
    """`input` must be present; the instructions are in the tokens already."""
    less = {key: value for key, value in body.items() if key != "instructions"}
    return less | {"input": [{"role": "user", "content": ""}]}


def _tap(_body: Body, shares: Shares | None, _head: Head) -> Tap:
    return EventTap(shares)


RESPONSES_API = Api(
    path=RESPONSES,
    text="input",
    check=checked,
    chat=as_chat,
    paths=_paths,
    engine=_for_engine,
    with_ids=_with_ids,
    answer=unchanged,
    tap=_tap,
)
