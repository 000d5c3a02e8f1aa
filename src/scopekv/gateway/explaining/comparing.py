"""Where prompts are compared: on a worker thread, with the model's second text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from scopekv.core.explaining import ReadPrompt
from scopekv.errors import Misuse
from scopekv.gateway.apis import Api
from scopekv.gateway.explaining.pieces import read_prompt
from scopekv.gateway.instances import Instance
from scopekv.gateway.prompts import Caller, ModelText
from scopekv.gateway.template import NotRenderable

T = TypeVar("T")


async def aside(instance: Instance, compare: Callable[[ModelText], T]) -> T:
    """Run on the worker thread of the model's second text. Raises `Misuse` where there is none."""
    if instance.texts is None:
        raise Misuse("this model's engines render prompts themselves: nothing to compare here")
    return await instance.texts.aside(compare)


def prompt_of(api: Api, body: dict[str, Any], model: ModelText, caller: Caller) -> ReadPrompt:
    """The prompt of a caller's request in pieces."""
    try:
        return read_prompt(api, api.check(body), model, caller)
    except NotRenderable as error:
        raise Misuse(f"only the engine can render this prompt: {error}") from error
