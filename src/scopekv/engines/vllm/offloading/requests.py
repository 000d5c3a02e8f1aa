"""What the tiers know of one request: its scopes block by block, and what is fetched for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scopekv.core.chains import Chain, chain_at
from scopekv.core.fetching import FetchPlan
from scopekv.core.tickets import TOKENS_MAX, Grant
from scopekv.engines.vllm.offloading.planning import told


@dataclass(slots=True)
class TieredRequest:
    """`grants` is empty for a request without a verified ticket: no tier serves it.

    `sources`: offload key to the index of the tier it is fetched from, once `plan` is made.
    """

    request: Any
    grants: tuple[Grant, ...]
    plan: FetchPlan | None = None
    sources: dict[bytes, int] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)  # waiting for what, from when on
    fetched: Counter[str] = field(default_factory=Counter)
    promised: set[bytes] = field(default_factory=set)  # keys whose fetch was begun
    replans: int = 0
    given_up: bool = False
    deferred: bool = False  # the scan under way is put off
    _last_end: int = 0
    _last_step: int = -1
    _chains: dict[int, Chain] = field(default_factory=dict)

    def chain(self, end: int) -> Chain:
        """The scopes of the block that ends before token `end`."""
        found = self._chains.get(end)
        if found is None:
            found = self._chains[end] = chain_at(self.grants, end)
        return found

    def looks_at(self, end: int | None, step: int) -> bool:
        """Note a look-up of the block that ends at `end`; true for the first of a scan.

        vLLM looks a prompt's blocks up in order, once a step, and begins after what its own cache
        has by then.
        """
        first = end is None or end <= self._last_end or step != self._last_step
        self._last_end, self._last_step = end or 0, step
        if first:
            self.deferred = False
        return first

    def waited(self, what: str) -> float:
        """Seconds since this was first asked of `what`."""
        now = time.monotonic()
        return now - self.since.setdefault(what, now)

    def report(self) -> dict[str, Any]:
        """What was decided and fetched, for the request's detail."""
        report: dict[str, Any] = {"fetched_blocks": dict(self.fetched), "given_up": self.given_up}
        if self.plan is not None:
            report["decision"] = told(self.plan)
        return report

    def whole_chain(self) -> Chain:
        """Every scope of the request."""
        return chain_at(self.grants, TOKENS_MAX)

    def broke(self, key: bytes, tries_max: int) -> bool:
        """Whether a fetch of `key` failed and another tier may have it: then decide anew.

        The time that the failed fetch took counts.
        """
        if key not in self.promised or self.replans >= tries_max:
            return False
        self.replans += 1
        self.promised.clear()
        self.sources.clear()
        self.plan = None
        return True

    def start_over(self) -> None:
        """The request was preempted, or the caches emptied: what was planned for it is over."""
        self.plan = None
        self.since.clear()
        self.sources.clear()
        self.promised.clear()


def chunk_keys(block_hashes: Sequence[bytes], hashes_per_chunk: int, group_idx: int) -> list[bytes]:
    """vLLM's offload keys of a request: the last hash of each whole chunk, and its group."""
    suffix = group_idx.to_bytes(4, "big")
    return [
        bytes(block_hash) + suffix
        for block_hash in block_hashes[hashes_per_chunk - 1 :: hashes_per_chunk]
    ]
