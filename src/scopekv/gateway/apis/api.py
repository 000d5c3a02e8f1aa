"""What the gateway asks of an API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import Shares, Tap

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Api:
    """One path of the engine.

    `text`: the member that holds the prompt. `check`: raises `Misuse` for what this gateway cannot
    keep apart, and returns the body with the API's own fields for `user` and the like in their
    places. `chat`: the same as a chat of OpenAI's form, None for a plain completion; raises
    `NotRenderable` where only the engine can render it. `engine`: the body with what the engine
    must be asked besides. `with_ids`: what stands in the body in place of the text, whose tokens
    travel beside. `answer`: a whole answer as its client gets it. `tap`: reads a stream's usage.
    """

    path: str
    text: str
    check: Callable[[Body], Body]
    chat: Callable[[Body], Mapping[str, Any]] | None
    engine: Callable[[Body], Body]
    with_ids: Callable[[Body, Tokens], Body]
    answer: Callable[[Body, bytes], bytes]
    tap: Callable[[Body, Shares | None], Tap]
    ids_in_parameters: bool = True  # else in the body itself


def unchanged(_body: Body, content: bytes) -> bytes:
    """An answer that goes to its client as the engine made it."""
    return content
