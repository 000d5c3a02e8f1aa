"""Ed25519 (RFC 8032) keys for tickets: a seed file for gateways, a public key list for engines."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from scopekv.core.tickets import Check, KeyId, Sign, key_id
from scopekv.errors import ConfigError

SEED_BYTES = 32
log = logging.getLogger("scopekv.keys")


class TicketSigner:
    """Signs with one private key. Nothing of it shows in `repr`."""

    def __init__(self, seed: bytes) -> None:
        private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = private.public_key().public_bytes_raw()
        self.key_id = key_id(self.public_key)
        self.sign: Sign = private.sign


def verifier(public_key: bytes) -> Check:
    """Return the check for one public key of 32 bytes."""
    public = Ed25519PublicKey.from_public_bytes(public_key)

    def check(message: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return check


def write_public_keys(path: Path, public_keys: Iterable[bytes]) -> None:
    """Write the list that engines read (`SCOPEKV_TICKET_KEYS`), in one atomic step."""
    text = json.dumps({"version": 1, "keys": [key.hex() for key in public_keys]}, indent=1)
    temporary = None
    try:
        if path.is_file() and path.read_text() == text + "\n":
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise ConfigError(f"cannot write the ticket keys at {path}: {error.strerror}") from error


def read_public_keys(path: Path) -> dict[KeyId, Check]:
    """Read the list that `write_public_keys` wrote. `ConfigError` says what is wrong with it."""
    try:
        listed = json.loads(path.read_text())
        if listed.get("version") != 1 or not listed["keys"]:
            raise ValueError("it is not a version 1 list with at least one key")
        keys = [bytes.fromhex(key) for key in listed["keys"]]
        return {key_id(key): verifier(key) for key in keys}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"cannot read the ticket keys at {path}: {error}. The gateway writes it into its data "
            "directory (keys/ticket-keys.json); copy it here or set SCOPEKV_TICKET_KEYS."
        ) from error


class KeyFile(Mapping[KeyId, Check]):
    """The keys of a file as it is now: a rotation reaches running engines by replacing the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._stat()
        self._keys = read_public_keys(path)

    def __getitem__(self, wanted: KeyId) -> Check:
        return self._current()[wanted]

    def __iter__(self) -> Iterator[KeyId]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def _current(self) -> dict[KeyId, Check]:
        """What the file holds now; nothing while it cannot be read, and then it is read again.

        Keeping what was would keep a key that somebody is taking out.
        """
        stamp = self._stat()
        if stamp != self._stamp or not self._keys:
            try:
                self._keys = read_public_keys(self._path)
            except ConfigError as error:
                if self._keys:
                    log.error("no ticket verifies until this is mended: %s", error)
                self._keys = {}
            self._stamp = stamp
        return self._keys

    def _stat(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)
