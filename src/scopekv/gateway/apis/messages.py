"""Anthropic's Messages API: `/v1/messages`, with cache_control, and its errors.

Sharing is automatic, so a breakpoint (`cache_control`) asks for what is done anyway: it is checked
as Anthropic documents it (at most 4, a TTL of 5m or 1h) and leaves the prompt's tokens unchanged.
How long a block stays is the operator's retention, and room in the tiers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from scopekv.errors import Misuse
from scopekv.gateway.apis.api import Api, Body, Head
from scopekv.gateway.http.messages import Failure
from scopekv.gateway.template import NotRenderable
from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import EventTap, Shares, Tap, Usage, read_usage

MESSAGES = "/v1/messages"
COUNT_TOKENS = f"{MESSAGES}/count_tokens"
BREAKPOINTS_MAX = 4
TTLS = ("5m", "1h")
_PREVIOUS = "previous_message_id"
_START, _DATA = b"event: message_start", b"data:"
_ID, _REQUEST_ID = "msg_", "req_"
# What changes the rendered prompt in ways that only the engine knows.
_ENGINE_RENDERS = ("chat_template_kwargs", "thinking", "output_config")
_BLOCK_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "cache_control", "is_error"},
}


def checked(body: Body) -> Body:
    """Check the shape and the breakpoints; the end user that `metadata` names becomes `user`."""
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise Misuse("messages must be a list with at least one message")
    most = body.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise Misuse("max_tokens must be a whole number; 0 only reads the prompt into the cache")
    if most == 0 and body.get("stream"):
        raise Misuse("max_tokens 0 has no answer to stream: leave out stream")
    asked = body.get("diagnostics") or {}
    if not isinstance(asked, dict) or not isinstance(asked.get(_PREVIOUS), str | None):
        raise Misuse(f"diagnostics must be an object with {_PREVIOUS}, a message's id or null")
    _check_breakpoints(body)
    metadata = body.get("metadata")
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(named, str | None):
        raise Misuse("metadata.user_id must be a string")
    rest = {key: value for key, value in body.items() if key != "metadata"}
    return {**rest, "user": named} if named and not body.get("user") else rest


def _check_breakpoints(body: Body) -> None:
    count = 0
    for block in _blocks(body):
        control = block.get("cache_control")
        if control is None:
            continue
        count += 1
        if not isinstance(control, dict) or control.get("type") != "ephemeral":
            raise Misuse('cache_control must be {"type": "ephemeral"}, with a ttl of 5m or 1h')
        if control.get("ttl", TTLS[0]) not in TTLS:
            raise Misuse("cache_control.ttl must be 5m or 1h")
    if count > BREAKPOINTS_MAX:
        raise Misuse(f"{count} blocks have cache_control; a request takes {BREAKPOINTS_MAX}")


def _blocks(body: Body) -> Iterator[Mapping[str, Any]]:
    """Everything that may carry a breakpoint, in the prompt's order. The body itself is one."""
    yield body
    places = [body.get("tools"), body.get("system")]
    places += [m.get("content") for m in body["messages"] if isinstance(m, dict)]
    for place in places:
        if isinstance(place, list):
            yield from (block for block in place if isinstance(block, dict))


def as_chat(body: Body) -> Mapping[str, Any]:
    """The request as a chat. Raises `NotRenderable` for what only the engine can render."""
    if any(body.get(name) for name in _ENGINE_RENDERS):
        raise NotRenderable("a field that changes what the template renders")
    chat: dict[str, Any] = {"messages": [message for _, message in _placed(body)]}
    if body.get("tools"):
        chat["tools"] = [_tool(tool) for tool in _list(body["tools"], "tools")]
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") == "none":
            chat["tool_choice"] = "none"
    return chat


def _placed(body: Body) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages of the chat, each with its JSON path in the request."""
    system = _texts(body.get("system"), "system")
    if system:
        yield "$.system", {"role": "system", "content": _parts(system)}
    for index, message in enumerate(body["messages"]):
        for place, made in _message(message):
            yield f"$.messages[{index}].content{place}", made


def _message(message: Any) -> list[tuple[str, dict[str, Any]]]:
    """One message as one or more of a chat: each tool result is a message of its own there."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        raise NotRenderable("a message of a role of its own kind")
    role, content = message["role"], message.get("content")
    if isinstance(content, str):
        return [("", {"role": role, "content": content})]
    made: list[tuple[str, dict[str, Any]]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(_list(content, "content")):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _BLOCK_FIELDS:
            raise NotRenderable("a block of its own kind")
        if not block.keys() <= _BLOCK_FIELDS[kind]:
            raise NotRenderable("a block with fields of its own kind")
        if kind == "text":
            texts += _texts([block], "content")
        elif kind == "tool_use" and role == "assistant":
            calls.append(_call(block))
        elif kind == "tool_result" and role == "user":
            result = "\n".join(_texts(block.get("content"), "content"))
            name = str(block.get("tool_use_id") or "")
            told = {"role": "tool", "tool_call_id": name, "content": result}
            made.append((f"[{index}].content", told))
        else:
            raise NotRenderable("a tool's use or result on the other side")
    if texts or calls:
        own: dict[str, Any] = {"role": role, "content": _parts(texts)}
        made.append(("", own | ({"tool_calls": calls} if calls else {})))
    return made


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})}
    return {"id": block.get("id") or "", "type": "function", "function": function}


def _tool(tool: Any) -> dict[str, Any]:
    """A tool in OpenAI's form, its members as the engine makes them of Anthropic's."""
    if not isinstance(tool, dict) or "input_schema" not in tool or tool.get("defer_loading"):
        raise NotRenderable("a tool of its own kind")
    schema = tool["input_schema"]
    if not isinstance(schema, dict):
        raise Misuse("input_schema must be an object")
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
    }
    strict = {"strict": tool["strict"]} if tool.get("strict") is not None else {}
    return {"type": "function", "function": function | strict}


def _texts(content: Any, name: str) -> list[str]:
    """The texts of a content of text alone."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    texts = []
    for block in _list(content, name):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise NotRenderable("a block that is not text")
        if not isinstance(block.get("text"), str):
            raise Misuse("a text block must have a string 'text'")
        texts.append(block["text"])
    return texts


def _parts(texts: list[str]) -> str | list[dict[str, str]]:
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Misuse(f"{name} must be a string or a list of blocks")
    return value


def _with_ids(body: Body, _tokens: Tokens) -> Body:
    """`messages` must be present; the system text is in the tokens already."""
    less = {key: value for key, value in body.items() if key != "system"}
    return less | {"messages": [{"role": "user", "content": ""}]}


def _for_engine(body: Body) -> Body:
    """An engine makes at least one token, and compares nothing."""
    rest = {key: value for key, value in body.items() if key != "diagnostics"}
    return rest if rest.get("max_tokens") else {**rest, "max_tokens": 1}


def _head(request_id: str) -> Head:
    """An answer is named after its request, so that a later one can name it."""
    return {"id": _ID + request_id.removeprefix(_REQUEST_ID)}


def _compared_with(body: Body) -> str | None:
    name = (body.get("diagnostics") or {}).get(_PREVIOUS)
    return None if name is None else _REQUEST_ID + name.removeprefix(_ID)


def _answer(body: Body, content: bytes, head: Head) -> bytes:
    """Of a request that only read its prompt into the cache, an answer without words."""
    answer = {**msgspec.json.decode(content), **head}
    if not body.get("max_tokens", 1):
        answer["usage"]["output_tokens"] = 0
        answer |= {"content": [], "stop_reason": "max_tokens"}
    return msgspec.json.encode(answer)


class _MessagesTap(EventTap):
    """Writes the gateway's own members into the event that holds the message's beginning.

    That one tells what was read; the last need not, and then tells the answer's tokens alone.
    """

    __slots__ = ("_began", "_head")

    def __init__(self, shares: Shares | None, head: Head) -> None:
        super().__init__(shares)
        self._head, self._began = head, Usage()

    def _event(self, event: bytes, mark: bytes) -> bytes:
        named, found, data = event.partition(_DATA)
        if not found or not named.startswith(_START):
            return super()._event(event, mark)
        start = msgspec.json.decode(data)
        self._began = read_usage(msgspec.json.encode(start["message"])) or self._began
        start["message"] |= self._head
        return b"%b%b %b%b" % (named, _DATA, msgspec.json.encode(start), mark)

    def _counted(self, usage: Usage) -> Usage:
        began = self._began
        if usage.prompt_tokens:
            return usage
        return Usage(began.prompt_tokens, usage.completion_tokens, began.cached)


def _tap(_body: Body, shares: Shares | None, head: Head) -> Tap:
    return _MessagesTap(shares, head)


@dataclass(frozen=True, slots=True)
class MessagesFailure(Failure):
    """An error in Anthropic's form; in a stream, an event named `error`."""

    def body(self) -> bytes:
        kinds = {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}
        kind = kinds.get(self.status) or ("api_error" if self.status >= 500 else self.type)
        error = {"type": kind, "message": self.message}
        return json.dumps({"type": "error", "error": error}).encode()

    def event(self) -> bytes:
        return b"event: error\ndata: %b\n\n" % self.body()


def worded(failure: Failure) -> Failure:
    """A failure in Anthropic's form."""
    return MessagesFailure(*astuple(failure))


MESSAGES_API = Api(
    path=MESSAGES,
    text="messages",
    check=checked,
    chat=as_chat,
    paths=lambda body: [path for path, _ in _placed(body)],
    engine=_for_engine,
    with_ids=_with_ids,
    answer=_answer,
    tap=_tap,
    head=_head,
    compared_with=_compared_with,
)
