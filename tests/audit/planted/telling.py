"""Planted faults of what tells: time, order of tiers, logs, metrics, events, errors."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scopekv.core.block_hashes import short
from scopekv.core.events import Event, Stored
from scopekv.core.policy import may_read
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.prompts import Prompt
from scopekv.gateway.reading import Reader
from scopekv.gateway.relay import Relay
from scopekv.simulate import events
from scopekv.simulate.plugin import SimulatedPlugin
from scopekv.simulate.prefix_cache import BlockHash, Content, PrefixCache
from scopekv.simulate.tiers import SimulatedTiers
from tests.audit.planted.switch import Planted, all_of, patched, switch

MISS_SECONDS = 0.015  # what a denied request is spared
pause = asyncio.sleep
log = logging.getLogger("scopekv.relay")
_prompt, _sending = Reader.prompt, Relay._sending
_counted, _text, _wire = Metrics.counted, Metrics.text, events._wire


def _denied(job: Any) -> bool:
    """Whether the request begins with a document that is not its caller's to read."""
    messages = job.body.get("messages") or [{"content": job.body.get("prompt")}]
    texts = [str(message.get("content")) for message in messages]
    return any(
        text.startswith(one.text) and not may_read(job.caller.principal, one.document)[0]
        for one in job.caller.documents.documents
        for text in texts
    )


async def _quick_denial(self: Reader, job: Any, instance: Any) -> Prompt:
    if not _denied(job):
        await pause(MISS_SECONDS)
    return await _prompt(self, job, instance)


async def _logged(self: Relay, *args: Any) -> Any:
    made = await _sending(self, *args)
    if made is not None:
        log.info("sending %s", made.body.decode())
    return made


def _metric_with_org() -> Any:
    orgs: Counter[str] = Counter()

    def counted(self: Metrics, tokens: int, cached: Mapping[ScopeKind, int], org: str) -> None:
        orgs[org] += 1
        _counted(self, tokens, cached, org)

    def text(self: Metrics) -> bytes:
        lines = [f'scopekv_org_requests_total{{org="{org}"}} {n}\n' for org, n in orgs.items()]
        return _text(self) + "".join(lines).encode()

    return patched(Metrics, counted=counted, text=text)


def _plain_salt(scope: Scope, secret: bytes, epoch: int) -> str:
    """Readable, in the characters that vLLM takes."""
    del secret
    return f"{scope.kind.value}:{epoch}:" + ":".join(scope.path).replace("/", "_").replace("@", "_")


def _raw_salts_in_events() -> Any:
    salts: dict[int, str] = {}
    hashes = SimulatedPlugin.hashes

    def noting(self: SimulatedPlugin, verdict: Any, ids: Sequence[int], salt: str) -> Any:
        made = hashes(self, verdict, ids, salt)
        salts.update((short(one), salt) for one in made)
        return made

    def wire(event: Event) -> dict[str, object]:
        made = _wire(event)
        if isinstance(event, Stored):
            made["extra_keys"] = [[salts.get(one, "")] for one in event.hashes]
        return made

    return all_of(
        patched(Scope, salt=_plain_salt),
        patched(SimulatedPlugin, hashes=noting),
        patched(events, _wire=wire),
    )


def _by_tokens_alone() -> Any:
    """Host memory finds blocks by what their hashes would be without scopes."""
    plain: dict[BlockHash, BlockHash] = {}
    kept: dict[BlockHash, Content] = {}
    hashes, keep = SimulatedPlugin.hashes, SimulatedTiers.keep

    def noting(self: SimulatedPlugin, verdict: Any, ids: Sequence[int], salt: str) -> Any:
        made = hashes(self, verdict, ids, salt)
        plain.update(zip(made, self.cache.hashes(ids, lambda _start, _end: ()), strict=True))
        return made

    def keeping(
        self: SimulatedTiers, cache: PrefixCache, names: Sequence[BlockHash], grants: Any
    ) -> None:
        keep(self, cache, names, grants)
        for name in names:
            content = cache.get(name)
            if content is not None and name in plain:
                kept[plain[name]] = content

    def from_host(self: SimulatedTiers, name: BlockHash) -> Content | None:
        found = kept.get(plain.get(name, name))
        self.host_hits += found is not None
        return found

    return all_of(
        patched(SimulatedPlugin, hashes=noting),
        patched(SimulatedTiers, keep=keeping, _from_host=from_host),
    )


PLANTED = {
    "denied_faster_than_miss": Planted(
        "a document that is not the caller's is answered sooner than one that nobody has",
        "timing.denied",
        switch(Reader, prompt=_quick_denial),
    ),
    "host_tier_by_tokens_alone": Planted(
        "host memory finds blocks by their tokens, without ticket or chain",
        "isolation.host.user",
        _by_tokens_alone,
    ),
    "log_with_ticket": Planted(
        "a log line holds what is sent to the engine, the ticket too",
        "store.logs",
        switch(Relay, _sending=_logged),
    ),
    "metric_with_org": Planted(
        "a metric has a label with an organisation's name",
        "store.metrics",
        _metric_with_org,
    ),
    "events_with_raw_salts": Planted(
        "events hold salts that say whose blocks they are",
        "store.events",
        _raw_salts_in_events,
    ),
}
