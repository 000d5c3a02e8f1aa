"""The location index, obviously right: a set of counters, looked at block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from scopekv.core.events import Medium, OuterTier, OuterTiers
from scopekv.core.locations import Reach


class ReferenceIndex:
    def __init__(self) -> None:
        self.held: dict[str, dict[Medium, Counter[int]]] = {}
        self.tiers: dict[str, OuterTiers] = {}

    def join(self, name: str) -> None:
        self.held.setdefault(name, {medium: Counter() for medium in Medium})

    def add(self, name: str, medium: Medium, hashes: Sequence[int]) -> None:
        self.held[name][medium].update(hashes)

    def remove(self, name: str, medium: Medium, hashes: Sequence[int]) -> None:
        for block_hash in hashes:
            if self.held[name][medium][block_hash] > 0:
                self.held[name][medium][block_hash] -= 1
        self.held[name][medium] += Counter()

    def clear(self, name: str, medium: Medium) -> None:
        self.held[name][medium].clear()

    def reach(self, name: str, chain: Sequence[int]) -> Reach:
        here, engine = self.held[name], 0
        while engine < len(chain) and chain[engine] in here[Medium.ENGINE]:
            engine += 1
        tiers = self.tiers.get(name)
        size = tiers.chunk_tokens if tiers is not None else 1  # blocks have one token
        chunks = chain[size - 1 :: size]
        at = engine // size
        while at < len(chunks) and chunks[at] in here[Medium.HOST]:
            at += 1
        host, runs = max(engine, at * size), list[Medium]()
        for block in chunks[at:]:
            nearest = tiers.nearest if tiers is not None else ()
            found = [tier.medium for tier in nearest if self.fetchable(name, tier, block)]
            if not found:
                break
            runs.append(found[0])
        return Reach(engine, host, tuple((one, len(list(same))) for one, same in groupby(runs)))

    def fetchable(self, name: str, tier: OuterTier, block: int) -> bool:
        """Whether it lies there, or where any instance put it that shares the store."""
        sharers = {name} | {
            other
            for other, tiers in self.tiers.items()
            for theirs in tiers.nearest
            if tier.store and (theirs.medium, theirs.store) == (tier.medium, tier.store)
        }
        return any(block in self.held[one][tier.medium] for one in sharers)
