"""The location index, obviously right: a set of counters, looked at block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scopekv.core.events import Medium


class ReferenceIndex:
    def __init__(self) -> None:
        self.held: dict[str, dict[Medium, Counter[int]]] = {}

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

    def reach(self, name: str, chain: Sequence[int]) -> tuple[int, ...]:
        here, at, ends = self.held[name], 0, []
        for media in ([Medium.ENGINE], [Medium.HOST], [Medium.HOST, Medium.OUTER]):
            while at < len(chain) and any(chain[at] in here[medium] for medium in media):
                at += 1
            ends.append(at)
        return tuple(ends)
