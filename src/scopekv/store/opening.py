"""Opening the tier that a URL names."""

from __future__ import annotations

import hashlib
import hmac
import platform
from pathlib import Path
from urllib.parse import urlsplit

from scopekv.adapters.objects import open_store
from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import encode
from scopekv.core.eviction import ScopedPolicy, Shares
from scopekv.store.keyring import Keyring
from scopekv.store.settings import TierSettings
from scopekv.store.tier import SealedTier

_STORE_ID_BYTES = 16


def open_tier(
    url: str,
    *,
    capacity_bytes: int,
    keyring: Keyring,
    namespace: Fingerprint,
    block_bytes: int,
    state_dir: Path | None = None,
) -> SealedTier:
    """Open the tier that a URL names, with our eviction policy. Raises `ConfigError`.

    `state_dir`: where the manifest of a directory tier lies; None keeps none.
    """
    store = open_store(url)
    shared = store.medium != "directory"
    manifest = None if shared or state_dir is None else state_dir / "tier-manifest"
    settings = TierSettings(
        capacity_bytes=capacity_bytes,
        shared=shared,
        store_id=store_id(url, namespace) if shared else b"",
        manifest=manifest,
    )
    return SealedTier(
        store,
        keyring,
        namespace=namespace,
        block_bytes=block_bytes,
        settings=settings,
        policy=ScopedPolicy(Shares(capacity_bytes)),
    )


def store_id(url: str, namespace: Fingerprint) -> bytes:
    """16 opaque bytes, equal for engines that read each other's objects there.

    Made of where the URL leads, without credentials. One store under two spellings counts as two,
    which hides blocks from the location index and promises none. A loopback address leads to
    another store on each machine.
    """
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    query = [one for one in sorted(parts.query.split("&")) if one.startswith("endpoint=")]
    local = any(name in f"{where} {query}" for name in ("localhost", "127.0.0.", "[::1]"))
    here = platform.node() if local else ""
    named = encode("scopekv/store/1", parts.scheme, where, parts.path, query, here)
    return hmac.digest(namespace, named, hashlib.sha256)[:_STORE_ID_BYTES]
