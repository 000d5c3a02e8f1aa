"""Anthropic's prompt cache, as its documentation has it.

tools, system, messages       block by block, each hash over all before it
cache_control                 at most 4, one of them may be the request's own (its last block)
written                       the prefix of each breakpoint, from a minimum by model on
read                          the longest prefix written, at a breakpoint or up to 20 blocks back
kept                          5 minutes or an hour from its last use; hour before five minutes
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scopekv.simulate.providers.words import Wrong, words

BREAKPOINTS_MAX = 4
LOOK_BACK_BLOCKS = 20
TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}
MINIMUM_TOKENS = 1024
Key = tuple[str, str, bytes]  # workspace, model, hash


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one prompt."""

    total: int
    read: int
    written: Mapping[str, int]  # by TTL

    @property
    def fresh(self) -> int:
        return self.total - self.read - sum(self.written.values())

    def usage(self, output: int) -> dict[str, Any]:
        return {
            "input_tokens": self.fresh,
            "cache_creation_input_tokens": sum(self.written.values()),
            "cache_read_input_tokens": self.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written["5m"],
                "ephemeral_1h_input_tokens": self.written["1h"],
            },
            "output_tokens": output,
            "service_tier": "standard",
        }


@dataclass(frozen=True, slots=True)
class _Block:
    hash: bytes  # of the prefix that ends with it
    tokens: int  # of that prefix
    ttl: str | None  # of its breakpoint, if it is one


class MessagesCache:
    """Entries of every workspace. `minimum`: tokens by model, where it is not 1,024."""

    def __init__(self, clock: Callable[[], float], minimum: Mapping[str, int]) -> None:
        self._clock, self._minimum = clock, minimum
        self._until: dict[Key, tuple[float, float]] = {}  # end, and seconds that a use adds

    def count(self, body: Mapping[str, Any]) -> int:
        """What count_tokens says: nothing is read and nothing written."""
        return _blocks(body)[-1].tokens

    def use(self, workspace: str, body: Mapping[str, Any]) -> Counts:
        """Read what is there and write what is marked. Raises `Wrong`."""
        blocks = _blocks(body)
        model = str(body["model"])
        marks = [at for at, block in enumerate(blocks) if block.ttl]
        found = self._longest(workspace, model, blocks, marks)
        read = blocks[found].tokens if found is not None else 0
        least = self._minimum.get(model, MINIMUM_TOKENS)
        written, done = {"5m": 0, "1h": 0}, read
        for at in marks:
            block = blocks[at]
            if block.ttl is None or block.tokens < least:
                continue
            seconds = TTL_SECONDS[block.ttl]
            self._until[workspace, model, block.hash] = (self._clock() + seconds, seconds)
            written[block.ttl] += max(0, block.tokens - done)
            done = max(done, block.tokens)
        return Counts(blocks[-1].tokens, read, written)

    def _longest(
        self, workspace: str, model: str, blocks: list[_Block], marks: list[int]
    ) -> int | None:
        now = self._clock()
        for mark in reversed(marks):
            for at in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1):
                key = (workspace, model, blocks[at].hash)
                end, seconds = self._until.get(key, (0.0, 0.0))
                if end > now:
                    self._until[key] = (now + seconds, seconds)  # a use refreshes it
                    return at
        return None


def _blocks(body: Mapping[str, Any]) -> list[_Block]:
    """Every block with the hash of all up to it. Raises `Wrong` for breakpoints out of order."""
    made: list[_Block] = []
    digest, tokens = hashlib.sha256(), 0
    for place, block in _walk(body):
        control = block.get("cache_control")
        if control and block.get("type") == "text" and not str(block["text"]).strip():
            raise Wrong("cache_control cannot be set for empty text blocks")
        bare = {key: value for key, value in block.items() if key != "cache_control"}
        digest.update(json.dumps([place, bare], sort_keys=True).encode())
        tokens += len(words(bare["text"] if bare.get("type") == "text" else bare))
        made.append(_Block(digest.digest(), tokens, control.get("ttl", "5m") if control else None))
    automatic = body.get("cache_control")
    if automatic and made and made[-1].ttl is None:
        made[-1] = _Block(made[-1].hash, made[-1].tokens, automatic.get("ttl", "5m"))
    ttls = [block.ttl for block in made if block.ttl]
    if len(ttls) > BREAKPOINTS_MAX:
        raise Wrong(f"A maximum of 4 blocks with cache_control may be provided. Found {len(ttls)}.")
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        raise Wrong("a ttl='1h' cache_control block must not come after a ttl='5m' block")
    if not made:
        raise Wrong("messages: at least one message is required")
    return made


def _walk(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for tool in body.get("tools") or ():
        yield "tool", tool
    for block in _listed(body.get("system") or []):
        yield "system", block
    for message in body["messages"]:
        for block in _listed(message["content"]):
            yield message["role"], block


def _listed(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def answer(body: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    """A whole message. A tool is used where the request chooses one."""
    choice = body.get("tool_choice") or {}
    content: list[dict[str, Any]] = [{"type": "text", "text": "four words of answer"}]
    stop = "end_turn"
    if choice.get("type") in ("any", "tool"):
        name = choice.get("name") or body["tools"][0]["name"]
        content = [{"type": "tool_use", "id": "toolu_1", "name": name, "input": {"word": "lamp"}}]
        stop = "tool_use"
    if body.get("max_tokens") == 0:
        content, stop = [], "max_tokens"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    output = len(words(content)) if content else 0
    return message | {
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": counts.usage(output),
    }


def events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """The same as a stream."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    yield _event("message_start", {"message": start})
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            yield _event(
                "content_block_start", {"index": index, "content_block": block | {"text": ""}}
            )
            for word in block["text"].split(" "):
                delta = {"type": "text_delta", "text": word + " "}
                yield _event("content_block_delta", {"index": index, "delta": delta})
        else:
            yield _event(
                "content_block_start", {"index": index, "content_block": block | {"input": {}}}
            )
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", {"delta": ended, "usage": dict(usage)})
    yield _event("message_stop", {})


def _event(kind: str, content: dict[str, Any]) -> bytes:
    data = json.dumps({"type": kind} | content).encode()
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
