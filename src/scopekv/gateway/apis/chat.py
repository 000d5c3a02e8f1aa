"""OpenAI's chat completions and completions."""

from __future__ import annotations

import msgspec

from scopekv.errors import Misuse
from scopekv.gateway.apis.api import Api, Body, Head, unchanged
from scopekv.gateway.tokens import Tokens
from scopekv.gateway.usage import Shares, StreamTap, Tap


def _checked(body: Body) -> Body:
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise Misuse("stream_options must be an object")
    if options is not None and not isinstance(options.get("include_usage"), bool | None):
        raise Misuse("stream_options.include_usage must be true or false")
    return body


def _chat_checked(body: Body) -> Body:
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise Misuse("messages must be a list with at least one message")
    return _checked(body)


def _completion_checked(body: Body) -> Body:
    if not isinstance(body.get("prompt"), list | str):
        raise Misuse("a completion needs a prompt: text, token ids, or a list of either")
    return _checked(body)


def _chat_with_ids(body: Body, _tokens: Tokens) -> Body:
    """`messages` must be present all the same; of the last one the engine reads the role."""
    return body | {"messages": [{"role": body["messages"][-1]["role"], "content": ""}]}


def _completion_with_ids(body: Body, tokens: Tokens) -> Body:
    return body | {"prompt": msgspec.Raw(b"[%b]" % tokens.json)}


def _counting(body: Body) -> Body:
    """A stream always counts its usage; the tap keeps it from a client that did not ask."""
    if not body.get("stream"):
        return body
    return body | {"stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}


def _tap(body: Body, shares: Shares | None, _head: Head) -> Tap:
    options = body.get("stream_options") or {}
    return StreamTap(asked=options.get("include_usage") is True, shares=shares)


CHAT_API = Api(
    path="/v1/chat/completions",
    text="messages",
    check=_chat_checked,
    chat=lambda body: body,
    paths=lambda body: [f"$.messages[{i}].content" for i in range(len(body["messages"]))],
    engine=_counting,
    with_ids=_chat_with_ids,
    answer=unchanged,
    tap=_tap,
)
COMPLETIONS_API = Api(
    path="/v1/completions",
    text="prompt",
    check=_completion_checked,
    chat=None,
    paths=lambda _body: ["$.prompt"],
    engine=_counting,
    with_ids=_completion_with_ids,
    answer=unchanged,
    tap=_tap,
    ids_in_parameters=False,
)
