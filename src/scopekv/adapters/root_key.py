"""The deployment's root key: 32 random bytes in a file of mode 0600, made at first start.

Everything secret is derived from it per purpose, so all gateways of a deployment need one file.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from scopekv.core.encoding import encode
from scopekv.errors import ConfigError

KEY_BYTES = 32


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

    Raises `ConfigError` where others may read the file, or it is no key.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot write the root key at {path}: {error.strerror}") from error
    if not path.exists():
        _create(path)
    try:
        mode = path.stat().st_mode & 0o777
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the root key at {path} cannot be read ({type(error).__name__}). Restore it from your "
            "copy; without it every cached block and opaque name of this deployment is void."
        ) from error
    if mode & 0o077:
        raise ConfigError(f"others may read the root key at {path} (mode {mode:o}): chmod 600 it.")
    return RootKey(key)


def _create(path: Path) -> None:
    """Write a whole file and link it into place: whoever links first wins."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass  # another start was first
    except OSError as error:
        raise ConfigError(f"cannot write the root key at {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
