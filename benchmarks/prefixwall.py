"""Share until a colleague touches it, then isolate: what that saves and leaks, beside our default.

    python benchmarks/prefixwall.py [--seeds 20] [--requests 2000] [--planner SIZES] [--json FILE]

`--planner orgs=20,users=400,documents=100`: the requests of `scopekv simulate synthetic:SIZES` from
its tenants, in blocks of 512 tokens.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from _progress import tell

from scopekv.simulate.fleet.asking import workload_of
from scopekv.simulate.fleet.tenants import TenantSpec
from scopekv.simulate.prefix_cache import BlockHash, PrefixCache

BLOCK = 32
TOKENS_PER_SECOND = 918.0  # prefill of the embedded engine
ORGS, USERS, APPS, DOCUMENTS = 4, 12, 3, 6
SYSTEM, DOCUMENT, PASTED, QUESTION = 600, 1600, 500, 60  # tokens


Member = tuple[int, int]  # organisation, number in it
Owner = str | int | Member  # everybody, an organisation, a member
Name = BlockHash | int  # of a block, equal where all tokens up to its end are


@dataclass(frozen=True)
class Part:
    """Tokens of one origin. `published`: a document; `system`: a system message."""

    tokens: tuple[int, ...]
    published: bool = False
    system: bool = False


@dataclass(frozen=True)
class Chat:
    org: int
    user: Member
    parts: tuple[Part, ...]

    def sent(self, cache: PrefixCache) -> Sent:
        """As blocks. A block with the first token of a narrower part is that part's."""
        tokens = [token for part in self.parts for token in part.tokens]
        document = len(self.parts[0].tokens) if self.parts[0].published else 0
        shared = sum(len(part.tokens) for part in self.parts if part.published or part.system)
        names = cache.hashes(tokens, lambda _start, _end: ())
        return Sent(
            *(self.org, self.user, tuple(names), document // BLOCK, shared // BLOCK),
            tokens=len(tokens),
            block_tokens=BLOCK,
        )


@dataclass(frozen=True)
class Sent:
    """A request as whole blocks: so many published, then so many of instructions, then the rest."""

    org: int
    user: Member
    names: tuple[Name, ...]
    published: int
    instructed: int  # published ones included
    tokens: int
    block_tokens: int


def planned(seed: int, requests: int, *, sizes: str) -> Iterator[Sent]:
    """What `scopekv simulate synthetic:SIZES` replays, by the same tenants."""
    text = f"synthetic:{sizes},requests={requests},seed={seed}"
    workload = workload_of(text, limit=None, block_tokens=None, arrivals={})
    tenancy = workload.tenancy(TenantSpec(), seed)
    for request in workload.requests():
        placed = tenancy.place(request)
        tenant, layers = placed.tenant, placed.layers
        yield Sent(
            tenant.org,
            (tenant.org, tenant.user),
            tuple(request.block_ids),
            layers.public_blocks,
            layers.org_blocks,
            tokens=request.input_tokens,
            block_tokens=request.block_tokens,
        )


def own(seed: int, requests: int) -> Iterator[Sent]:
    cache = PrefixCache(block_size=BLOCK, blocks_max=1)  # for its hashes alone
    return (chat.sent(cache) for chat in chats_of(seed, requests))


def chats_of(seed: int, requests: int) -> Iterator[Chat]:
    """Conversations in applications of organisations: half about a published document, a fifth
    about a text that colleagues pass around, the rest about nothing in common."""
    dice = random.Random(seed)

    def text(count: int) -> tuple[int, ...]:
        return tuple(dice.randrange(50_000) for _ in range(count))

    systems = {(org, app): text(SYSTEM) for org in range(ORGS) for app in range(APPS)}
    documents = [text(DOCUMENT) for _ in range(DOCUMENTS)]
    pasted: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    chats: list[Chat] = []
    for _ in range(requests):
        if chats and dice.random() < 0.6:
            at = dice.randrange(len(chats))
            old = chats[at]
            grown = Part((*old.parts[-1].tokens, *text(120), *text(QUESTION)))
            chats[at] = Chat(old.org, old.user, (*old.parts[:-1], grown))
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
        chats.append(Chat(org, (org, dice.randrange(USERS)), tuple(parts)))
        chats = chats[-40:]
        yield chats[-1]


@dataclass
class Mode:
    """One way to share. Blocks are kept by the hash of all tokens up to their end and their owner.

    `owner`: of a block, by its place. `walls`: see the module. `warm`: published documents
    are there before anybody asks. `made`: who computed what is kept.
    """

    owner: Callable[[Sent, int], Owner]
    walls: bool = False
    warm: bool = False
    made: dict[tuple[Name, Owner], Member] = field(default_factory=dict)
    walled: set[tuple[int, Name]] = field(default_factory=set)
    touched: set[tuple[Name, Member]] = field(default_factory=set)
    hit_tokens: int = 0
    tokens: int = 0
    bits: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def serve(self, sent: Sent) -> None:
        """One request: read what is there from the first block on, compute the rest."""
        hits, told = 0, set[str]()
        for at, name in enumerate(sent.names):
            if self.warm and at < sent.published:
                hits += 1
                continue
            walled = (sent.org, name) in self.walled
            key = (name, sent.user if walled else self.owner(sent, at))
            maker = self.made.get(key)
            if maker is None or hits < at:
                self.made.setdefault(key, sent.user)
                continue
            hits += 1
            if maker != sent.user:
                told |= self._touch(sent, key, maker, at)
        self.bits.update(told)
        self.tokens += sent.tokens
        hit_tokens = min(hits * sent.block_tokens, sent.tokens)
        self.hit_tokens += hit_tokens
        self.seconds.append((sent.tokens - hit_tokens) / TOKENS_PER_SECOND)

    def _touch(self, sent: Sent, key: tuple[Name, Owner], maker: Member, at: int) -> set[str]:
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
        if at < sent.published:
            return {"documents"}
        return {"instructions" if at < sent.instructed else "user_text"}

    def figures(self) -> dict[str, float]:
        return {
            "token_hit_rate": self.hit_tokens / self.tokens,
            "ttft_mean_seconds": statistics.fmean(self.seconds),
            "ttft_p95_seconds": statistics.quantiles(self.seconds, n=20)[-1],
            "leaked_bits_user_text": self.bits["user_text"],
            "leaked_bits_documents": self.bits["documents"],
            "leaked_bits_instructions": self.bits["instructions"],
        }


def by_role(sent: Sent, at: int, *, instructions_shared: bool = True) -> Owner:
    """The default: the narrowest of the parts up to the block's end."""
    if at < sent.published:
        return "everybody"
    return sent.org if instructions_shared and at < sent.instructed else sent.user


MODES: dict[str, Callable[[], Mode]] = {
    "per_user": lambda: Mode(lambda sent, _: sent.user),
    "touch_wall": lambda: Mode(lambda sent, _: sent.org, walls=True),
    "default": lambda: Mode(by_role, warm=True),
    "strict": lambda: Mode(partial(by_role, instructions_shared=False), warm=True),
}


def run(
    seeds: int, requests: int, workload: Callable[[int, int], Iterator[Sent]]
) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for seed in range(seeds):
        modes = {name: make() for name, make in MODES.items()}
        for sent in workload(seed, requests):
            for mode in modes.values():
                mode.serve(sent)
        for name, mode in modes.items():
            found[name].append(mode.figures())
        tell(f"seed {seed + 1}/{seeds}")
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
    parser.add_argument("--planner", metavar="SIZES", help="the planner's synthetic workload")
    parser.add_argument("--json", type=Path, dest="file")
    options = parser.parse_args()
    workload = partial(planned, sizes=options.planner) if options.planner else own
    figures = run(options.seeds, options.requests, workload)
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
