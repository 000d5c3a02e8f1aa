"""Requests with parts that are no text, made readable without an engine: each gets a stand-in.

    {"type": "image_url", "image_url": {...}}  ->  {"type": "text", "text": "[image_url kqhgrvtm]"}

The word is made of the part, so that equal parts stay equal and others differ. How many tokens an
engine makes of it is the engine's to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from scopekv.gateway.apis import Api
from scopekv.gateway.apis.responses import RESPONSES_API

_MEDIA = frozenset(
    (
        *("image_url", "input_audio", "audio_url", "video_url", "file"),  # chats
        *("image", "document"),  # Messages
        *("input_image", "input_file"),  # Responses
    )
)
_WORD_CHARS = 8
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")  # no identifier looks like it


def without_media(api: Api, body: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The body with a stand-in for each part that is no text, and how many there are.

    What it does not know it leaves as it is: whoever reads it says what is wrong with it.
    """
    kind = "input_text" if api is RESPONSES_API else "text"
    found: list[object] = []

    def part(given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if given.get("type") == "tool_result":
            return holder(given)
        if given.get("type") not in _MEDIA:
            return given
        found.append(given)
        return {"type": kind, "text": f"[{given['type']} {_word(given)}]"}

    def holder(given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("content"), list):
            return given
        return given | {"content": [part(one) for one in given["content"]]}

    said = body.get(api.text)
    if not isinstance(said, list) or api.chat is None:
        return dict(body), 0
    made = {**body, api.text: [holder(one) for one in said]}
    return made, len(found)


def _word(part: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(msgspec.json.encode(part, order="sorted")).hexdigest()
    return digest[:_WORD_CHARS].translate(_LETTERS)
