"""AES-256-GCM (NIST SP 800-38D) over whole blocks, from buffer to buffer.

The GIL is released while a block is sealed or opened (cryptography 50, measured), so two threads
seal at twice the speed of one, and the scheduler thread goes on meanwhile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scopekv.core.sealing import NONCE_BYTES, TAG_BYTES, SealKey
from scopekv.errors import Corrupt, Misuse

CIPHERS_MAX = 1024


class AesGcm:
    """Seals and opens; keeps the ciphers of the keys used last. Thread-safe."""

    def __init__(self, ciphers_max: int = CIPHERS_MAX) -> None:
        self._ciphers: OrderedDict[SealKey, AESGCM] = OrderedDict()
        self._max = ciphers_max
        self._lock = threading.Lock()

    def seal_into(
        self, key: SealKey, nonce: bytes, plaintext: memoryview, bound: bytes, out: memoryview
    ) -> None:
        """Write ciphertext and tag into `out`, which is 16 bytes longer than `plaintext`.

        A nonce serves one plaintext of a key. `bound` is covered by the tag and not stored.
        """
        if len(nonce) != NONCE_BYTES or out.nbytes != plaintext.nbytes + TAG_BYTES:
            raise Misuse(f"sealing {plaintext.nbytes} bytes takes a nonce and room for a tag")
        self._cipher(key).encrypt_into(nonce, plaintext, bound, out)

    def open_in_place(
        self, key: SealKey, nonce: bytes, sealed: memoryview, bound: bytes
    ) -> memoryview:
        """Turn ciphertext and tag into the plaintext, a view of the start of `sealed`.

        Raises `Corrupt` where the tag does not hold; `sealed` is undefined then, and must not be
        read. In place, because one buffer less is one block less through the CPU's cache.
        """
        if len(nonce) != NONCE_BYTES or sealed.nbytes < TAG_BYTES:
            raise Corrupt("sealed bytes are cut short")
        plaintext = sealed[: sealed.nbytes - TAG_BYTES]
        try:
            self._cipher(key).decrypt_into(nonce, sealed, bound, plaintext)
        except InvalidTag:
            raise Corrupt("sealed bytes do not open: changed, moved or of another key") from None
        return plaintext

    def forget(self) -> None:
        """Drop every cipher, and so every key that is kept here."""
        with self._lock:
            self._ciphers.clear()

    def __len__(self) -> int:
        return len(self._ciphers)

    def _cipher(self, key: SealKey) -> AESGCM:
        with self._lock:
            cipher = self._ciphers.get(key)
            if cipher is None:
                cipher = self._ciphers[key] = AESGCM(key)
                while len(self._ciphers) > self._max:
                    self._ciphers.popitem(last=False)
            else:
                self._ciphers.move_to_end(key)
            return cipher
