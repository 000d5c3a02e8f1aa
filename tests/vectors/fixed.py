"""What every vector is made from: keys, times, a namespace and three scopes."""

from __future__ import annotations

from scopekv.core.blocks import Namespace
from scopekv.core.scopes import Scope, ScopeKind

SECRET = bytes(range(32))
SEED, OTHER_SEED = b"\x01" * 32, b"\x02" * 32
BLOCK_HASH = bytes(range(32, 64))
NOW_MS, TTL_MS = 1_800_000_000_000, 60_000
NAMESPACE = Namespace(
    model="SmolLM2-135M-Instruct",
    revision="0f" * 32,
    tokenizer="1e" * 32,
    dtype="torch.float32",
    kv_dtype="auto",
    block_size=32,
    layout="2d" * 32,
    hash_algorithm="sha256_cbor",
)
DOCUMENT, ORG, USER = (
    Scope(ScopeKind.DOCUMENT, ("doc_7f",)),
    Scope(ScopeKind.ORG, ("org_1",)),
    Scope(ScopeKind.USER, ("org_1", "usr_2")),
)
