"""Planted faults of the sealed tiers: names, seals, keys, look-ups, purges, shares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from scopekv.adapters.aes_gcm import AesGcm
from scopekv.core import sealing, tickets
from scopekv.core.chains import Tag
from scopekv.core.eviction import ScopedPolicy
from scopekv.core.leases import Lease
from scopekv.core.sealing import NAME_HEX, TAG_BYTES, ChainKeys, Identity, SealKey
from scopekv.core.tickets import AudienceId, Check, KeyId, Ticket
from scopekv.ports import ObjectKey
from scopekv.store import broker, sealed_objects
from scopekv.store.blocks import Purged
from scopekv.store.broker import KeyBroker
from scopekv.store.index import Index
from scopekv.store.tier import SealedTier
from tests.audit.planted.switch import Planted, patched, switch

_make_header, _lease, _purge = sealing.make_header, KeyBroker.lease, SealedTier.purge


def _hashed_name(keys: ChainKeys, identity: Identity) -> str:
    del keys
    return hashlib.sha256(identity.encoded()).hexdigest()[:NAME_HEX]


def _unbound(header: bytes, identity: Identity, name: str) -> bytes:
    del header, identity, name
    return b""


def _one_nonce(nonce: bytes, size_bytes: int) -> bytes:
    return _make_header(bytes(len(nonce)), size_bytes)


def _one_key(**fields: Any) -> Lease:
    return Lease(**fields | {"key": bytes(range(32))})


def _plain_seal(
    _self: AesGcm, _key: SealKey, _nonce: bytes, plaintext: memoryview, _bound: bytes, out: Any
) -> None:
    out[:] = bytes(plaintext) + bytes(TAG_BYTES)


def _plain_open(
    _self: AesGcm, _key: SealKey, _nonce: bytes, sealed: memoryview, _bound: bytes
) -> memoryview:
    return sealed[: sealed.nbytes - TAG_BYTES]


def _unchecked_open(
    _self: AesGcm, key: SealKey, nonce: bytes, sealed: memoryview, _bound: bytes
) -> memoryview:
    """Counter mode is what AES-GCM is without its tag."""
    plaintext = sealed[: sealed.nbytes - TAG_BYTES]
    opener = Cipher(AES(key), CTR(nonce + (2).to_bytes(4, "big"))).decryptor()
    plaintext[:] = opener.update(bytes(plaintext))
    return plaintext


def _wide_leases(self: KeyBroker, ticket_text: object) -> list[Lease]:
    """A genuine ticket, and the keys of every scope there is."""
    _lease(self, ticket_text)
    with self._registry.read() as view:
        records = view.scope_keys.wrapped_by_others("", 10_000)
        current = [one for one in records if view.epochs.get(one.owner) == one.epoch]
    found = [self._opened(one) for one in current]
    return [lease for lease in found if lease is not None]


def _unverified(
    text: object, *, keys: Mapping[KeyId, Check], now_ms: int, audience: AudienceId
) -> Ticket:
    del keys, now_ms, audience
    return tickets._parse(text)[0]


def _skipping(medium: str) -> Any:
    """A purge that says of one medium that it is done with it, and does nothing there.

    All of it: once fenced, the janitor would find and delete what the purge left.
    """

    def purge(self: SealedTier, tags: frozenset[Tag], pending_only: bool = False) -> Purged:
        return Purged(0, 0) if self.medium == medium else _purge(self, tags, pending_only)

    return patched(SealedTier, purge=purge)


def _keeps_entries(_index: Index, _keys: Iterable[ObjectKey]) -> int:
    return 0


def _oldest_first(
    self: ScopedPolicy[ObjectKey], size_bytes: int, _account: bytes, protected: Any = ()
) -> list[ObjectKey] | None:
    """Whoever asks, whosever it is."""
    found: list[ObjectKey] = []
    for key, run in self._runs.items():
        if size_bytes <= 0:
            break
        if not run.pins and key not in protected:
            found.append(key)
            size_bytes -= run.size_bytes
    return found if size_bytes <= 0 else None


PLANTED = {
    "name_unkeyed": Planted(
        "an object's name is a plain hash: whoever guesses a prompt can confirm it",
        "store.names",
        switch(sealed_objects, object_name=_hashed_name),
    ),
    "bound_data_dropped": Planted(
        "seals cover no identity: objects of one chain can be swapped",
        "store.tamper.directory",
        switch(sealed_objects, associated_data=_unbound),
    ),
    "nonce_repeats": Planted(
        "all objects are sealed with one nonce",
        "store.sealed",
        switch(sealed_objects, make_header=_one_nonce),
    ),
    "one_key_for_all": Planted(
        "every scope has the same key: a worker's lease opens all",
        "isolation.leases",
        switch(broker, Lease=_one_key),
    ),
    "plaintext_tier": Planted(
        "tiers keep plain bytes",
        "store.sealed",
        switch(AesGcm, seal_into=_plain_seal, open_in_place=_plain_open),
    ),
    "tampered_served": Planted(
        "what was changed in a store is served",
        "store.tamper.directory",
        switch(AesGcm, open_in_place=_unchecked_open),
    ),
    "lease_too_wide": Planted(
        "the broker leases keys of scopes that the ticket does not name",
        "isolation.leases",
        switch(KeyBroker, lease=_wide_leases),
    ),
    "lease_for_forged_ticket": Planted(
        "the broker leases keys for a ticket that nobody signed",
        "isolation.leases",
        switch(broker, verify_for_broker=_unverified),
    ),
    "purge_skips_a_tier": Planted(
        "a purge leaves one tier out and says done",
        "store.tamper.old_epoch",
        lambda: _skipping("directory"),
    ),
    "stale_index_entry": Planted(
        "a tier goes on believing in objects that are gone",
        "store.tamper.directory",
        switch(Index, forget=_keeps_entries),
    ),
    "cross_tenant_eviction": Planted(
        "no tenant has a guaranteed share: a flood evicts everybody's blocks",
        "timing.flooding",
        switch(ScopedPolicy, victims=_oldest_first),
    ),
}
