"""Making an engine's template and tokenizer ours, and proving that they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from scopekv.core.policy import RoleRules
from scopekv.core.scopes import Narrowing, Principal
from scopekv.errors import Misuse, ScopeKVError
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.prompts import Caller, ModelText, chat_prompt
from scopekv.gateway.template import ChatTemplate, NotRenderable
from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.gateway.tokens import load_tokenizer

T = TypeVar("T")
Ask = Callable[..., Awaitable[Any]]
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Finds a word's meaning.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_PROBES: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "user", "content": "Hi there, 12 o'clock!"}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief.\n\n  Use two  spaces. "},
            {
                "role": "user",
                "content": [{"type": "text", "text": "é"}, {"type": "text", "text": "?"}],
            },
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": "And now?"},
        ]
    },
    {"messages": [{"role": "user", "content": "Look up 'cat'."}], "tools": [_TOOL]},
)


@dataclass(frozen=True, slots=True)
class Texts:
    """One model's text, twice: for the event loop, and for a worker thread of its own.

    A large prompt takes long to read; it must not hold up everybody's. Nor may many that wait fill
    the threads that all else needs, such as the registry's.
    """

    here: ModelText
    _aside: ModelText
    worker: ThreadPoolExecutor  # of one thread, which alone uses the second text

    async def aside(self, work: Callable[[ModelText], T]) -> T:
        """Run on the worker, in turn. What is cancelled while it waits never runs."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work, self._aside)


Built = Texts | str  # or why there is none


async def built(answer: dict[str, Any]) -> Built:
    """Read what the engine told of its text, or say why it cannot be read. Some seconds of work."""
    try:
        here = await asyncio.to_thread(read_model_text, answer)
        aside = await asyncio.to_thread(read_model_text, answer)
        return Texts(here, aside, ThreadPoolExecutor(1, "model-text"))
    except Misuse as error:
        return str(error)


async def model_text(
    answer: dict[str, Any], ask: Ask, made: Built | None
) -> tuple[Texts | None, str]:
    """Return how to render and tokenise for this engine, and a note for the operator.

    `made`: `built(answer)`, which may be kept; each engine is proven anew. None where the engine
    must do it. Each probe is rendered here and by the engine (`/tokenize`); a template that gives
    other tokens is not used.
    """
    if not answer["renderable"] or made is None:
        return None, "the engine renders prompts itself: whole prompts stay with their caller"
    if isinstance(made, str):
        return None, made
    plain = [await _agrees(probe, made.here, ask, answer["models"][0]) for probe in _PROBES]
    if not all(plain[:2]):
        return _texts(made, template=False, tools=False), (
            "the chat template gives other tokens here than in the engine: "
            "chats stay with their caller"
        )
    if not plain[2]:
        return _texts(made, template=True, tools=False), (
            "chats with tools stay with their caller: their tokens differ from the engine's"
        )
    return _texts(made, template=True, tools=True), "tokens equal the engine's"


def _texts(made: Texts, *, template: bool, tools: bool) -> Texts:
    """Both, less what was found to differ from the engine."""

    def less(text: ModelText) -> ModelText:
        return replace(
            text,
            template=text.template if template else None,
            tool_template=text.tool_template if tools else None,
        )

    return Texts(less(made.here), less(made._aside), made.worker)


def read_model_text(answer: dict[str, Any]) -> ModelText:
    """Make a text of what `GET /v1/scopekv/template` tells. Raises `Misuse`."""

    def template(source: str | None) -> ChatTemplate | None:
        if source is None or answer["content_format"] != "string":
            return None
        try:
            return ChatTemplate(source, answer["special_tokens"], answer["template_kwargs"])
        except NotRenderable:
            return None

    return ModelText(
        PromptTokenizer(load_tokenizer(answer["tokenizer"])),
        template(answer["chat_template"]),
        template(answer["tool_template"]),
        answer["tool_shape"],
        answer["drops_unused_tools"],
    )


async def _agrees(probe: dict[str, Any], text: ModelText, ask: Ask, model: str) -> bool:
    nobody = Caller(
        Principal("probe", "probe", "probe", "probe"), Narrowing(), RoleRules(), DocumentIndex(())
    )
    ours = chat_prompt(probe, nobody, text)
    try:
        theirs = await ask("POST", "/tokenize", {"model": model, **probe})
    except ScopeKVError:
        return False
    return ours.tokens is not None and ours.tokens.ids() == theirs["tokens"]
