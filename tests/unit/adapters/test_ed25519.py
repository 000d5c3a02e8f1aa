"""Ticket keys: signing, the public list, and a list that changes under a running engine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from scopekv.adapters.ed25519 import (
    KeyFile,
    TicketSigner,
    read_public_keys,
    verifier,
    write_public_keys,
)
from scopekv.errors import ConfigError

# RFC 8032, section 7.1, test 2.
RFC_SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
RFC_PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
RFC_SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
OLD, NEW = TicketSigner(b"o" * 32), TicketSigner(b"n" * 32)


def test_signing_is_ed25519_as_in_the_rfc() -> None:
    signer = TicketSigner(RFC_SEED)
    assert signer.public_key == RFC_PUBLIC
    assert signer.sign(b"\x72") == RFC_SIGNATURE
    check = verifier(RFC_PUBLIC)
    assert check(b"\x72", RFC_SIGNATURE)
    assert not check(b"\x73", RFC_SIGNATURE)
    assert not check(b"\x72", bytes(64))
    assert not check(b"\x72", RFC_SIGNATURE[:-1])


def test_a_signer_shows_nothing_of_its_seed() -> None:
    shown = f"{OLD!r} {OLD!s} {vars(OLD)}"
    assert (b"o" * 32).hex() not in shown
    assert repr(b"o" * 32) not in shown


def test_the_public_list_is_whole_and_readable_by_engines(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for signers in ((OLD,), (OLD, NEW)):
        write_public_keys(path, [signer.public_key for signer in signers])
        assert set(read_public_keys(path)) == {signer.key_id for signer in signers}
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert list(tmp_path.iterdir()) == [path]


def test_a_missing_list_says_who_writes_it(tmp_path: Path) -> None:
    for read in (read_public_keys, KeyFile):
        with pytest.raises(ConfigError, match="SCOPEKV_TICKET_KEYS"):
            read(tmp_path / "none.json")


def test_a_rotation_reaches_a_running_engine(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_public_keys(path, [OLD.public_key])
    keys = KeyFile(path)
    with pytest.raises(KeyError):
        keys[NEW.key_id]
    write_public_keys(path, [OLD.public_key, NEW.public_key])
    assert keys[NEW.key_id](b"m", NEW.sign(b"m"))
    assert keys.get(OLD.key_id) is not None
    assert (len(keys), set(keys)) == (2, {OLD.key_id, NEW.key_id})


def test_a_list_that_cannot_be_read_holds_no_key(tmp_path: Path) -> None:
    """It could be the one that takes a stolen key out. Mended, it is read again."""
    path = tmp_path / "keys.json"
    write_public_keys(path, [OLD.public_key])
    keys = KeyFile(path)
    for broken in ("{", ""):
        path.write_text(broken)
        assert keys.get(NEW.key_id) is None
        assert keys.get(OLD.key_id) is None
    path.unlink()
    assert keys.get(OLD.key_id) is None
    assert list(keys) == []
    write_public_keys(path, [NEW.public_key])
    assert keys.get(NEW.key_id) is not None
    assert keys.get(OLD.key_id) is None  # rotated out


def test_a_key_taken_out_of_the_list_verifies_no_more(tmp_path: Path) -> None:
    """The second half of a rotation, or the end of a stolen key: no unknown id announces it."""
    path = tmp_path / "keys.json"
    write_public_keys(path, [OLD.public_key, NEW.public_key])
    keys = KeyFile(path)
    write_public_keys(path, [NEW.public_key])
    assert keys.get(NEW.key_id) is not None
    assert keys.get(OLD.key_id) is None


def test_unknown_keys_do_not_read_an_unchanged_file(tmp_path: Path) -> None:
    """A stream of forged key ids costs a stat each, not a read."""
    path = tmp_path / "keys.json"
    write_public_keys(path, [OLD.public_key])
    keys, before = KeyFile(path), path.stat()
    path.write_text(path.read_text().replace(OLD.public_key.hex(), NEW.public_key.hex()))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert keys.get(NEW.key_id) is None
    path.touch()
    assert keys.get(NEW.key_id) is not None


def test_a_list_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(ConfigError, match="cannot write the ticket keys"):
        write_public_keys(path, [OLD.public_key])
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]
