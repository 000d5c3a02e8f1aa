"""What a simulated engine answers to the plugin's own calls, `/v1/scopekv/...`, and `/metrics`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from scopekv.errors import NotFound
from scopekv.simulate.behaviour import Behaviour, Seen
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.plugin import SimulatedPlugin
from scopekv.simulate.tiers import SimulatedTiers


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """As `engines.vllm.endpoint` with `engine_calls`, of an engine as it is now."""

    plugin: SimulatedPlugin
    model: SimulatedModel
    behaviour: Behaviour
    seen: Seen
    tiers: SimulatedTiers | None

    async def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises `NotFound`."""
        plugin = self.plugin
        if path == "/v1/scopekv/purge":
            return await self._purge(body["scopes"])
        if path == "/v1/scopekv/forget":
            return self._forget(body["media"], body.get("read"), body.get("seconds", 60))
        if path == "/v1/scopekv/tiers":
            told = self.behaviour.tiers_told
            if told is None and self.tiers is not None:
                return self.tiers.report()
            return {"tiers": told or {}, "fetch": {}, "pending": 0}
        if path == "/v1/scopekv/status":
            return plugin.status() | {"max_model_len": self.model.max_model_len}
        if path == "/v1/scopekv/template":
            shown = self.behaviour.template_shown
            return self.model.describe() | ({"chat_template": shown} if shown else {})
        if path == "/v1/scopekv/pin":
            return plugin.pin(body["label"], body["ticket"], body["token_ids"])
        if path == "/v1/scopekv/hashes":
            return plugin.hashes_of(body["ticket"], body["token_ids"])
        if path == "/v1/scopekv/unpin":
            return plugin.unpin(body["label"])
        if path == "/v1/scopekv/expire":
            self.seen.expires += 1
            return {"lines": [_line("engine")]}
        raise NotFound("Not Found")

    async def _purge(self, pairs: list[Any]) -> dict[str, Any]:
        """Fence at once; drop the blocks unless told to be slow or busy."""
        self.seen.purges.append(pairs)
        tags = self.plugin.fence(pairs)
        await asyncio.sleep(self.behaviour.purge_seconds)
        if self.behaviour.purges_busy > 0:
            self.behaviour.purges_busy -= 1
            return {"lines": [_line("engine", busy=1)]}
        hashes = self.plugin.blocks.tagged(tags)
        lines = [_line("engine", removed=self.plugin.purge(tags))]
        if self.tiers is not None:
            lines += self.tiers.purge(tags, hashes)
        if self.behaviour.purge_error is not None:
            lines.append(_line("directory", error=self.behaviour.purge_error))
        return {"lines": lines}

    def _forget(self, media: list[str], read: list[str] | None, seconds: float) -> dict[str, Any]:
        lines = []
        if "engine" in media:
            lines.append(_line("engine", self.plugin.forget()))
        if self.tiers is not None:
            if "host" in media:
                lines.append(_line("host", self.tiers.forget_host()))
            self.tiers.read_from(read, seconds)
        return {"lines": lines}


def metrics_text(seen: Seen) -> bytes:
    """Of `GET /metrics` what an audit reads, in Prometheus' text form, named as vLLM names it."""
    labels = '{engine="0",model_name="simulated"}'
    lines = (
        f"vllm:prefix_cache_queries_total{labels} {seen.queried_tokens}.0",
        f"vllm:prefix_cache_hits_total{labels} {seen.hit_tokens}.0",
    )
    return "\n".join((*lines, "")).encode()


def _line(tier: str, removed: int = 0, busy: int = 0, error: str | None = None) -> dict[str, Any]:
    return {"tier": tier, "removed": removed, "busy": busy, "error": error}
