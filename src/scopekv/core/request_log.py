"""The request log: one served request as a JSON line, without a word of it.

    {"format":"scopekv/requests/1","timestamp":ms,"input_length":n,"output_length":n,
     "block_size":n,"hash_ids":["16 hex digits", ...],"scopes":[["document",3],["user",1]],
     "org":"16 hex digits","user":"16 hex digits","cached":n,"ttft_ms":x,"lost":n}

`hash_ids`: of the full blocks, each over the deployment's log key, the engines' namespace, all
tokens up to the block's end and every (scope, epoch) that overlaps them: equal where one block may
be reused (L1), so sending prompts and reading the log finds out nothing of others' own text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from scopekv.core.encoding import encode
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.core.segments import Segment
from scopekv.errors import Misuse

FORMAT = "scopekv/requests/1"
NAME_BYTES = 8
TOKEN_BYTES = 4
_NAME = re.compile(r"[0-9a-f]{16}\Z")
_REQUIRED = ("timestamp", "input_length", "output_length", "block_size", "lost")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """`at_ms`: when it came, since 1970. `blocks`: names of its full blocks, in order.

    `scopes`: (kind, blocks) in order; of a block, the kind of the last scope that overlaps it.
    `cached_tokens`, `first_token_ms`: None where the answer did not tell. `lost`: requests before
    this one that are in no line.
    """

    at_ms: int
    prompt_tokens: int
    answer_tokens: int
    block_tokens: int
    blocks: tuple[str, ...]
    scopes: tuple[tuple[ScopeKind, int], ...]
    org: str
    user: str
    cached_tokens: int | None = None
    first_token_ms: float | None = None
    lost: int = 0

    def __post_init__(self) -> None:
        if min(self.at_ms, self.answer_tokens, self.lost) < 0 or self.prompt_tokens < 1:
            raise Misuse("a logged request has a prompt, and no count below 0")
        if self.block_tokens < 1 or len(self.blocks) != self.prompt_tokens // self.block_tokens:
            raise Misuse("a logged request names its full blocks, and no other")
        counts = [count for _, count in self.scopes]
        if sum(counts) != len(self.blocks) or min(counts, default=1) < 1:
            raise Misuse("a logged request has a kind of scope for each full block")
        if not all(map(_NAME.match, (self.org, self.user, *self.blocks))):
            raise Misuse("names in a request log are 16 hexadecimal digits")


def log_key(secret: bytes) -> bytes:
    """The key of a deployment's request logs. `secret`: of its scope names."""
    return hmac.digest(secret, encode("scopekv/request-log/1"), "sha256")


def sender_names(key: bytes, org_uid: str, uid: str) -> tuple[str, str]:
    """What stands for an organisation and for a principal of it."""
    return _name(key, encode("scopekv/log-org/1", org_uid)), _name(
        key, encode("scopekv/log-user/1", org_uid, uid)
    )


def block_names(
    key: bytes,
    namespace: bytes,
    packed: bytes,
    segments: Sequence[Segment],
    epochs: Sequence[int],
    block_tokens: int,
) -> tuple[tuple[str, ...], tuple[tuple[ScopeKind, int], ...]]:
    """The names of a prompt's full blocks, and their kinds of scope as runs.

    `namespace`: of the engines that may share them. `packed`: its tokens, 4 bytes each.
    Cost: a hash a block.
    """
    owners = [_owner(s.scope, epoch) for s, epoch in zip(segments, epochs, strict=True)]
    count = len(packed) // TOKEN_BYTES // block_tokens
    about = encode("scopekv/log-namespace/1", namespace)
    state = hashlib.blake2b(about, key=key, digest_size=NAME_BYTES)
    names: list[str] = []
    kinds: list[ScopeKind] = []
    first = 0  # segment with the block's first token
    for end in range(block_tokens, (count + 1) * block_tokens, block_tokens):
        start = end - block_tokens
        while not _reaches(segments[first], start + 1):
            first += 1
        last = first
        while not _reaches(segments[last], end):
            last += 1
        run = encode("scopekv/log-block/1", *owners[first : last + 1])
        state.update(len(run).to_bytes(4, "big") + run)
        state.update(packed[start * TOKEN_BYTES : end * TOKEN_BYTES])
        names.append(state.copy().hexdigest())
        kinds.append(segments[last].scope.kind)
    runs = tuple((kind, len(list(same))) for kind, same in groupby(kinds))
    return tuple(names), runs


def _reaches(segment: Segment, end: int) -> bool:
    return segment.end is None or segment.end >= end


def _owner(scope: Scope, epoch: int) -> bytes:
    return encode("scopekv/log-scope/1", scope.kind.value, *scope.path, epoch)


def _name(key: bytes, content: bytes) -> str:
    return hashlib.blake2b(content, key=key, digest_size=NAME_BYTES).hexdigest()


def encode_logged(one: LoggedRequest) -> bytes:
    """Its line, with the line break."""
    fields = {
        "format": FORMAT,
        "timestamp": one.at_ms,
        "input_length": one.prompt_tokens,
        "output_length": one.answer_tokens,
        "block_size": one.block_tokens,
        "hash_ids": one.blocks,
        "scopes": one.scopes,
        "org": one.org,
        "user": one.user,
        "cached": one.cached_tokens,
        "ttft_ms": one.first_token_ms,
        "lost": one.lost,
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def read_logged(fields: dict[str, Any]) -> LoggedRequest:
    """A line's JSON object. Raises Misuse for what is none of this format."""
    if fields.get("format") != FORMAT:
        raise Misuse(f"a line of a request log has the format {FORMAT}")
    if any(type(fields.get(name)) is not int for name in _REQUIRED):
        raise Misuse(f"a line of a request log has whole numbers: {', '.join(_REQUIRED)}")
    cached, first = fields.get("cached"), fields.get("ttft_ms")
    if type(cached) not in (int, type(None)) or type(first) not in (int, float, type(None)):
        raise Misuse("cached and ttft_ms of a request log are numbers or null")
    try:
        scopes = tuple((ScopeKind(kind), int(count)) for kind, count in fields["scopes"])
        blocks = tuple(fields["hash_ids"])
        return LoggedRequest(
            at_ms=fields["timestamp"],
            prompt_tokens=fields["input_length"],
            answer_tokens=fields["output_length"],
            block_tokens=fields["block_size"],
            blocks=blocks,
            scopes=scopes,
            org=fields["org"],
            user=fields["user"],
            cached_tokens=cached,
            first_token_ms=first,
            lost=fields["lost"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Misuse("a line of a request log has hash_ids, scopes, org and user") from error
