"""OpenAI's bodies: chat completions and Responses, with markers where another scope begins.

Its cache is automatic: exact prefixes from 1,024 tokens on, within one organisation. Before GPT-5.6
in steps of 128; since then only up to a breakpoint, of which one is set at the end by itself and at
most three of the request's own are written (four without that one). Strings stay strings, a marker
put inside, but where a breakpoint is to stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv.core.policy import PartRole
from scopekv.errors import Misuse
from scopekv.gateway.upstreams.cutting import Cuts, Piece, Stretch
from scopekv.gateway.upstreams.marking import (
    Body,
    Markers,
    joined,
    marked,
    role_of,
    says_more,
    schema_marked,
)

_TEXTS = ("text", "input_text", "output_text")
_BREAKPOINT = "prompt_cache_breakpoint"
_MESSAGE_FIELDS = ("role", "content")
_ITEM_FIELDS = (*_MESSAGE_FIELDS, "type", "id", "status")
_PART_FIELDS = ("type", "text", _BREAKPOINT)
_WRITTEN_MAX = 4


@dataclass(slots=True, repr=False)
class _Laid:
    """Parts as they are laid out, and after which of them another scope begins."""

    own: int = 0  # the client's own breakpoints
    last: dict[str, Any] | None = None  # that may be one
    before_another: list[dict[str, Any]] = field(default_factory=list)

    def begins(self) -> None:
        """The next part is another scope's first."""
        if self.last is not None and _BREAKPOINT not in self.last:
            self.before_another.append(self.last)
            self.last = None

    def add(self, part: dict[str, Any]) -> dict[str, Any]:
        self.own += _BREAKPOINT in part
        self.last = part
        return part

    def place(self, options: Any) -> None:
        """Make breakpoints of them while there is room; the client's own stay."""
        explicit = isinstance(options, dict) and options.get("mode") == "explicit"
        room = max(0, _WRITTEN_MAX - (0 if explicit else 1) - self.own)
        for part in self.before_another[:room]:
            part[_BREAKPOINT] = {"mode": "explicit"}


def chat_pieces(body: Body) -> list[Piece]:
    """The contents of a chat, in order. Raises `Misuse`."""
    pieces: list[Piece] = []
    for message in body["messages"]:
        if not isinstance(message, dict):
            raise Misuse("each message must be an object with a role")
        role = role_of(message.get("role"))
        if says_more(message, _MESSAGE_FIELDS):
            pieces.append(Piece(role, None))
        pieces += _pieces(role, message.get("content"))
    return pieces


def chat_sent(body: Body, cuts: Cuts, markers: Markers, *, breakpoints: bool) -> Body:
    """The chat as it is sent. Its length in messages is what it was.

    The marker of what a message says beside its text ends the message before, where there is one.
    """
    rest, laid = iter(cuts), _Laid()
    messages: list[Body] = []
    for message in body["messages"]:
        marker = ""
        if says_more(message, _MESSAGE_FIELDS):
            marker = joined(list(next(rest)), markers)
        if marker and messages:
            laid.begins()
            messages[-1]["content"] = _with(messages[-1]["content"], marker)
        splits = breakpoints and message.get("role") != "assistant"
        content = _content(message.get("content"), rest, markers, "text", laid, splits=splits)
        if marker and not messages:
            content = _with(content, marker, first=True)
        messages.append(message | {"content": content})
    if breakpoints:
        laid.place(body.get("prompt_cache_options"))
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
        if "role" not in item:
            pieces.append(Piece(PartRole.MESSAGES, None))
            continue
        role = role_of(item["role"])
        if says_more(item, _ITEM_FIELDS):
            pieces.append(Piece(role, None))
        pieces += _pieces(role, item.get("content"))
    return pieces


def responses_sent(body: Body, cuts: Cuts, markers: Markers, *, breakpoints: bool) -> Body:
    """The request as it is sent; before an item that is more than a message, a marker is one.

    Instructions are a string, and so take no breakpoint.
    """
    rest, laid = iter(cuts), _Laid()
    sent = dict(body)
    if body.get("instructions"):
        sent["instructions"] = joined(list(next(rest)), markers)
    if isinstance(body["input"], str):
        return sent | {"input": joined(list(next(rest)), markers)}
    items: list[Any] = []
    for item in body["input"]:
        if "role" not in item or says_more(item, _ITEM_FIELDS):
            marker = joined(list(next(rest)), markers)
            items += [{"role": "user", "content": marker}] if marker else []
        if "role" in item:
            answered = item["role"] == "assistant"
            kind, splits = ("output_text", False) if answered else ("input_text", breakpoints)
            content = _content(item.get("content"), rest, markers, kind, laid, splits=splits)
            items.append(item | {"content": content})
        else:
            items.append(item)
    if breakpoints:
        laid.place(body.get("prompt_cache_options"))
    return sent | {"input": items}


def beside_marked(body: Body, tools_marker: str, schema_marker: str) -> Body:
    """Mark the tools and the answer's schema, which may stand before all text of a prompt."""
    sent = dict(body)
    if isinstance(body.get("tools"), list):
        sent["tools"] = _tools(body["tools"], tools_marker)
    for name, inner in (("response_format", "json_schema"), ("text", "format")):
        outer = body.get(name)
        form = outer.get(inner) if isinstance(outer, dict) else None
        if isinstance(form, dict) and ("schema" in form or "description" in form):
            found = schema_marked(form, schema_marker)
            if "schema" in form:
                found["schema"] = schema_marked(form["schema"], schema_marker)
            sent[name] = {**body[name], inner: found}
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
    if not content and isinstance(content, str | list | None):
        return [Piece(role, None)]  # its calls may hold the first words of a scope
    if isinstance(content, str):
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
    return str(part["text"]) if _is_text(part) else None


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") in _TEXTS and not says_more(part, _PART_FIELDS)


def _with(content: Any, marker: str, *, first: bool = False) -> Any:
    """A content with a marker at its end, or as its first words."""
    if not content:
        return marker
    if isinstance(content, str):
        return marker + content if first else content + marker
    part = {"type": "text", "text": marker}
    return [part, *content] if first else [*content, part]


def _content(
    content: Any,
    rest: Iterator[Sequence[Stretch]],
    markers: Markers,
    kind: str,
    laid: _Laid,
    *,
    splits: bool,
) -> Any:
    """One content. `splits`: texts become one part for each stretch, which may be a breakpoint."""
    if not content:
        return joined(list(next(rest)), markers) or content
    if isinstance(content, str):
        stretches = list(next(rest))
        if not splits or not stretches:
            return joined(stretches, markers)
        return _split({"type": kind, "text": content}, stretches, markers, laid)
    parts: list[Any] = []
    for part in content:
        stretches = list(next(rest))
        if not _is_text(part):
            text = joined(stretches, markers)
            parts += [{"type": kind, "text": text}, part] if text else [part]
        elif splits and stretches:
            parts += _split(part, stretches, markers, laid)
        else:
            parts.append(part | {"text": joined(stretches, markers)})
    return parts


def _split(
    part: dict[str, Any], stretches: Sequence[Stretch], markers: Markers, laid: _Laid
) -> list[dict[str, Any]]:
    """A text as one part for each stretch; the client's own breakpoint stays at its end."""
    made = []
    plain = {key: value for key, value in part.items() if key != _BREAKPOINT}
    for stretch in stretches:
        if stretch.begins is not None:
            laid.begins()
        one = plain | {"text": marked(stretch, markers)}
        if stretch is stretches[-1] and _BREAKPOINT in part:
            one[_BREAKPOINT] = part[_BREAKPOINT]
        made.append(laid.add(one))
    return made
