"""Answers of a simulated engine in the shapes of Messages and Responses, as vLLM 0.32 does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from scopekv.simulate.completions import Answer


class MessagesAnswer(Answer):
    """Anthropic's: input tokens without the cached ones; the usage in the last event but one."""

    __slots__ = ()

    def _told(self) -> dict[str, Any]:
        usage = self.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "output_tokens": usage["completion_tokens"],
            "cache_read_input_tokens": cached,
        }

    def whole(self) -> dict[str, Any]:
        text = "".join(self.sequences[0].words)
        content = [{"type": "text", "text": text}]
        return self._message() | {"content": content, "usage": self._told()}

    def events(self) -> Iterator[bytes]:
        start = self._message() | {"content": [], "usage": {"input_tokens": 0, "output_tokens": 0}}
        yield _event("message_start", {"message": start})
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        yield _event("content_block_start", block)
        for word in self.sequences[0].words:
            delta = {"type": "text_delta", "text": word}
            yield _event("content_block_delta", {"index": 0, "delta": delta})
        yield _event("content_block_stop", {"index": 0})
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        yield _event("message_delta", {"delta": stop, "usage": self._told()})
        yield _event("message_stop", {})

    def _message(self) -> dict[str, Any]:
        kind = {"id": "sim-1", "type": "message", "role": "assistant", "model": self.model}
        return kind | {"stop_reason": "end_turn", "stop_sequence": None}


class ResponsesAnswer(Answer):
    """OpenAI's Responses: the usage within the response that the last event holds."""

    __slots__ = ()

    def whole(self) -> dict[str, Any]:
        usage = self.usage()
        text = {"type": "output_text", "text": "".join(self.sequences[0].words), "annotations": []}
        item = {"id": "msg-1", "type": "message", "role": "assistant", "status": "completed"}
        told = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"] | {"cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }
        return self._response("completed") | {"output": [item | {"content": [text]}], "usage": told}

    def events(self) -> Iterator[bytes]:
        started = self._response("in_progress") | {"output": [], "usage": None}
        yield _event("response.created", {"response": started, "sequence_number": 0})
        for number, word in enumerate(self.sequences[0].words):
            place = {"item_id": "msg-1", "output_index": 0, "content_index": 0, "logprobs": []}
            delta = place | {"delta": word, "sequence_number": number + 1}
            yield _event("response.output_text.delta", delta)
        last = {"response": self.whole(), "sequence_number": len(self.sequences[0].words) + 1}
        yield _event("response.completed", last)

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": "resp-1",
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        }


def _event(kind: str, content: dict[str, Any]) -> bytes:
    data = msgspec.json.encode({"type": kind} | content)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
