"""A request's prompt cut into pieces that know which text of the request they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from scopekv.core.explaining import Kind, Piece, ReadPrompt
from scopekv.gateway.apis import Api
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.prompts import Chat, ModelText, rendered_chat
from scopekv.gateway.template import Message
from scopekv.gateway.tokens import Stretch

_KINDS = {
    "system": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.TOOL,
}


def read_prompt(
    api: Api, body: Mapping[str, Any], model: ModelText, documents: Sequence[str] = ()
) -> ReadPrompt:
    """Read one request. `documents`: texts of documents that its caller may read.

    Raises `NotRenderable` where only the engine can render it, `Misuse` where nobody can.
    """
    name = str(body["model"])
    paths = api.paths(dict(body))
    if api.chat is None:
        text = body["prompt"] if isinstance(body["prompt"], str) else json.dumps(body["prompt"])
        return _read(name, [(Kind.USER, paths[0], text)], model, (), documents, special=True)
    chat = rendered_chat(api.chat(dict(body)), model)
    pieces: list[tuple[Kind, str, str]] = []
    at = _tools_at(chat)
    for index, glue in enumerate(chat.rendered.glue):
        if index == at:
            pieces.append((Kind.TOOLS, "$.tools", glue))
        elif index and _shows_calls(glue, chat.messages[index - 1]):
            path = paths[index - 1]
            if api is CHAT_API:
                path = path.removesuffix("content") + "tool_calls"
            pieces.append((Kind.ASSISTANT, path, glue))
        else:
            pieces.append((Kind.TEMPLATE, "", glue))
        if index < len(chat.messages):
            role = _KINDS[chat.messages[index]["role"]]
            pieces.append((role, paths[index], chat.rendered.contents[index]))
    return _read(name, pieces, model, chat.tools or (), documents, special=False)


def _tools_at(chat: Chat) -> int:
    """Which stretch of glue shows the tools; -1: none does."""
    if not chat.tools:
        return -1
    first = chat.tools[0]
    name = str((first.get("function") or first).get("name"))
    return next((i for i, glue in enumerate(chat.rendered.glue) if name in glue), -1)


def _shows_calls(glue: str, message: Message) -> bool:
    """Whether what follows a message in the prompt is the calls that it made."""
    calls = message.get("tool_calls") or ()
    return any(str(call["function"].get("name")) in glue for call in calls)


def _read(
    name: str,
    pieces: Sequence[tuple[Kind, str, str]],
    model: ModelText,
    tools: Sequence[Mapping[str, Any]],
    documents: Sequence[str],
    *,
    special: bool,
) -> ReadPrompt:
    text = "".join(content for _, _, content in pieces)
    ends, position = [], 0
    for _, _, content in pieces:
        position += len(content)
        ends.append(position)
    marks = [Stretch(end, "explain") for end in ends]
    tokens, counts = model.tokenizer.tokenize(text, marks, special=special)
    read = [
        Piece(kind, path, content, count)
        for (kind, path, content), count in zip(pieces, counts, strict=True)
    ]
    here = tuple(document for document in documents if document in text)
    return ReadPrompt(name, tuple(read), tokens.ids(), tuple(tools), here)
