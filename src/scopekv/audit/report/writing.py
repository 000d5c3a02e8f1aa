"""Puts a report on disk: whole, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import msgspec

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.report.contents import Report
from scopekv.audit.report.html import html
from scopekv.audit.report.junit import junit
from scopekv.audit.report.manifest import FILES, MANIFEST, SIGNATURE, manifest_of
from scopekv.audit.report.redaction import cleaned
from scopekv.audit.report.sarif import sarif
from scopekv.errors import ConfigError, Conflict


def write_report(report: Report, folder: Path, signer: TicketSigner, *, force: bool) -> None:
    """Write the six files into a new folder, signed. It appears in one step.

    `force`: replace a report that is there; nothing else is ever replaced. Raises `Conflict` where
    something is there, `ConfigError` where it cannot be written.
    """
    folder = folder.absolute()
    check_folder(folder, force=force)
    files = _files(cleaned(report), signer)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    replaced = folder.with_name(f"{temporary.name}.old")
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            _write(temporary / name, content)
        if folder.exists():
            folder.rename(replaced)
        temporary.rename(folder)
    except OSError as error:
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        raise ConfigError(f"cannot write the report to {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise unless a report may be written there: before an audit's many minutes, not after."""
    folder = folder.absolute()
    parent = next(one for one in folder.parents if one.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise ConfigError(f"cannot write the report to {folder}: {parent} is not a folder of yours")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Conflict(f"{folder} is there and no folder; choose another --out")
    found = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    if not found:
        return
    if not found <= {*FILES, MANIFEST, SIGNATURE} or MANIFEST not in found:
        raise Conflict(f"{folder} holds other files; choose another --out")
    if not force:
        raise Conflict(f"{folder} holds a report; choose another --out, or replace it with --force")


def _files(report: Report, signer: TicketSigner) -> dict[str, bytes]:
    as_json = msgspec.json.format(msgspec.json.encode(report.plain()), indent=1) + b"\n"
    files = {
        "report.html": html(report, signer.public_key),
        "report.json": as_json,
        "junit.xml": junit(report),
        "report.sarif": sarif(report),
    }
    manifest = manifest_of(report, files, signer)
    return {**files, MANIFEST: manifest, SIGNATURE: signer.sign(manifest)}


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
