"""What is signed: every file of a report by size and hash, and who signed it.

`manifest.sig` is the raw Ed25519 signature (64 bytes) over the bytes of `manifest.json` as they
are, so that `openssl pkeyutl -verify -rawin` checks it too. The key signs nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.report.contents import Report, moment
from scopekv.audit.report.keys import PUBLIC_KEY_BYTES, fingerprint
from scopekv.audit.results import Verdict
from scopekv.errors import Corrupt

FORMAT = "scopekv/audit-manifest/1"
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
FILES = ("report.html", "report.json", "junit.xml", "report.sarif")
MANIFEST_BYTES_MAX = 1 << 20
SIGNATURE_BYTES = 64
_HASH_DIGITS = 64


class FileEntry(msgspec.Struct, frozen=True):
    name: str
    size_bytes: int
    sha256: str


class SignedBy(msgspec.Struct, frozen=True):
    """`public_key`: 64 hex digits; `fingerprint`: SHA-256 of its 32 bytes, 64 hex digits."""

    public_key: str
    fingerprint: str


class AuditEntry(msgspec.Struct, frozen=True):
    audit: str
    target: str
    verdict: Verdict
    complete: bool
    seed: int
    command: str


class Manifest(msgspec.Struct, frozen=True):
    format: str
    verdict: Verdict
    complete: bool
    started_at: str
    ended_at: str
    command: str
    versions: dict[str, str]
    audits: list[AuditEntry]
    signed_by: SignedBy
    files: list[FileEntry]


def manifest_of(report: Report, files: Mapping[str, bytes], signer: TicketSigner) -> bytes:
    """The bytes of `manifest.json`, to be signed as they are."""
    public_key = signer.public_key
    made = Manifest(
        format=FORMAT,
        verdict=report.verdict,
        complete=report.complete,
        started_at=moment(report.started_at),
        ended_at=moment(report.ended_at),
        command=report.command,
        versions=report.versions(),
        audits=[
            AuditEntry(
                one.audit,
                one.target,
                one.verdict,
                one.complete,
                one.seed,
                report.repeat.get(one.audit, report.command),
            )
            for one in report.results
        ],
        signed_by=SignedBy(public_key.hex(), fingerprint(public_key)),
        files=[
            FileEntry(name, len(content), hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        ],
    )
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"


def read_manifest(data: bytes) -> Manifest:
    """Parse it and check that it can be meant. Raises `Corrupt`, which says what is wrong."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt("it is no JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Corrupt(f"it is not of the format {FORMAT}; a newer ScopeKV may read it")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        key = bytes.fromhex(manifest.signed_by.public_key)
        hashes = [bytes.fromhex(entry.sha256) for entry in manifest.files]
    except (msgspec.ValidationError, ValueError) as error:
        raise Corrupt("a field is missing or of another type") from error
    if len(key) != PUBLIC_KEY_BYTES or any(len(one) * 2 != _HASH_DIGITS for one in hashes):
        raise Corrupt("a key or a hash has another length")
    names = [entry.name for entry in manifest.files]
    if sorted(names) != sorted(FILES):
        raise Corrupt(f"it does not list exactly {', '.join(FILES)}")
    return manifest
