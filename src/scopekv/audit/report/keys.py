"""The key that signs reports, and its public half in forms that other programs read."""

from __future__ import annotations

import hashlib
import string
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.adapters.root_key import load_or_create
from scopekv.errors import ConfigError

REPORT_KEY = "keys/report.key"
PUBLIC_KEY_BYTES = 32
_FILE_BYTES_MAX = 4096


def report_signer(data_dir: Path) -> TicketSigner:
    """The key of this data directory, made at first use (0600). It signs nothing but reports.

    Raises `ConfigError`.
    """
    path = data_dir / REPORT_KEY
    try:
        return TicketSigner(load_or_create(path).derive("report signing 1"))
    except ConfigError as error:
        raise ConfigError(
            f"no key to sign reports with: {path} must hold one key of 64 hex digits, for its "
            "owner alone (chmod 600). Restore it, or move it away: a new one is made, and "
            "readers who know the old fingerprint must be told the new one."
        ) from error


def fingerprint(public_key: bytes) -> str:
    """SHA-256 of the 32 bytes, as 64 hex digits: what operator and reader compare."""
    return hashlib.sha256(public_key).hexdigest()


def read_fingerprint(text: str) -> str:
    """A fingerprint as people write it: in any case, with spaces or colons. `ConfigError`."""
    digits = text.lower().removeprefix("sha256:").translate({ord(c): None for c in ": \t"})
    if len(digits) != 64 or not set(digits) <= set(string.hexdigits):
        raise ConfigError(
            f"a fingerprint has 64 hex digits, this one {len(digits)} characters; "
            "`scopekv audit verify --show-key` prints it where the report was made"
        )
    return digits


def public_pem(public_key: bytes) -> str:
    """The public key as PEM (RFC 8410), which `openssl` reads."""
    key = Ed25519PublicKey.from_public_bytes(public_key)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_key(path: Path) -> bytes:
    """The 32 bytes of a file that holds PEM or 64 hex digits. Raises `ConfigError`."""
    wanted = "the PEM that `scopekv audit verify --show-key` prints, or 64 hex digits"
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
        if b"BEGIN" in content:
            key = load_pem_public_key(content)
            if not isinstance(key, Ed25519PublicKey):
                raise ConfigError(f"the key in {path} is not Ed25519; give {wanted}")
            return key.public_bytes_raw()
        found = bytes.fromhex(content.decode().strip())
    except OSError as error:
        raise ConfigError(f"cannot read the key at {path}: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} holds no public key; give {wanted}") from error
    if len(found) != PUBLIC_KEY_BYTES:
        raise ConfigError(f"the key in {path} has {len(found)} bytes, not 32; give {wanted}")
    return found
