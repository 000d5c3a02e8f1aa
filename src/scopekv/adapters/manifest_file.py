"""A small file that is replaced whole and carries its own checksum.

SHA-256 of the rest (32) | body
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from scopekv.errors import Corrupt, Unavailable

DIGEST_BYTES = 32
SIZE_BYTES_MAX = 1 << 28


def write_manifest(path: Path, body: bytes) -> None:
    """Replace the file in one step, mode 0600. `Unavailable` where that is not possible."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise Unavailable(f"the manifest cannot be written: {error.strerror}") from error


def read_manifest(path: Path) -> bytes | None:
    """Return the body; None without a file. `Corrupt` where it is not what was written."""
    try:
        if path.stat().st_size > SIZE_BYTES_MAX:
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
