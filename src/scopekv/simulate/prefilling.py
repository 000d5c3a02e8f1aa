"""What a simulated engine does with one body.

body ─▶ token ids ─▶ verdict per sequence ─▶ block hashes ─▶ prefix cache ─▶ words, usage
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from scopekv.errors import Misuse, NotFound, TooLarge
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.apis.messages import MESSAGES
from scopekv.gateway.apis.responses import RESPONSES
from scopekv.simulate.completions import Answer, Sequence, salt_of, whole_number
from scopekv.simulate.other_apis import MessagesAnswer, ResponsesAnswer
from scopekv.simulate.prefix_cache import BlockHash, Prefill

if TYPE_CHECKING:
    from scopekv.simulate.engine import SimulatedEngine

_ANSWERS: dict[str, type[Answer]] = {MESSAGES: MessagesAnswer, RESPONSES: ResponsesAnswer}


@dataclass(frozen=True, slots=True)
class Prefilling:
    """From a body to an answer, by an engine's model, cache, plugin and tiers as they are now."""

    engine: SimulatedEngine

    async def answer(self, path: str, body: dict[str, Any]) -> Answer:
        """Raises `NotFound`, `TooLarge` and `Misuse`, which the engine answers with 4xx."""
        named = body.get("model")
        if named not in (self.engine.model.name, *self.engine.adapters):
            raise NotFound("The model does not exist.")
        adapter = b"" if named == self.engine.model.name else str(named).encode()
        salt, parameters = salt_of(body), body.get("kv_transfer_params") or {}
        count = whole_number(body, "n", 1)
        words = whole_number(body, "max_output_tokens" if path == RESPONSES else "max_tokens", 16)
        prompts = self._prompts(path, body, parameters)
        made: list[Sequence] = []
        for ids in prompts:
            if len(ids) + 1 > self.engine.model.max_model_len:
                raise TooLarge(
                    f"maximum context length is {self.engine.model.max_model_len} tokens"
                )
            for number in range(count):
                prefill = await self._sequence(ids, parameters, salt, adapter)
                text = list(self.engine.model.words(prefill.content, number, words))
                made.append(Sequence(len(ids), prefill.cached_tokens, text))
        options = body.get("stream_options") or {}
        return _ANSWERS.get(path, Answer)(
            chat=path == CHAT_API.path,
            model=self.engine.model.name,
            created=int(time.time()),
            per_prompt=count,
            sequences=made,
            counts_usage=options.get("include_usage") is True,
            counts_cached=not self.engine.behaviour.hides_cached,
        )

    async def _sequence(
        self, ids: list[int], parameters: dict[str, Any], salt: str, adapter: bytes
    ) -> Prefill:
        """Without tiers there is no moment between the verdict and the read."""
        plugin, tiers, ticket = self.engine.plugin, self.engine.tiers, parameters.get("scopekv")
        if plugin is None or tiers is None or not plugin.works or not isinstance(ticket, str):
            hashes = self._hashes(ids, parameters, salt, adapter)
            return self._read(ids, hashes)
        verdict = plugin.verdict(ticket, ids, adapter)
        hashes = plugin.hashes(verdict, ids, salt)
        grants = verdict.ticket.grants if verdict.ticket is not None else ()
        if not grants:
            return self._read(ids, hashes)
        current = partial(plugin.current, grants)
        if not await tiers.fetch(self.engine.cache, hashes, grants, ticket, current):
            return self._read(ids, [])  # revoked meanwhile: nothing is read or kept
        prefill = self._read(ids, hashes)
        tiers.keep(self.engine.cache, hashes, grants)
        return prefill

    def _read(self, ids: list[int], hashes: list[BlockHash]) -> Prefill:
        prefill = self.engine.cache.prefill(ids, hashes)
        self.engine.seen.queried_tokens += len(ids)
        self.engine.seen.hit_tokens += prefill.cached_tokens
        if self.engine.plugin is not None:
            self.engine.plugin.bus.flush()
        self._note_reads(hashes[: prefill.cached_tokens // self.engine.cache.block_size])
        return prefill

    def _note_reads(self, hashes: list[BlockHash]) -> None:
        if self.engine.plugin is not None and hashes:
            self.engine.seen.reads.append((time.monotonic(), self.engine.plugin.tags_of(hashes)))

    def _hashes(self, ids: list[int], parameters: dict[str, Any], salt: str, adapter: bytes) -> Any:
        if self.engine.plugin is None or not self.engine.plugin.works:
            names = (("lora", adapter.hex()),) if adapter else ()  # vLLM keys every block by it
            salts = (("cache_salt", salt),)
            return self.engine.cache.hashes(
                ids, lambda start, _: names if start else (*names, *salts)
            )
        verdict = self.engine.plugin.verdict(parameters.get("scopekv"), ids, adapter)
        return self.engine.plugin.hashes(verdict, ids, salt)

    def _prompts(
        self, path: str, body: dict[str, Any], parameters: dict[str, Any]
    ) -> list[list[int]]:
        read = APIS[path].chat
        if read is not None:
            ids = parameters.get("prompt_token_ids")
            return [ids if ids is not None else self.engine.model.chat_ids(read(body))]
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return [self.engine.model.text_ids(prompt)]
        if not isinstance(prompt, list) or not prompt:
            raise Misuse("prompt must be text, token ids, or a list of either")
        if isinstance(prompt[0], int):
            return [prompt]
        return [self.engine.model.text_ids(p) if isinstance(p, str) else p for p in prompt]
