"""A request's prompt cut into pieces that know which text of the request they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scopekv.core.explaining import Kind, Piece, ReadPrompt
from scopekv.core.policy import may_read
from scopekv.core.scopes import Narrowing
from scopekv.core.segments import Segment
from scopekv.errors import Misuse
from scopekv.gateway.apis import Api
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.prompts import (
    Caller,
    Chat,
    ModelText,
    chat_prompt,
    completion_prompt,
    private_prompt,
    rendered_chat,
)
from scopekv.gateway.template import Message
from scopekv.gateway.tokens import Stretch

_IDS_END = 1 << 32
_KINDS = {
    "system": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.TOOL,
}


def read_prompt(api: Api, body: Mapping[str, Any], model: ModelText, caller: Caller) -> ReadPrompt:
    """Read one request of this caller; its `user` narrows as it does when it is sent.

    Raises `NotRenderable` where only the engine can render it, `Misuse` where nobody can.
    """
    name = str(body.get("model"))
    paths = api.paths(dict(body))
    caller = _narrowed(caller, body)
    if api.chat is None:
        return _completion(name, paths[0], body["prompt"], model, caller)
    asked = api.chat(dict(body))
    chat = rendered_chat(asked, model)
    pieces = []
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
    segments = chat_prompt(asked, caller, model).segments
    return _read(name, pieces, model, chat.tools or (), caller, segments, special=False)


def _completion(
    name: str, path: str, given: str | list[Any], model: ModelText, caller: Caller
) -> ReadPrompt:
    """A plain prompt. Lists share nothing, as in `gateway.reading`; ids are read as ids."""
    if isinstance(given, str):
        segments = completion_prompt(given, caller, model).segments
        pieces = [(Kind.USER, path, given)]
        return _read(name, pieces, model, (), caller, segments, special=True)
    segments = private_prompt(caller).segments
    if len(given) == 1 and isinstance(given[0], str | list):
        (given,) = given
    if isinstance(given, str):
        pieces = [(Kind.USER, path, given)]
        return _read(name, pieces, model, (), caller, segments, special=True)
    if not given or not all(type(one) is int and 0 <= one < _IDS_END for one in given):
        raise Misuse("only one prompt can be compared: a text, or token ids from 0 on")
    piece = Piece(Kind.USER, path, model.tokenizer.text(given), len(given))
    bounds = tuple((segment.end, segment.scope) for segment in segments)
    return ReadPrompt(name, (piece,), given, segments=bounds)


def _narrowed(caller: Caller, body: Mapping[str, Any]) -> Caller:
    asked = caller.narrowing
    end_user = asked.end_user or str(body.get("user") or "")
    return replace(caller, narrowing=Narrowing(end_user=end_user, session=asked.session))


def _tools_at(chat: Chat) -> int:
    """Which stretch of glue shows the tools; -1: none does."""
    if not chat.tools:
        return -1
    first = chat.tools[0]
    function = first.get("function")
    name = str((function if isinstance(function, dict) else first).get("name"))
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
    caller: Caller,
    segments: Sequence[Segment],
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
    bounds = tuple((segment.end, segment.scope) for segment in segments)
    here = _documents(caller, text)
    return ReadPrompt(name, tuple(read), tokens.ids(), tuple(tools), here, bounds)


def _documents(caller: Caller, text: str) -> tuple[str, ...]:
    """Texts of the documents in it that the caller may read.

    Permission first: what others published costs no time that could tell (L10).
    """
    return tuple(
        one.text
        for one in caller.documents.documents
        if may_read(caller.principal, one.document)[0] and one.text in text
    )
