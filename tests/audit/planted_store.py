"""Ways to build a sealed tier wrong, one switch each, for the store audit to find."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from scopekv.adapters.aes_gcm import AesGcm
from scopekv.core.sealing import (
    TAG_BYTES,
    ChainKeys,
    Identity,
    SealKey,
    make_header,
)

SEALED = "scopekv.store.sealed_objects"
Plant = Callable[[pytest.MonkeyPatch], None]


def _in_the_clear(
    _self: AesGcm, _key: SealKey, _nonce: bytes, plain: memoryview, _bound: bytes, out: memoryview
) -> None:
    out[: plain.nbytes] = plain
    out[plain.nbytes :] = bytes(TAG_BYTES)


def _open_in_the_clear(
    _self: AesGcm, _key: SealKey, _nonce: bytes, sealed: memoryview, _bound: bytes
) -> memoryview:
    return sealed[: sealed.nbytes - TAG_BYTES]


def unsealed(patch: pytest.MonkeyPatch) -> None:
    """Blocks are kept as they are."""
    patch.setattr(AesGcm, "seal_into", _in_the_clear)
    patch.setattr(AesGcm, "open_in_place", _open_in_the_clear)


def _open_unchecked(
    _self: AesGcm, key: SealKey, nonce: bytes, sealed: memoryview, _bound: bytes
) -> memoryview:
    """GCM is counter mode from 2 on, and a tag that nobody looks at here."""
    counter = modes.CTR(nonce + (2).to_bytes(4, "big"))
    reader = Cipher(algorithms.AES(key), counter).decryptor()
    plain = reader.update(bytes(sealed[: sealed.nbytes - TAG_BYTES]))
    sealed[: len(plain)] = plain
    return sealed[: len(plain)]


def unchecked(patch: pytest.MonkeyPatch) -> None:
    """The seal is opened and its tag not looked at."""
    patch.setattr(AesGcm, "open_in_place", _open_unchecked)


def unbound(patch: pytest.MonkeyPatch) -> None:
    """The seal covers the bytes and not where they belong."""
    patch.setattr(f"{SEALED}.associated_data", lambda header, _identity, _name: header)


def unkeyed_names(patch: pytest.MonkeyPatch) -> None:
    """A name is a digest of what it names."""

    def name(_keys: ChainKeys, identity: Identity) -> str:
        return hashlib.sha256(identity.encoded()).hexdigest()[:40]

    patch.setattr(f"{SEALED}.object_name", name)


def engine_hash_names(patch: pytest.MonkeyPatch) -> None:
    """A name is the engine's own hash."""
    patch.setattr(f"{SEALED}.object_name", lambda _keys, identity: identity.block_hash.hex()[:40])


def one_key_for_all(patch: pytest.MonkeyPatch) -> None:
    """One name key and one seal key, whoever asks, and a nonce that follows from the text's place.

    The same text in two scopes is then sealed alike, but for what its hash carries of the scope.
    """
    keys = ChainKeys(SealKey(bytes(32)), bytes(32))
    seal_into = AesGcm.seal_into

    def seal(
        self: AesGcm,
        _key: SealKey,
        _nonce: bytes,
        plain: memoryview,
        bound: bytes,
        out: memoryview,
    ) -> None:
        seal_into(self, keys.seal, hashlib.sha256(plain).digest()[:12], plain, bound, out)

    patch.setattr(AesGcm, "seal_into", seal)


def salt_as_nonce(patch: pytest.MonkeyPatch) -> None:
    """One nonce for everything."""
    patch.setattr(f"{SEALED}.make_header", lambda _nonce, size: make_header(bytes(12), size))


PLANTS: Sequence[tuple[Plant, str]] = (
    (unsealed, "store.sealed"),
    (unkeyed_names, "store.names"),
    (engine_hash_names, "store.names"),
    (one_key_for_all, "store.scopes"),
    (salt_as_nonce, "store.sealed"),
)
TAMPER_PLANTS: Sequence[Plant] = (unchecked, unbound)
