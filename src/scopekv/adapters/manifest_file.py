"""A small file that is replaced whole and carries its own checksum.

SHA-256 of the rest (32) | body
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from scopekv.errors import Corrupt, Unavailable

DIGEST_BYTES = 32
SIZE_BYTES_MAX = 1 << 28  # of the body
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def write_manifest(path: Path, body: Iterable[bytes]) -> None:
    """Replace the file in one step, mode 0600. `Unavailable` where that is not possible.

    One writer at a time: what a killed one left is written over.
    """
    temporary = path.with_name(f".{path.name}-new")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(temporary, _FLAGS, 0o600), "wb") as file:
            file.write(bytes(DIGEST_BYTES))
            for piece in body:
                file.write(piece)
                digest.update(piece)
            file.seek(0)
            file.write(digest.digest())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise Unavailable(f"the manifest cannot be written: {error.strerror}") from error


def read_manifest(path: Path) -> bytes | None:
    """Return the body; None without a file. `Corrupt` where it is not what was written."""
    try:
        if path.stat().st_size > DIGEST_BYTES + SIZE_BYTES_MAX:
            raise Corrupt("the manifest is larger than any that is written")
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"the manifest cannot be read: {error.strerror}") from error
    body = content[DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != content[:DIGEST_BYTES]:
        raise Corrupt("the manifest fails its checksum")
    return body
