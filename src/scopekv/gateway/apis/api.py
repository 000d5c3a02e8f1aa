"""What the gateway asks of an API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import Shares, Tap

Body = dict[str, Any]
Head = Mapping[str, Any]  # the gateway's own members of an answer


@dataclass(frozen=True, slots=True)
class Api:
    """One path of the engine.

    `text`: the member that holds the prompt. `check`: raises `Misuse` for what this gateway cannot
    keep apart, and returns the body with the API's own fields for `user` and the like in their
    places; twice is as once. `chat`: the same as a chat of OpenAI's form, None for a plain
    completion; raises `NotRenderable` where only the engine can render it. `paths`: JSON path of
    each of that chat's messages in the request, or of the plain prompt. `engine`: the body with
    what the engine must be asked besides. `with_ids`: what stands in the body in place of the text,
    whose tokens travel beside. `answer`: a whole answer as its client gets it. `tap`: reads a
    stream's usage. `head`: members that every answer to the request of that id gets; a comparison
    adds one. `compared_with`: id of the earlier request that this one asks to be compared with.
    """

    path: str
    text: str
    check: Callable[[Body], Body]
    chat: Callable[[Body], Mapping[str, Any]] | None
    paths: Callable[[Body], Sequence[str]]
    engine: Callable[[Body], Body]
    with_ids: Callable[[Body, Tokens], Body]
    answer: Callable[[Body, bytes, Head], bytes]
    tap: Callable[[Body, Shares | None, Head], Tap]
    head: Callable[[str], Head] = lambda _request_id: {}
    compared_with: Callable[[Body], str | None] = lambda _body: None
    ids_in_parameters: bool = True  # else in the body itself


def unchanged(_body: Body, content: bytes, _head: Head) -> bytes:
    """An answer that goes to its client as the engine made it."""
    return content
