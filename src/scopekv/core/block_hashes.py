"""The engine's own block hashes, made outside the engine (vLLM 0.31 to 0.33, `sha256_cbor`).

    hash      := SHA-256 of CBOR (parent hash, (token id, ...), extra keys)
    parent    := the hash of the block before; of the first block, the root
    root      := SHA-256 of CBOR "vllm-none-hash", or of PYTHONHASHSEED where the engine has it
    extra keys:= (("scopekv", tag),), or None without the plugin

Events carry the low 64 bits of a hash, and the location index keeps no more. Two blocks that share
64 bits are confused in the choice of an instance alone: what may be shared is decided in the
engine, by all 256.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NewType

from scopekv.core.enforcement import Tags
from scopekv.errors import Misuse

EngineHash = NewType("EngineHash", bytes)  # 32 bytes, as the engine keys its blocks
ShortHash = NewType("ShortHash", int)  # its low 64 bits, as events and the index have it

ALGORITHM = "sha256_cbor"
DEFAULT_SEED = "vllm-none-hash"
SHORT_BYTES = 8
_OPENING = b"\x83\x58\x20"  # an array of three, the first of them 32 bytes
_NULL = b"\xf6"
_NO_TOKEN = "a token id is not an integer from 0 to 2**32-1"  # noqa: S105 - not that kind
_UNSIGNED, _BYTES, _TEXT, _ARRAY = 0x00, 0x40, 0x60, 0x80
ExtraKeys = Sequence[tuple[str, str]]


def root_of(seed: str = DEFAULT_SEED) -> EngineHash:
    """The parent of every first block in an engine with this seed."""
    return EngineHash(hashlib.sha256(_text(seed)).digest())


def short(block_hash: bytes) -> ShortHash:
    """The low 64 bits of a hash, as vLLM publishes them."""
    return ShortHash(int.from_bytes(block_hash[-SHORT_BYTES:], "big"))


def pack(hashes: Iterable[int]) -> bytes:
    """Short hashes as 8 big-endian bytes each."""
    words = array("Q", hashes)
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


def unpack(packed: bytes) -> array[int]:
    """The short hashes in `packed`. Raises `Misuse` for a length that is no multiple of 8."""
    if len(packed) % SHORT_BYTES:
        raise Misuse(f"{len(packed)} bytes are no whole number of {SHORT_BYTES}-byte hashes")
    words = array("Q")
    words.frombytes(packed)
    if sys.byteorder == "little":
        words.byteswap()
    return words


class ChainHasher:
    """Hashes the blocks of prompts. Keeps the encoding of each token id it met.

    Cost: about 1 ms for 10,000 tokens. Memory: about 150 bytes for each distinct token id, so at
    most 40 MB for a vocabulary of 256,000.
    """

    def __init__(self) -> None:
        self._heads = _TokenHeads()

    def chain(
        self, token_ids: Sequence[int], tags: Tags, *, block_size: int, root: EngineHash
    ) -> list[EngineHash]:
        """The hashes of the whole blocks of a prompt whose ticket holds, without an adapter.

        An engine that gets the same tokens under the same grants makes exactly these
        (law: test_the_gateways_chain_is_the_engines).
        """
        if block_size < 2:
            raise Misuse(f"blocks have two tokens or more, not {block_size}")
        heads, count = self._heads, _head(_ARRAY, block_size)
        parent, found = root, []
        tag, keys = "", b""
        try:
            for start in range(0, len(token_ids) - block_size + 1, block_size):
                end = start + block_size
                if tag != (tag := tags.tag(start, end)):
                    keys = _keys((("scopekv", tag),))
                ids = b"".join(itemgetter(*token_ids[start:end])(heads))
                message = b"".join((_OPENING, parent, count, ids, keys))
                parent = EngineHash(hashlib.sha256(message).digest())
                found.append(parent)
        except (TypeError, OverflowError) as error:
            raise Misuse(_NO_TOKEN) from error
        return found

    def block(
        self, parent: EngineHash, token_ids: Sequence[int], extra_keys: ExtraKeys | None
    ) -> EngineHash:
        """The hash of one block. `extra_keys` None or empty: as vLLM, without any."""
        try:
            ids = b"".join(map(self._heads.__getitem__, token_ids))
        except (TypeError, OverflowError) as error:
            raise Misuse(_NO_TOKEN) from error
        message = _OPENING + parent + _head(_ARRAY, len(token_ids)) + ids + _keys(extra_keys)
        return EngineHash(hashlib.sha256(message).digest())


class _TokenHeads(dict[int, bytes]):
    """Token id to its CBOR encoding, made at first use."""

    def __missing__(self, token_id: int) -> bytes:
        head = self[token_id] = _head(_UNSIGNED, token_id)
        return head


def _keys(extra_keys: ExtraKeys | None) -> bytes:
    if not extra_keys:
        return _NULL
    parts = [_head(_ARRAY, 2) + _text(name) + _text(value) for name, value in extra_keys]
    return _head(_ARRAY, len(parts)) + b"".join(parts)


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return _head(_TEXT, len(data)) + data


def _head(kind: int, number: int) -> bytes:
    """A CBOR head in its shortest form (RFC 8949, section 4.2.1)."""
    if number < 0:
        raise OverflowError(number)
    if number < 24:
        return bytes((kind | number,))
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if number < 1 << (8 * size):
            return bytes((kind | code,)) + number.to_bytes(size, "big")
    raise OverflowError(number)
