"""The deployment's key files: one key of 32 random bytes a line in hex, mode 0600.

    root.key      one line for ever: names of scopes and the ticket signing key are derived from it
    wrap.key      the local root key that wraps scope keys; the first line is current, the lines
                  after it unwrap what they wrapped (rotation)
    instance.key  the secret by which engines of this deployment ask for leases

Everything secret is derived per purpose, so all gateways of a deployment need the same files.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scopekv.adapters.folder_lock import alone
from scopekv.core.encoding import encode
from scopekv.errors import ConfigError, Corrupt, ScopeKVError, Unavailable

KEY_BYTES = 32
VERSION_BYTES = 8
NONCE_BYTES = 12
TAG_BYTES = 16
_FORMAT = b"\x01"
_HEAD_BYTES = len(_FORMAT) + VERSION_BYTES + NONCE_BYTES


class RootKey:
    """Holds the key; gives out only what is derived from it. Nothing of it shows in `repr`."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError(f"a root key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes for one purpose: HMAC-SHA-256 over its name."""
        return hmac.digest(self._key, encode("scopekv/derive/1", purpose), "sha256")


def load_or_create(path: Path) -> RootKey:
    """Read the key file, or make it. Two starts at once agree on one key.

    Raises `ConfigError` where others may read the file, or it does not hold exactly one key.
    """
    _ensure(path)
    keys = _read(path)
    if len(keys) != 1:
        raise ConfigError(f"the key file {path} holds {len(keys)} keys; it takes one")
    return keys[0]


class FileKeyWrapper:
    """`ports.KeyWrapper` over `wrap.key`. Thread-safe; sees a changed file at the next call.

    wrapped := 1(1) version(8) nonce(12) AES-256-GCM(key) tag(16), the key derived from a line of
    the file, `version` and `context` bound. `version` is a digest of the derived key.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, or make it. Raises `ConfigError`."""
        _ensure(path)
        self._path = path
        self._lock = threading.Lock()
        self._stamp = _stat(path)
        self._keys = _ciphers(_read(path))

    @property
    def version(self) -> str:
        return f"file:{next(iter(self._current())).hex()}"

    def wrap(self, key: bytes, context: bytes) -> bytes:
        version, cipher = next(iter(self._current().items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        return _FORMAT + version + nonce + cipher.encrypt(nonce, key, _bound(version, context))

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        version = wrapped[1 : 1 + VERSION_BYTES]
        if wrapped[:1] != _FORMAT or len(wrapped) != _HEAD_BYTES + KEY_BYTES + TAG_BYTES:
            raise Corrupt("a wrapped scope key has another form or length")
        cipher = self._current().get(version)
        if cipher is None:
            raise Corrupt(
                f"a scope key was wrapped by {version.hex()}, which is not in {self._path.name}: "
                "copy the file from where it was rotated, or put the old line back"
            )
        nonce = wrapped[_HEAD_BYTES - NONCE_BYTES : _HEAD_BYTES]
        try:
            return cipher.decrypt(nonce, wrapped[_HEAD_BYTES:], _bound(version, context))
        except InvalidTag as error:
            raise Corrupt("a wrapped scope key does not open: altered, or of another scope") from (
                error
            )

    def rotate(self) -> str:
        """Put a new key before the others, in one atomic step."""
        self._rewrite(lambda lines: [secrets.token_hex(KEY_BYTES), *lines])
        return self.version

    def retire(self) -> int:
        """Keep the current key alone."""
        return self._rewrite(lambda lines: lines[:1])

    def close(self) -> None:
        """Nothing is open."""

    def _rewrite(self, change: Callable[[list[str]], list[str]]) -> int:
        """Replace the lines under a lock over processes; return how many fewer there are."""
        with alone(self._path.parent):
            try:
                _read(self._path)  # refuses what is no key file
                before = self._path.read_text().split()
                after = change(before)
                _replace(self._path, after)
            except (ConfigError, OSError) as error:
                raise Unavailable(f"{self._path.name} stays as it was: {error}") from error
        return len(before) - len(after)

    def _current(self) -> dict[bytes, AESGCM]:
        with self._lock:
            stamp = _stat(self._path)
            if stamp != self._stamp or stamp is None:
                try:
                    self._keys = _ciphers(_read(self._path))
                except ConfigError as error:  # it was good at the start, so it may be again
                    raise Unavailable(str(error)) from error
                self._stamp = stamp
            return self._keys


def _ciphers(keys: Sequence[RootKey]) -> dict[bytes, AESGCM]:
    made = {}
    for key in keys:
        derived = key.derive("scope key wrapping")
        digest = hashlib.sha256(encode("scopekv/wrap-version/1", derived)).digest()
        made[digest[:VERSION_BYTES]] = AESGCM(derived)
    return made


def _bound(version: bytes, context: bytes) -> bytes:
    return encode("scopekv/wrap/1", version, context)


def read_secret(path: Path) -> str:
    """The one key of an existing file as hex, to be shown to its owner's peer. `ConfigError`."""
    keys = _read(path)
    if len(keys) != 1:
        raise ConfigError(f"the key file {path} holds {len(keys)} keys; it takes one")
    return path.read_text().strip()


def make_secret(path: Path) -> str:
    """`read_secret` of a file that is made if need be."""
    _ensure(path)
    return read_secret(path)


def _ensure(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot write the root key at {path}: {error.strerror}") from error
    if not path.exists():
        _create(path)


def _read(path: Path) -> list[RootKey]:
    """The keys of the file, at least one. Raises `ConfigError`, which repeats none of it."""
    try:
        mode = path.stat().st_mode & 0o777
        lines = path.read_text().split()
        keys = [RootKey(bytes.fromhex(line)) for line in lines]
        if not keys:
            raise ValueError("empty")
    except (OSError, ValueError, ScopeKVError) as error:
        raise ConfigError(
            f"the root key at {path} cannot be read ({type(error).__name__}). Restore it from your "
            "copy; without it every cached block and opaque name of this deployment is void."
        ) from error
    if mode & 0o077:
        raise ConfigError(f"others may read the root key at {path} (mode {mode:o}): chmod 600 it.")
    return keys


def _create(path: Path) -> None:
    """Write a whole file and link it into place: whoever links first wins."""
    temporary = _written(path, [secrets.token_hex(KEY_BYTES)])
    try:
        os.link(temporary, path)
        _sync(path.parent)
    except FileExistsError:
        pass  # another start was first
    except OSError as error:
        raise ConfigError(f"cannot write the root key at {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _written(path: Path, lines: Sequence[str]) -> Path:
    """A whole, synced file beside `path`, for its owner alone."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write the root key at {path}: {error.strerror}") from error
    return temporary


def _replace(path: Path, lines: Sequence[str]) -> None:
    """For one process at a time: what a killed one left holds keys that may be retired by now."""
    temporary = _written(path, lines)
    try:
        temporary.replace(path)
    finally:
        for left in path.parent.glob(f".{path.name}.*"):
            left.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Let names in a folder outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino)
