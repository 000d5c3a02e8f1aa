"""From a block to the sealed object that holds it, and back.

object   header(32) | ciphertext | tag(16)       one buffer, sealed and opened in its place
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from scopekv.adapters.aes_gcm import AesGcm
from scopekv.core.block_hashes import short
from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Chain, folder
from scopekv.core.sealing import (
    HEADER_BYTES,
    NONCE_BYTES,
    OVERHEAD_BYTES,
    ChainKeys,
    Identity,
    associated_data,
    make_header,
    object_name,
    read_header,
)
from scopekv.errors import Corrupt
from scopekv.ports import ObjectKey
from scopekv.store.keyring import Keyring

ADDRESSES_MAX = 32_768


@dataclass(frozen=True, slots=True)
class Address:
    """Where a block lies, under whose keys, and whose share it fills."""

    key: ObjectKey
    identity: Identity
    keys: ChainKeys = field(repr=False)
    account: bytes
    retention_seconds: int

    @property
    def block(self) -> int:
        """The short hash by which events and location indexes know the block."""
        return short(self.identity.block_hash)


class SealedObjects:
    """Names, seals and opens what the keyring has leases for. Thread-safe."""

    def __init__(
        self,
        keyring: Keyring,
        namespace: Fingerprint,
        block_bytes: int,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.block_bytes = block_bytes
        self.object_bytes = block_bytes + OVERHEAD_BYTES
        self._keyring = keyring
        self._namespace = namespace
        self._random = random
        self._cipher = AesGcm()
        self._generation = keyring.generation
        self._lock = threading.Lock()
        self._addresses: OrderedDict[tuple[Chain, bytes, int], Address] = OrderedDict()

    def address(self, chain: Chain, block_hash: bytes, group_idx: int) -> Address | None:
        """Where the block lies; None without a lease for every scope of its chain.

        Cost: a dictionary look-up, or two HMACs the first time.
        """
        keys = self._keyring.chain(chain)
        self._forget_dropped_keys()
        if keys is None:
            return None
        wanted = (chain, block_hash, group_idx)
        with self._lock:
            generation, known = self._generation, self._addresses.get(wanted)
        retention = self._keyring.retention(chain)
        if known is not None and known.keys == keys and known.retention_seconds == retention:
            return known
        account = self._keyring.account(chain)
        name = None if retention is None else folder(chain, retention)
        if account is None or retention is None or name is None:
            return None
        identity = Identity(self._namespace, chain, block_hash, group_idx, self.block_bytes)
        key = ObjectKey(name, object_name(keys, identity))
        address = Address(key, identity, keys, account, retention)
        with self._lock:
            if self._generation != generation:
                return address  # keys were dropped meanwhile, maybe these: none is kept
            self._addresses[wanted] = address
            while len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        return address

    def current(self, address: Address) -> bool:
        """Whether the keyring still opens this: its leases are neither over nor fenced."""
        return self._keyring.chain(address.identity.chain) == address.keys

    def seal(self, address: Address, plaintext: memoryview, out: memoryview) -> memoryview:
        """Write the sealed object into `out` and return that part of it. One pass, no copy."""
        header = make_header(self._random(NONCE_BYTES), self.block_bytes)
        out[:HEADER_BYTES] = header
        bound = associated_data(header, address.identity, address.key.name)
        sealed = out[HEADER_BYTES : self.object_bytes]
        nonce = read_header(header, self.block_bytes)
        try:
            self._cipher.seal_into(address.keys.seal, nonce, plaintext, bound, sealed)
        finally:
            self._forget_if_over(address)
        return out[: self.object_bytes]

    def open(self, address: Address, stored: memoryview) -> memoryview:
        """Return the plaintext, which takes the ciphertext's place in `stored`.

        Raises `Corrupt` for anything but the object that was sealed for this very address; what
        `stored` holds then must not be read.
        """
        if stored.nbytes != self.object_bytes:
            raise Corrupt(f"an object has {stored.nbytes} bytes, not {self.object_bytes}")
        header = bytes(stored[:HEADER_BYTES])
        nonce = read_header(header, self.block_bytes)
        bound = associated_data(header, address.identity, address.key.name)
        sealed = stored[HEADER_BYTES:]
        try:
            return self._cipher.open_in_place(address.keys.seal, nonce, sealed, bound)
        finally:
            self._forget_if_over(address)

    def forget(self) -> None:
        """Drop names and keys that were derived here."""
        with self._lock:
            self._addresses.clear()
            self._cipher.forget()

    def _forget_dropped_keys(self) -> None:
        with self._lock:
            dropped = self._generation != self._keyring.generation
            self._generation = self._keyring.generation
        if dropped:
            self.forget()

    def _forget_if_over(self, address: Address) -> None:
        """A cipher that was made after its key was dropped stays for nobody."""
        if not self.current(address):
            self._cipher.forget()
