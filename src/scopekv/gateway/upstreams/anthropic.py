"""Anthropic's bodies: markers where another scope begins, and breakpoints before it.

Its cache keeps what a request marks with `cache_control`: the prefix up to and with that block, in
the order tools, system, messages, at least 512 to 4,096 tokens by model, at most 4 marks. The block
before another scope's first text is the last one that all of the earlier scope share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv.core.policy import PartRole
from scopekv.errors import Misuse
from scopekv.gateway.apis.messages import BREAKPOINTS_MAX
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
from scopekv.gateway.upstreams.settings import HOUR, MINUTES

_UNMARKABLE = ("thinking", "redacted_thinking")  # blocks that take no cache_control


def pieces(body: Body) -> list[Piece]:
    """The system's blocks, then those of the messages. Raises `Misuse`."""
    found = _pieces(PartRole.SYSTEM, body.get("system") or [])
    for message in body["messages"]:
        if not isinstance(message, dict):
            raise Misuse("each message must be an object with a role")
        found += _pieces(role_of(message.get("role")), message.get("content"))
    return found


def _pieces(role: PartRole, content: Any) -> list[Piece]:
    if isinstance(content, str):
        return [Piece(role, content)]
    if not isinstance(content, list):
        raise Misuse("content must be a string or a list of blocks")
    return [Piece(role, _text(block)) for block in content]


def _text(block: Any) -> str | None:
    if not isinstance(block, dict):
        raise Misuse("a block of a content must be an object")
    if block.get("type") != "text":
        return None
    if not isinstance(block.get("text"), str):
        raise Misuse("a text block must have a string 'text'")
    return str(block["text"]) if _is_text(block) else None


def _is_text(block: dict[str, Any]) -> bool:
    """Not one with citations, say: those are words that may come before any of another's."""
    return block.get("type") == "text" and not says_more(block, ("type", "text", "cache_control"))


def beside_marked(body: Body, tools_marker: str, schema_marker: str) -> Body:
    """Mark the first tool of the client's own, and the answer's schema."""
    sent = dict(body)
    tools = list(body["tools"]) if isinstance(body.get("tools"), list) else []
    for index, tool in enumerate(tools):
        if isinstance(tool, dict) and "input_schema" in tool:
            tools[index] = schema_marked(tool, tools_marker)
            sent["tools"] = tools
            break
    outer = body.get("output_config")
    form = outer.get("format") if isinstance(outer, dict) else None
    if isinstance(form, dict) and isinstance(form.get("schema"), dict):
        found = form | {"schema": schema_marked(form["schema"], schema_marker)}
        sent["output_config"] = body["output_config"] | {"format": found}
    return sent


@dataclass(slots=True, repr=False)
class _Laid:
    """Blocks as they are laid out, and after which of them another scope begins."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    before_another: list[int] = field(default_factory=list)

    def begins(self) -> None:
        """The next block is another scope's first."""
        last = len(self.blocks) - 1
        while last >= 0 and not _takes_control(self.blocks[last]):
            last -= 1
        if last >= 0 and last not in self.before_another:
            self.before_another.append(last)

    def add(self, block: dict[str, Any]) -> dict[str, Any]:
        self.blocks.append(block)
        return block


def sent(body: Body, cuts: Cuts, markers: Markers, *, ttl: str | None) -> Body:
    """The request as it is sent. `ttl`: of the breakpoints that are added; None: none are."""
    made, laid, rest = dict(body), _Laid(), iter(cuts)
    if isinstance(body.get("tools"), list):
        made["tools"] = [laid.add(dict(tool)) for tool in body["tools"]]
    if body.get("system"):
        made["system"] = _content(body["system"], rest, markers, laid)
    made["messages"] = [
        message | {"content": _content(message["content"], rest, markers, laid)}
        for message in body["messages"]
    ]
    if ttl is not None:
        _place(laid, body.get("cache_control"), ttl)
    return made


def _content(content: Any, rest: Any, markers: Markers, laid: _Laid) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    made: list[dict[str, Any]] = []
    for block in blocks:
        stretches: Sequence[Stretch] = next(rest)
        if _is_text(block):
            made += _texts(block, stretches, markers, laid)
            continue
        if any(stretch.begins for stretch in stretches):
            laid.begins()
            marker = joined(list(stretches), markers)
            made += [laid.add({"type": "text", "text": marker})] if marker else []
        made.append(laid.add(dict(block)))
    return made


def _texts(
    block: dict[str, Any], stretches: Sequence[Stretch], markers: Markers, laid: _Laid
) -> list[dict[str, Any]]:
    """A text as one block for each stretch; the client's own breakpoint stays at its end."""
    made = []
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    for stretch in stretches:
        if stretch.begins is not None:
            laid.begins()
        made.append(laid.add(plain | {"text": marked(stretch, markers)}))
    if "cache_control" in block:
        made[-1]["cache_control"] = block["cache_control"]
    return made


def _place(laid: _Laid, automatic: Any, ttl: str) -> None:
    """Add breakpoints while there is room; the client's own stay.

    The provider wants those of an hour before those of five minutes, so ours give way.
    """
    own = {i: _ttl(b["cache_control"]) for i, b in enumerate(laid.blocks) if "cache_control" in b}
    if isinstance(automatic, dict):
        own[len(laid.blocks)] = _ttl(automatic)
    room = BREAKPOINTS_MAX - len(own)
    for index in laid.before_another:
        if room <= 0:
            return
        if index in own:
            continue
        hour_after = any(at > index and one == HOUR for at, one in own.items())
        minutes_before = any(at < index and one == MINUTES for at, one in own.items())
        if hour_after and minutes_before:
            continue  # the client's own order is wrong: the provider says so
        chosen = HOUR if hour_after else MINUTES if minutes_before else ttl
        laid.blocks[index]["cache_control"] = {"type": "ephemeral", "ttl": chosen}
        room -= 1


def _ttl(control: Any) -> str:
    return str(control.get("ttl", MINUTES)) if isinstance(control, dict) else MINUTES


def _takes_control(block: dict[str, Any]) -> bool:
    if block.get("type") == "text":
        return bool(str(block.get("text", "")).strip())
    return block.get("type") not in _UNMARKABLE
