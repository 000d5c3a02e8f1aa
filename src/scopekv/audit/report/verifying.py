"""Has anybody changed this report since it was signed, and who signed it?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from scopekv.adapters.ed25519 import verifier
from scopekv.audit.report.keys import fingerprint
from scopekv.audit.report.manifest import (
    MANIFEST,
    MANIFEST_BYTES_MAX,
    SIGNATURE,
    SIGNATURE_BYTES,
    FileEntry,
    Manifest,
    read_manifest,
)
from scopekv.errors import ConfigError, Corrupt

FILE_BYTES_MAX = 1 << 30
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Verification:
    """`problems`: what is wrong, in words; empty: nothing. `manifest`: as signed, if readable.

    `pinned`: the key was compared with one the reader brought; without that a signature shows
    only that the files belong together, since anybody can sign with a key of their own.
    """

    problems: tuple[str, ...]
    manifest: Manifest | None
    pinned: bool

    @property
    def exit_code(self) -> int:
        """0 unchanged, 1 changed or of another key, 2 no report that can be read."""
        if self.manifest is None:
            return 2
        return 1 if self.problems else 0


def verify_report(folder: Path, expected_fingerprint: str | None) -> Verification:
    """Check signature, key and every file of the folder. Changes nothing.

    `expected_fingerprint`: 64 hex digits, or None to accept any key. Raises `ConfigError` where
    the folder cannot be read at all.
    """
    pinned = expected_fingerprint is not None
    try:
        entries = {entry.name: entry for entry in folder.iterdir()}
        signed = _read(folder / MANIFEST, MANIFEST_BYTES_MAX)
        signature = _read(folder / SIGNATURE, SIGNATURE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error
    if signed is None:
        return Verification((f"{MANIFEST} is missing, or no plain file",), None, pinned)
    try:
        manifest = read_manifest(signed)
    except Corrupt as error:
        return Verification((f"{MANIFEST} cannot be read: {error}",), None, pinned)
    problems = [*_signature(manifest, signed, signature), *_key(manifest, expected_fingerprint)]
    for entry in manifest.files:
        problems += _file(folder, entry)
    known = {MANIFEST, SIGNATURE, *(entry.name for entry in manifest.files)}
    problems += [f"{name!r} does not belong to the report" for name in sorted({*entries} - known)]
    return Verification(tuple(problems), manifest, pinned)


def _signature(manifest: Manifest, signed: bytes, signature: bytes | None) -> list[str]:
    if signature is None:
        return [f"{SIGNATURE} is missing, or no plain file: nothing shows who made this report"]
    check = verifier(bytes.fromhex(manifest.signed_by.public_key))
    if len(signature) == SIGNATURE_BYTES and check(signed, signature):
        return []
    return [f"the signature does not fit: {MANIFEST} or {SIGNATURE} was changed"]


def _key(manifest: Manifest, expected: str | None) -> list[str]:
    own = fingerprint(bytes.fromhex(manifest.signed_by.public_key))
    problems = []
    if manifest.signed_by.fingerprint != own:
        problems.append(f"{MANIFEST} names a fingerprint that is not its key's")
    if expected is not None and own != expected:
        problems.append(f"signed by another key: its fingerprint is {own}, expected {expected}")
    return problems


def _file(folder: Path, entry: FileEntry) -> list[str]:
    path = folder / entry.name
    try:
        if path.is_symlink() or not path.is_file():
            return [f"{entry.name} is missing, or no plain file"]
        size = path.stat().st_size
        if size != entry.size_bytes:
            return [
                f"{entry.name} was changed: it has {size} bytes, signed were {entry.size_bytes}"
            ]
        if size > FILE_BYTES_MAX:
            return [f"{entry.name} is over {FILE_BYTES_MAX} bytes"]
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        return [f"{entry.name} cannot be read: {error.strerror}"]
    same = digest.hexdigest() == entry.sha256.lower()
    return [] if same else [f"{entry.name} was changed: its SHA-256 is not the signed one"]


def _read(path: Path, bytes_max: int) -> bytes | None:
    """At most one byte more than allowed, which no parser and no signature then accepts."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(bytes_max + 1)
