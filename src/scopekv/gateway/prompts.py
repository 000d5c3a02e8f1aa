"""From a request body to a prompt: its text, whose text each stretch is, its tokens.

Nothing here widens: a document counts only where it stands alone or first in a plain message; a
message with other fields, and everything after it, is the caller's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv.core.encoding import encode
from scopekv.core.policy import PartRole, RoleRules
from scopekv.core.probing import CallerId
from scopekv.core.scopes import Narrowing, Principal, Scope, private_scope
from scopekv.core.segments import Decided, Part, Segment, decided, plan_segments
from scopekv.core.values import light_value
from scopekv.errors import Misuse
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.template import ChatTemplate, Message, NotRenderable, Rendered
from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.gateway.tokens import Stretch, Tokens

_ROLES = {
    "system": PartRole.SYSTEM,
    "user": PartRole.MESSAGES,
    "assistant": PartRole.MESSAGES,
    "tool": PartRole.MESSAGES,
}
_PARTS = {role: Part(role) for role in PartRole}
PARTS_KEPT_MAX = 16
_MESSAGE_FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal"}
# Fields that change what the template renders. Their effect is the engine's to compute.
_ENGINE_RENDERS = {
    *("chat_template", "chat_template_kwargs", "documents", "continue_final_message", "echo"),
    *("reasoning_effort", "functions", "mm_processor_kwargs", "media_io_kwargs"),
    *("prompt_embeds", "truncate_prompt_tokens", "add_special_tokens"),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Everything a decision takes from who is calling."""

    principal: Principal
    narrowing: Narrowing
    rules: RoleRules
    documents: DocumentIndex
    versions: object = None  # what it was read under; see Access.stands
    id: CallerId = field(init=False)  # an account's; of a service account, one of its end users'
    private: Scope = field(init=False)  # the narrowest scope of this caller
    _last: list[Decided] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        who = self.principal
        end_user = self.narrowing.end_user if who.service else ""
        name = encode("scopekv/caller/1", who.org_uid, who.uid, end_user)
        object.__setattr__(self, "id", CallerId(name))
        object.__setattr__(self, "private", private_scope(who, self.narrowing))

    def decided(self, parts: Sequence[Part]) -> Decided:
        """What is decided on these parts. The last is kept: a caller's prompts are much alike."""
        for last in self._last:
            if last.parts == parts:
                return last
        made = decided(parts, self.principal, self.narrowing, self.rules)
        if len(parts) <= PARTS_KEPT_MAX:
            self._last[:] = [made]
        return made


@dataclass(frozen=True, slots=True)
class ModelText:
    """How one model's engines turn requests into tokens. No template: the engine renders chats."""

    tokenizer: PromptTokenizer
    template: ChatTemplate | None
    tool_template: ChatTemplate | None
    tool_shape: Mapping[str, Any]
    drops_unused_tools: bool


@light_value()
class Prompt:
    """`tokens` is None where the engine renders: then the one segment is the caller's own."""

    segments: tuple[Segment, ...]
    tokens: Tokens | None


@light_value()
class Chat:
    """A chat as rendered. `texts`: the parts of each message; `tools`: as the template had them."""

    messages: Sequence[Message]
    texts: Sequence[Sequence[str]]
    tools: Sequence[Mapping[str, Any]] | None
    rendered: Rendered


@light_value()
class _Stretch:
    end: int  # characters, exclusive
    part: Part


def private_prompt(caller: Caller) -> Prompt:
    """A prompt that shares nothing with anybody else and that the engine renders."""
    return Prompt((Segment(0, None, caller.private),), None)


def chat_prompt(body: Mapping[str, Any], caller: Caller, model: ModelText) -> Prompt:
    """Return the prompt of a chat request; the engine renders what cannot be split here.

    Raises `Misuse` for messages that no template would take.
    """
    try:
        chat = rendered_chat(body, model)
    except NotRenderable:
        return private_prompt(caller)
    messages, texts, tools, rendered = chat.messages, chat.texts, chat.tools, chat.rendered
    stretches: list[_Stretch] = []
    position = len(rendered.glue[0])
    plain = _plain_messages(messages, tools, rendered, model)
    if tools and plain:
        stretches.append(_Stretch(position, _PARTS[PartRole.TOOLS]))
    for index, message in enumerate(messages[:plain]):
        role, shown = _ROLES[message["role"]], rendered.contents[index]
        after = position + len(shown) + len(rendered.glue[index + 1])
        stretches += _content_stretches(role, texts[index], shown, position, caller)
        position = after
    return _prompt(rendered.text, stretches, caller, model.tokenizer, special=False)


def rendered_chat(body: Mapping[str, Any], model: ModelText) -> Chat:
    """Render a chat here. Raises `NotRenderable` where the engine must, else `Misuse`."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Misuse("messages must be a list with at least one message")
    if not _ENGINE_RENDERS.isdisjoint(body) and any(map(body.get, _ENGINE_RENDERS)):
        raise NotRenderable("a field that changes what the template renders")
    if body.get("add_generation_prompt") is False:
        raise NotRenderable("a chat that its last message goes on with")
    texts = [message_texts(message) for message in given]
    messages = [
        {"role": m["role"], "content": "\n".join(parts), **(_extras(m) if len(m) > 2 else {})}
        for m, parts in zip(given, texts, strict=True)
    ]
    tools = _tools(body, model)
    return Chat(messages, texts, tools, _template(model, tools).render(messages, tools))


def completion_prompt(text: str, caller: Caller, model: ModelText) -> Prompt:
    """Return the prompt of a plain completion: documents at its start, then the caller's text."""
    if not text:
        raise Misuse("prompt must not be empty")
    stretches = _content_stretches(PartRole.MESSAGES, [text], text, 0, caller)
    return _prompt(text, stretches, caller, model.tokenizer, special=True)


def message_texts(message: Any) -> list[str]:
    """The text parts of a message. Raises `NotRenderable` where it holds more than text."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Misuse("each message must be an object with a role")
    if message["role"] not in _ROLES or not message.keys() <= _MESSAGE_FIELDS:
        raise NotRenderable("a role or field of its own kind")
    content = message.get("content")
    if content is None:
        return [""]
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise Misuse("message content must be a string or a list of parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise NotRenderable("a part that is not text")
        if not isinstance(part.get("text"), str):
            raise Misuse("a text part must have a string 'text'")
        texts.append(part["text"])
    return texts


def _extras(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message's other fields as vLLM hands them to a template: arguments as objects."""
    extras: dict[str, Any] = {}
    if message["role"] == "assistant" and message.get("tool_calls"):
        if not isinstance(message["tool_calls"], list):
            raise Misuse("tool_calls must be a list")
        extras["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    if message["role"] == "tool" and "tool_call_id" in message:
        extras["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        extras["name"] = message["name"]
    return extras


def _plain_messages(
    messages: Sequence[Message],
    tools: Sequence[Any] | None,
    rendered: Rendered,
    model: ModelText,
) -> int:
    """How many leading messages stand in the prompt with nothing of the caller's around them.

    A message's other fields are rendered in the glue beside it, so all from the first message that
    has some is the caller's own; and before it only if the template did not bring them forward.
    """
    plain = next((i for i, message in enumerate(messages) if len(message) > 2), len(messages))
    if 0 < plain < len(messages):
        alone = _template(model, tools).render(messages[:plain], tools)
        if alone.glue[:plain] != rendered.glue[:plain]:
            return 0
    return plain


def _template(model: ModelText, tools: object) -> ChatTemplate:
    template = model.tool_template if tools else model.template
    if template is None:
        raise NotRenderable("the engine has no template for this")
    return template


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise NotRenderable("a tool call of its own kind")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            arguments = {}
        except RecursionError as error:
            raise NotRenderable("arguments nested too deep") from error
    return {**call, "function": {**function, "arguments": arguments or {}}}


def _tools(body: Mapping[str, Any], model: ModelText) -> list[dict[str, Any]] | None:
    """The tools as this engine hands them to its template, or None."""
    tools = body.get("tools")
    if not tools or (model.drops_unused_tools and body.get("tool_choice") == "none"):
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Misuse("tools must be a list of objects")
    return [_shaped(tool, model.tool_shape) for tool in tools]


def _shaped(value: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """`value` in the order of `shape`, with its defaults, then what the shape does not know."""
    shaped: dict[str, Any] = {}
    for key, default in shape.items():
        given = value.get(key, default)
        nested = isinstance(default, dict) and isinstance(given, dict)
        shaped[key] = _shaped(given, default) if nested else given
    return shaped | {key: item for key, item in value.items() if key not in shape}


def _content_stretches(
    role: PartRole, texts: Sequence[str], shown: str, offset: int, caller: Caller
) -> list[_Stretch]:
    """Split one content into documents and the rest. `shown` may have lost its outer blanks."""
    joined = "\n".join(texts)
    lost = len(joined) - len(joined.lstrip()) if shown != joined else 0
    stretches: list[_Stretch] = []

    def add(end: int, part: Part) -> None:
        inside = min(max(0, end - lost), len(shown))
        stretches.append(_Stretch(offset + inside, part))

    start = 0
    for text in texts:
        for match in caller.documents.matches(text, caller.principal):
            add(start + match.end, Part(role, match.document))
        end = start + len(text)
        if stretches[-1:] == [] or stretches[-1].end < offset + end - lost:
            add(end, _PARTS[role])
        start = end + 1
    return [s for s in stretches if s.end > offset]


def _prompt(
    text: str,
    stretches: Sequence[_Stretch],
    caller: Caller,
    tokenizer: PromptTokenizer,
    *,
    special: bool,
) -> Prompt:
    made = caller.decided([stretch.part for stretch in stretches])
    marks = [
        Stretch(stretch.end, owner, fixed)
        for stretch, owner, fixed in zip(stretches, made.owners, made.documents, strict=False)
    ]
    marks.append(Stretch(len(text), made.owners[-1]))
    tokens, ends = tokenizer.tokenize(text, marks, special=special)
    return Prompt(plan_segments(made.scopes, ends[:-1], caller.private), tokens)
