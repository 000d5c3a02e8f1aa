"""What a sealed object is bound to: keys, name and associated data, all made of its identity.

    chain secret   HMAC-SHA-256(key of scope i, (scope i, epoch i, secret i-1)), the last one
    seal key       HMAC-SHA-256(chain secret, "scopekv/seal-key/1")
    name           HMAC-SHA-256(name key, identity), 40 hex digits: a listing confirms no guess
    object         header(32) ciphertext tag(16), AES-256-GCM under the seal key

    header  magic "SKVO"(4) version(1) zero(3) nonce(12) plaintext length(8, big endian) zero(4)

The associated data are the header and the whole identity, so an object moved, swapped, cut or
given another epoch does not open (T1, T9).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NewType

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Chain
from scopekv.core.encoding import encode
from scopekv.core.leases import Lease
from scopekv.errors import Corrupt, Misuse

SealKey = NewType("SealKey", bytes)  # 32 bytes

FORMAT_VERSION = 1
HEADER_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
NAME_HEX = 40
_HEADER = struct.Struct(">4sB3x12sQ4x")
_MAGIC = b"SKVO"


@dataclass(frozen=True, slots=True)
class Identity:
    """All that decides what the bytes of a block are and who may read them.

    `block_hash`: the engine's, over tokens, parents and scope tags. `size_bytes`: of the plaintext.
    """

    namespace: Fingerprint
    chain: Chain
    block_hash: bytes
    group_idx: int
    size_bytes: int

    def encoded(self) -> bytes:
        context = _context(self.namespace, self.chain)
        return encode("scopekv/object/1", context, self.block_hash, self.group_idx, self.size_bytes)


@lru_cache(maxsize=4096)
def _context(namespace: Fingerprint, chain: Chain) -> bytes:
    """What the blocks of one chain have in common, as one digest: most blocks are of few chains."""
    links = [(link.scope, link.epoch) for link in chain]
    message = encode("scopekv/object-context/1", FORMAT_VERSION, namespace, links)
    return hashlib.sha256(message).digest()


@dataclass(frozen=True, slots=True)
class ChainKeys:
    """The two keys of a chain. Whoever lacks one scope of it has neither."""

    seal: SealKey = field(repr=False)
    name: bytes = field(repr=False)


def chain_keys(leases: Sequence[Lease]) -> ChainKeys:
    """The keys of the chain whose leases these are, in the chain's order."""
    if not leases:
        raise Misuse("a chain has at least one scope")
    secret = b""
    for lease in leases:
        message = encode("scopekv/chain/1", lease.scope, lease.epoch, secret)
        secret = hmac.digest(lease.key, message, "sha256")
    seal = hmac.digest(secret, encode("scopekv/seal-key/1"), "sha256")
    return ChainKeys(SealKey(seal), hmac.digest(secret, encode("scopekv/name-key/1"), "sha256"))


def object_name(keys: ChainKeys, identity: Identity) -> str:
    return hmac.digest(keys.name, identity.encoded(), "sha256").hex()[:NAME_HEX]


def make_header(nonce: bytes, size_bytes: int) -> bytes:
    """The first 32 bytes of an object. A nonce (12 random bytes) serves one object."""
    if len(nonce) != NONCE_BYTES:
        raise Misuse(f"a nonce has {NONCE_BYTES} bytes")
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, nonce, size_bytes)


def read_header(header: bytes, size_bytes: int) -> bytes:
    """Return the nonce of an object that should hold `size_bytes`; else `Corrupt`."""
    if len(header) != HEADER_BYTES:
        raise Corrupt("a sealed object is cut short")
    magic, version, nonce, length = _HEADER.unpack(header)
    if magic != _MAGIC or version != FORMAT_VERSION or length != size_bytes:
        raise Corrupt("a sealed object has another format or length")
    if header != make_header(nonce, size_bytes):
        raise Corrupt("a sealed object has a strange header")
    return bytes(nonce)


def associated_data(header: bytes, identity: Identity, name: str) -> bytes:
    """What the seal covers besides the block's bytes."""
    return encode("scopekv/bound/1", header, identity.encoded(), name)
