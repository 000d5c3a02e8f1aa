"""Share until a colleague touches it, then isolate: what that saves and leaks, beside our default.

    python benchmarks/prefixwall.py [--seeds 20] [--requests 2000] [--json FILE]

One workload, four ways to share (a model of them: unbounded caches, blocks as the engine hashes
them, no gateway):

    per_user      every block is its sender's alone
    touch_wall    a block is its organisation's until another member hits it; from then on those two
                  keep a copy each, and every other member makes its own (the idea of PrefixWall)
    default       published documents for everybody, warm before anybody asks; system messages for
                  the organisation; messages for the user alone
    strict        the same, system messages for the user alone

A leaked bit is a first touch: a member's first hit on text that a colleague computed, which tells
that a colleague has sent it. One a request at most of each kind: user text, which nobody meant to
share; public documents, of which it tells who reads them; and instructions, which by default the
organisation's rule shares. TTFT is what is not cached at the prefill speed of the embedded engine.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scopekv.simulate.prefix_cache import BlockHash, PrefixCache

BLOCK = 32
TOKENS_PER_SECOND = 918.0  # prefill of the embedded engine
ORGS, USERS, APPS, DOCUMENTS = 4, 12, 3, 6
SYSTEM, DOCUMENT, PASTED, QUESTION = 600, 1600, 500, 60  # tokens


Member = tuple[int, int]  # organisation, number in it
Owner = str | int | Member  # everybody, an organisation, a member


@dataclass(frozen=True)
class Part:
    """Tokens of one origin. `published`: a document; `system`: a system message."""

    tokens: tuple[int, ...]
    published: bool = False
    system: bool = False


@dataclass(frozen=True)
class Sent:
    org: int
    user: Member
    parts: tuple[Part, ...]

    @property
    def tokens(self) -> list[int]:
        return [token for part in self.parts for token in part.tokens]

    def published(self, end: int) -> bool:
        """Whether all before `end` is a published document."""
        return self.parts[0].published and end <= len(self.parts[0].tokens)

    def instructed(self, end: int) -> bool:
        """Whether all before `end` is published or a system message."""
        own = [len(part.tokens) for part in self.parts if part.published or part.system]
        return end <= sum(own)


def workload(seed: int, requests: int) -> Iterator[Sent]:
    """Conversations in applications of organisations: half about a published document, a fifth
    about a text that colleagues pass around, the rest about nothing in common."""
    dice = random.Random(seed)

    def text(count: int) -> tuple[int, ...]:
        return tuple(dice.randrange(50_000) for _ in range(count))

    systems = {(org, app): text(SYSTEM) for org in range(ORGS) for app in range(APPS)}
    documents = [text(DOCUMENT) for _ in range(DOCUMENTS)]
    pasted: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    chats: list[Sent] = []
    for _ in range(requests):
        if chats and dice.random() < 0.6:
            at = dice.randrange(len(chats))
            old = chats[at]
            grown = Part((*old.parts[-1].tokens, *text(120), *text(QUESTION)))
            chats[at] = Sent(old.org, old.user, (*old.parts[:-1], grown))
            yield chats[at]
            continue
        org = dice.randrange(ORGS)
        parts = [Part(systems[org, dice.randrange(APPS)], system=True)]
        kind = dice.random()
        if kind < 0.5:
            parts.insert(0, Part(dice.choice(documents), published=True))  # public first
        elif kind < 0.7:
            if not pasted[org] or dice.random() < 0.4:
                pasted[org].append(text(PASTED))
            parts.append(Part(dice.choice(pasted[org])))
        parts.append(Part(text(QUESTION)))
        chats.append(Sent(org, (org, dice.randrange(USERS)), tuple(parts)))
        chats = chats[-40:]
        yield chats[-1]


@dataclass
class Mode:
    """One way to share. Blocks are kept by the hash of all tokens up to their end and their owner.

    `owner`: of the block that ends at a token. `walls`: see the module. `warm`: published documents
    are there before anybody asks. `made`: who computed what is kept.
    """

    owner: Callable[[Sent, int], Owner]
    walls: bool = False
    warm: bool = False
    made: dict[tuple[BlockHash, Owner], Member] = field(default_factory=dict)
    walled: set[tuple[int, BlockHash]] = field(default_factory=set)
    touched: set[tuple[BlockHash, Member]] = field(default_factory=set)
    hit_tokens: int = 0
    tokens: int = 0
    bits: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def serve(self, sent: Sent, hashes: Sequence[BlockHash]) -> None:
        """One request: read what is there from the first block on, compute the rest."""
        hits, told = 0, set[str]()
        for at, name in enumerate(hashes):
            end = (at + 1) * BLOCK
            if self.warm and sent.published(end):
                hits += 1
                continue
            key = (name, self._owner(sent, name, end))
            maker = self.made.get(key)
            if maker is None or hits < at:
                self.made.setdefault(key, sent.user)
                continue
            hits += 1
            if maker != sent.user:
                told |= self._touch(sent, key, maker, end)
        self.bits.update(told)
        self.tokens += len(sent.tokens)
        self.hit_tokens += hits * BLOCK
        self.seconds.append((len(sent.tokens) - hits * BLOCK) / TOKENS_PER_SECOND)

    def _owner(self, sent: Sent, name: BlockHash, end: int) -> Owner:
        return sent.user if (sent.org, name) in self.walled else self.owner(sent, end)

    def _touch(self, sent: Sent, key: tuple[BlockHash, Owner], maker: Member, end: int) -> set[str]:
        """A member hits what another one computed: what that tells, and the wall it raises."""
        name = key[0]
        if self.walls:
            self.walled.add((sent.org, name))
            del self.made[key]
            for one in (maker, sent.user):  # both have it; nobody else does from now on
                self.made[name, one] = one
        if (name, sent.user) in self.touched:
            return set()
        self.touched.add((name, sent.user))
        if sent.published(end):
            return {"documents"}
        return {"instructions" if sent.instructed(end) else "user_text"}

    def figures(self) -> dict[str, float]:
        return {
            "token_hit_rate": self.hit_tokens / self.tokens,
            "ttft_mean_seconds": statistics.fmean(self.seconds),
            "ttft_p95_seconds": statistics.quantiles(self.seconds, n=20)[-1],
            "leaked_bits_user_text": self.bits["user_text"],
            "leaked_bits_documents": self.bits["documents"],
            "leaked_bits_instructions": self.bits["instructions"],
        }


def by_role(sent: Sent, end: int, *, instructions_shared: bool = True) -> Owner:
    """The default: the narrowest of the parts up to the block's end."""
    if sent.published(end):
        return "everybody"
    return sent.org if instructions_shared and sent.instructed(end) else sent.user


MODES: dict[str, Callable[[], Mode]] = {
    "per_user": lambda: Mode(lambda sent, _: sent.user),
    "touch_wall": lambda: Mode(lambda sent, _: sent.org, walls=True),
    "default": lambda: Mode(by_role, warm=True),
    "strict": lambda: Mode(partial(by_role, instructions_shared=False), warm=True),
}


def run(seeds: int, requests: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for seed in range(seeds):
        modes = {name: make() for name, make in MODES.items()}
        cache = PrefixCache(block_size=BLOCK, blocks_max=1)  # for its hashes alone
        for sent in workload(seed, requests):
            hashes = cache.hashes(sent.tokens, lambda _start, _end: ())
            for mode in modes.values():
                mode.serve(sent, hashes)
        for name, mode in modes.items():
            found[name].append(mode.figures())
        print(f"seed {seed + 1}/{seeds}", end="\r", flush=True)
    return {
        name: {
            figure: {
                "mean": statistics.fmean(one[figure] for one in rows),
                "least": min(one[figure] for one in rows),
                "most": max(one[figure] for one in rows),
            }
            for figure in rows[0]
        }
        for name, rows in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", type=Path, dest="file")
    options = parser.parse_args()
    figures = run(options.seeds, options.requests)
    print(f"{'':12}{'token hit rate':>16}{'TTFT mean':>12}{'TTFT p95':>12}  leaked bits of")
    print(f"{'':52}{'user text':>12}{'documents':>12}{'instructions':>14}")
    for name, one in figures.items():
        rate, mean, p95, *bits = (value["mean"] for value in one.values())
        row = f"{name:12}{rate:16.3f}{mean:10.3f} s{p95:10.3f} s"
        print(row + f"{bits[0]:12.1f}{bits[1]:12.1f}{bits[2]:14.1f}")
    if options.file is not None:
        options.file.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
