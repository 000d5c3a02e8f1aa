"""Block identity (L1): what besides its tokens and its parent decides who may reuse a block.

The engine hashes (parent hash, token ids, extra keys). ScopeKV adds one extra key per block,
a tag over the namespace and every (scope, epoch) whose segment overlaps the block. The parent
hash brings in all scopes before it, so a hit takes permission for the whole chain:

    tokens      0 ... 31 | 32 ... 63 | 64 ... 95 | 96 ... 127
    segments    [ document, 0 to 70        )[ user, 70 to open
    tag over    document | document  | document  | user
                                       and user
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NewType

from scopekv.core.encoding import encode
from scopekv.core.scopes import ScopeId
from scopekv.errors import Misuse

Fingerprint = NewType("Fingerprint", bytes)  # 32 bytes
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Namespace:
    """The conditions under which two engines' blocks hold the same numbers.

    `layout` covers what else shapes the bytes: attention backend, parallel sizes, KV layout.
    Adapters are per request: see `adapter_key`.
    """

    model: str
    revision: str
    tokenizer: str
    dtype: str
    kv_dtype: str
    block_size: int
    layout: str
    hash_algorithm: str

    def fingerprint(self) -> Fingerprint:
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        message = encode("scopekv/namespace/1", FORMAT_VERSION, values)
        return Fingerprint(hashlib.sha256(message).digest())


def block_tag(
    namespace: Fingerprint, scopes: Sequence[tuple[ScopeId, int]], adapter: bytes = b""
) -> str:
    """Return the tag of a block that these (scope, epoch) pairs overlap: 64 hex digits.

    `adapter` is the digest of the LoRA adapter's content, empty without one.
    """
    message = encode("scopekv/block/1", namespace, adapter, [tuple(pair) for pair in scopes])
    return hashlib.sha256(message).hexdigest()


class BlockTagger:
    """The tags of one request's blocks. Ends are exclusive; the last segment is open.

    Cost: one SHA-256 per distinct run of scopes, then a dictionary look-up per block.
    """

    __slots__ = ("_adapter", "_ends", "_namespace", "_scopes", "_tags")

    def __init__(
        self,
        namespace: Fingerprint,
        ends: Sequence[int],
        scopes: Sequence[tuple[ScopeId, int]],
        adapter: bytes = b"",
    ) -> None:
        """`ends` of the closed segments, strictly rising; one more scope than ends."""
        if len(scopes) != len(ends) + 1:
            raise Misuse(f"{len(ends)} segment ends take {len(ends) + 1} scopes")
        if any(a >= b for a, b in zip((0, *ends), ends, strict=False)):
            raise Misuse("segment ends must rise from above 0")
        self._namespace = namespace
        self._ends = tuple(ends)
        self._scopes = tuple(scopes)
        self._adapter = adapter
        self._tags: dict[tuple[int, int], str] = {}

    def tag(self, start: int, end: int) -> str:
        """Return the tag of the block of tokens [start, end)."""
        run = (bisect_right(self._ends, start), bisect_right(self._ends, end - 1))
        tag = self._tags.get(run)
        if tag is None:
            scopes = self._scopes[run[0] : run[1] + 1]
            tag = self._tags[run] = block_tag(self._namespace, scopes, self._adapter)
        return tag
