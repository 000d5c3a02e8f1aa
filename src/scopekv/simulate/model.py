"""The text side of a simulated engine: a model folder's tokenizer and template, words to answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from scopekv.core.encoding import encode
from scopekv.errors import ConfigError, Misuse
from scopekv.gateway.prompts import message_texts
from scopekv.gateway.template import ChatTemplate
from scopekv.gateway.tokens import load_tokenizer
from scopekv.simulate.prefix_cache import Content

_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron"),
    *("inlet", "jetty", "knoll", "larch", "maple", "north", "otter", "pearl"),
)
_TOOL_SHAPE = {
    "type": "function",
    "function": {"name": "", "description": None, "parameters": None},
}


@dataclass(frozen=True, slots=True, repr=False)
class SimulatedModel:
    """Tokens in, words out. The words are a function of the cache content alone."""

    name: str
    tokenizer: Tokenizer
    tokenizer_text: str
    template_text: str
    template: ChatTemplate
    max_model_len: int

    @classmethod
    def load(cls, folder: Path, *, max_model_len: int = 8192) -> SimulatedModel:
        """Read tokenizer and chat template of a Hugging Face folder. Raises `ConfigError`."""
        try:
            text = (folder / "tokenizer.json").read_text("utf-8")
            config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
            source = str(config["chat_template"])
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{folder} has no tokenizer with a chat template") from error
        template = ChatTemplate(source, {}, {})
        return cls(folder.name, load_tokenizer(text), text, source, template, max_model_len)

    def describe(self) -> dict[str, Any]:
        """As `GET /v1/scopekv/template` of the real plugin."""
        return {
            "models": [self.name],
            "max_model_len": self.max_model_len,
            "renderable": True,
            "tokenizer": self.tokenizer_text,
            "chat_template": self.template_text,
            "tool_template": self.template_text,
            "content_format": "string",
            "template_kwargs": {},
            "special_tokens": {},
            "tool_shape": _TOOL_SHAPE,
            "drops_unused_tools": False,
        }

    def text_ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=True).ids)

    def chat_ids(self, body: Mapping[str, Any]) -> list[int]:
        """Render and tokenise a chat. Raises `Misuse` for messages the template cannot take."""
        given = body.get("messages")
        if not isinstance(given, list) or not given:
            raise Misuse("messages must be a list with at least one message")
        messages = [{"role": m["role"], "content": "\n".join(message_texts(m))} for m in given]
        rendered = self.template.render(messages, body.get("tools"))
        return list(self.tokenizer.encode(rendered.text, add_special_tokens=False).ids)

    def words(self, content: Content, sequence: int, count: int) -> Iterator[str]:
        """The answer to what the cache and the computation gave: `count` words."""
        for index in range(count):
            message = encode("scopekv/simulated word/1", content, sequence, index)
            yield _WORDS[hashlib.sha256(message).digest()[0] % len(_WORDS)] + " "
