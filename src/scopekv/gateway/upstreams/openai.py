"""OpenAI's bodies: chat completions and Responses, with markers where another scope begins.

Its cache is automatic: exact prefixes from 1,024 tokens on, in steps of 128 (before GPT-5.6) or up
to a breakpoint, within one organisation. Strings stay strings: a marker is put inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scopekv.core.policy import PartRole
from scopekv.errors import Misuse
from scopekv.gateway.upstreams.cutting import Cuts, Piece, Stretch
from scopekv.gateway.upstreams.marking import Body, Markers, joined, role_of, schema_marked

_TEXTS = ("text", "input_text", "output_text")


def chat_pieces(body: Body) -> list[Piece]:
    """The contents of a chat, in order. Raises `Misuse`."""
    pieces: list[Piece] = []
    for message in body["messages"]:
        if not isinstance(message, dict):
            raise Misuse("each message must be an object with a role")
        pieces += _pieces(role_of(message.get("role")), message.get("content"))
    return pieces


def chat_sent(body: Body, cuts: Cuts, markers: Markers) -> Body:
    """The chat as it is sent. Its length in messages is what it was."""
    rest = iter(cuts)
    messages = [
        m | {"content": _content(m.get("content"), rest, markers, "text")} for m in body["messages"]
    ]
    return body | {"messages": messages}


def responses_pieces(body: Body) -> list[Piece]:
    """The instructions, then the items. Raises `Misuse`."""
    instructions, given = body.get("instructions"), body["input"]
    if not isinstance(instructions, str | None):
        raise Misuse("instructions must be a string")
    pieces = [Piece(PartRole.SYSTEM, instructions)] if instructions else []
    if isinstance(given, str):
        return [*pieces, Piece(PartRole.MESSAGES, given)]
    for item in given:
        if not isinstance(item, dict):
            raise Misuse("each item of input must be an object")
        if "role" in item:
            pieces += _pieces(role_of(item["role"]), item.get("content"))
        else:
            pieces.append(Piece(PartRole.MESSAGES, None))
    return pieces


def responses_sent(body: Body, cuts: Cuts, markers: Markers) -> Body:
    """The request as it is sent; before an item that is no message, a marker is one itself."""
    rest = iter(cuts)
    sent = dict(body)
    if body.get("instructions"):
        sent["instructions"] = joined(list(next(rest)), markers)
    if isinstance(body["input"], str):
        return sent | {"input": joined(list(next(rest)), markers)}
    items: list[Any] = []
    for item in body["input"]:
        if "role" in item:
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            items.append(item | {"content": _content(item.get("content"), rest, markers, kind)})
            continue
        marker = joined(list(next(rest)), markers)
        items += [{"role": "user", "content": marker}, item] if marker else [item]
    return sent | {"input": items}


def beside_marked(body: Body, tools_marker: str, schema_marker: str) -> Body:
    """Mark the tools and the answer's schema, which may stand before all text of a prompt."""
    sent = dict(body)
    if isinstance(body.get("tools"), list):
        sent["tools"] = _tools(body["tools"], tools_marker)
    for name, inner in (("response_format", "json_schema"), ("text", "format")):
        outer = body.get(name)
        form = outer.get(inner) if isinstance(outer, dict) else None
        if isinstance(form, dict) and isinstance(form.get("schema"), dict):
            found = schema_marked(form["schema"], schema_marker)
            sent[name] = {
                **body[name],
                inner: schema_marked(form, schema_marker) | {"schema": found},
            }
    return sent


def _tools(tools: Sequence[Any], marker: str) -> list[Any]:
    """The marker begins the description of the first tool that is the client's own."""
    made = list(tools)
    for index, tool in enumerate(made):
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
            made[index] = tool | {"function": schema_marked(tool["function"], marker)}
            break
        if isinstance(tool, dict) and tool.get("type", "function") in ("function", "custom"):
            made[index] = schema_marked(tool, marker)
            break
    return made


def _pieces(role: PartRole, content: Any) -> list[Piece]:
    if content is None or isinstance(content, str):
        return [Piece(role, content)]
    if not isinstance(content, list):
        raise Misuse("content must be a string or a list of parts")
    return [Piece(role, _text(part)) for part in content]


def _text(part: Any) -> str | None:
    if not isinstance(part, dict):
        raise Misuse("a part of a content must be an object")
    if part.get("type") not in _TEXTS:
        return None
    if not isinstance(part.get("text"), str):
        raise Misuse("a text part must have a string 'text'")
    return str(part["text"])


def _content(content: Any, rest: Iterator[Sequence[Stretch]], markers: Markers, kind: str) -> Any:
    if content is None:
        return joined(list(next(rest)), markers) or None
    if isinstance(content, str):
        return joined(list(next(rest)), markers)
    parts: list[Any] = []
    for part in content:
        text = joined(list(next(rest)), markers)
        if part.get("type") in _TEXTS:
            parts.append(part | {"text": text})
        else:
            parts += [{"type": kind, "text": text}, part] if text else [part]
    return parts
