"""Rendering a chat as the engine does: its own Jinja template, without torch.

The prompt is proven to be glue and content in turns: the template is rendered once with the
messages and once with placeholders for their contents; only if the second, filled in, equals the
first is it known where each content stands.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from scopekv.core.values import light_value
from scopekv.errors import Misuse

_SKELETONS_MAX = 512
_QUARTER_SECONDS = 900  # in every time zone, dates and hours change at a quarter of an hour
_PLAIN = {bool, int, str, type(None)}
_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: no tokenizer or template gives them a meaning


Message = Mapping[str, Any]  # role and content, both str, and what else the template may read


class NotRenderable(Misuse):
    """This chat needs the engine's own renderer: its parts cannot be told apart here."""


@light_value()
class Rendered:
    """A prompt as glue[0] content[0] glue[1] content[1] ... glue[n]."""

    text: str
    glue: tuple[str, ...]
    contents: tuple[str, ...]


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's, which looks at each attribute for what could change or escape: plain values cannot.

    Templates ask `loop.first` for every message.
    """

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if type(value) in _PLAIN and not attr.startswith("_"):
            return True
        return super().is_safe_attribute(obj, attr, value)


class ChatTemplate:
    """One engine's chat template, with the variables its server passes to it."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], defaults: Mapping[str, Any]
    ) -> None:
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
            # A plain dict: Jinja copies it for each rendering, and a ChainMap ten times slower.
            self._template.globals = dict(self._template.globals)
        except jinja2.TemplateError as error:
            raise NotRenderable(f"the engine's chat template does not parse: {error}") from error
        self._variables = {**special_tokens, **defaults}
        self._skeletons: OrderedDict[tuple[Any, ...], tuple[str, ...] | None] = OrderedDict()

    def render(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> Rendered:
        """Return the prompt with the place of each message's content.

        Raises `NotRenderable` where the template changes contents in more than their outer blanks.
        """
        text = self._run(messages, tools)
        contents = [str(message["content"]) for message in messages]
        for shown in (contents, [content.strip() for content in contents]):
            glue = self._skeleton(messages, shown, tools)
            if glue is not None and _filled(glue, shown) == text:
                return Rendered(text, glue, tuple(shown))
        raise NotRenderable("the chat template does not keep message contents as they are")

    def _skeleton(
        self, messages: Sequence[Message], contents: Sequence[str], tools: Sequence[Any] | None
    ) -> tuple[str, ...] | None:
        """The glue around the contents, kept for messages of role and content alone.

        Empty contents stay empty, since templates ask for that. The calendar may be in the glue.
        """
        marks = [f"{_OPEN}{i}{_CLOSE}" if content else "" for i, content in enumerate(contents)]
        if tools is not None or any(len(message) > 2 for message in messages):
            return _cut(self._run(_marked(messages, marks), tools), marks)
        quarter = time.time() // _QUARTER_SECONDS
        key = (*[m["role"] for m in messages], *map(bool, marks), quarter)
        if key not in self._skeletons:
            self._skeletons[key] = _cut(self._run(_marked(messages, marks), None), marks)
            if len(self._skeletons) > _SKELETONS_MAX:
                self._skeletons.popitem(last=False)
        self._skeletons.move_to_end(key)
        return self._skeletons[key]

    def _run(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> str:
        try:
            return self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=True,
                **self._variables,
            )
        except (
            *(jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError),
            *(RecursionError, OverflowError),
        ) as error:
            # Its message may hold text of the prompt; the engine says what it says to its users.
            raise NotRenderable("the chat template refused the messages") from error


def _marked(messages: Sequence[Message], marks: Sequence[str]) -> list[Message]:
    return [{**m, "content": mark} for m, mark in zip(messages, marks, strict=True)]


def _cut(text: str, marks: Sequence[str]) -> tuple[str, ...] | None:
    """Split at the marks, each of which must stand once and in order; None otherwise."""
    if text.count(_OPEN) != sum(map(bool, marks)):
        return None
    glue, at = [], 0
    for mark in marks:
        found = text.find(mark, at) if mark else at
        if found < 0:
            return None
        glue.append(text[at:found])
        at = found + len(mark)
    return (*glue, text[at:])


def _filled(glue: Sequence[str], contents: Sequence[str]) -> str:
    pieces = [piece for pair in zip(glue, contents, strict=False) for piece in pair]
    return "".join((*pieces, glue[-1]))


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now(UTC).astimezone().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Transformers' `tojson`: plain JSON, without the HTML escapes of Jinja's own."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
