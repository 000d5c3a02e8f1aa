"""A report that was changed is found out, and which file it was is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.report import (
    fingerprint,
    public_pem,
    read_fingerprint,
    read_public_key,
    report_signer,
    verify_report,
    write_report,
)
from scopekv.errors import ConfigError
from tests.unit.audit.report import samples

OWN = fingerprint(samples.SIGNER.public_key)
OTHER = TicketSigner(b"\x08" * 32)
SIGNED = ("report.html", "report.json", "junit.xml", "report.sarif")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_report(samples.report(), tmp_path / "report", samples.SIGNER, force=False)
    return tmp_path / "report"


def problems(folder: Path, expected: str | None = OWN) -> str:
    return "; ".join(verify_report(folder, expected).problems)


def test_an_untouched_report_verifies(folder: Path) -> None:
    found = verify_report(folder, OWN)
    assert (found.problems, found.exit_code, found.pinned) == ((), 0, True)
    assert not verify_report(folder, None).pinned


@pytest.mark.parametrize("name", SIGNED)
def test_a_changed_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert problems(folder) == f"{name} was changed: its SHA-256 is not the signed one"
    path.write_bytes(content + b"\n")
    assert problems(folder).startswith(f"{name} was changed: it has ")
    path.unlink()
    assert problems(folder) == f"{name} is missing, or no plain file"
    assert verify_report(folder, OWN).exit_code == 1


def test_a_link_in_place_of_a_file_is_no_file(folder: Path) -> None:
    moved = folder.parent / "elsewhere.html"
    (folder / "report.html").rename(moved)
    (folder / "report.html").symlink_to(moved)
    assert problems(folder) == "report.html is missing, or no plain file"


def test_an_added_file_is_named_in_one_printable_line(folder: Path) -> None:
    (folder / "no\x1b[2Jte.html").write_text("read me instead")
    (folder / "more").mkdir()
    assert problems(folder) == (
        "'more' does not belong to the report; 'no\\x1b[2Jte.html' does not belong to the report"
    )


def test_every_byte_of_the_manifest_is_signed(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_text()
    path.write_text(whole.replace('"verdict": "broken"', '"verdict": "held"', 1))
    assert "the signature does not fit" in problems(folder)
    path.write_text(whole + " ")
    assert "the signature does not fit" in problems(folder)


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"\0" * 65])
def test_another_signature_does_not_fit(folder: Path, signature: bytes) -> None:
    (folder / "manifest.sig").write_bytes(signature)
    assert "the signature does not fit" in problems(folder)


def test_a_missing_signature_shows_nothing(folder: Path) -> None:
    (folder / "manifest.sig").unlink()
    assert "nothing shows who made this report" in problems(folder)


def test_a_report_signed_anew_by_another_is_found_by_its_key_alone(folder: Path) -> None:
    write_report(samples.report(samples.isolation()), folder, OTHER, force=True)
    assert problems(folder, None) == ""
    assert problems(folder).startswith("signed by another key")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["signed_by"]["fingerprint"] = OWN
    data = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sig").write_bytes(OTHER.sign(data))
    assert "names a fingerprint that is not its key's" in problems(folder, None)
    assert "signed by another key" in problems(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "scopekv/audit-manifest/2"},
        {"files": []},
        {"files": [{"name": "../../etc/passwd", "size_bytes": 1, "sha256": "00" * 32}]},
        {"signed_by": {"public_key": "00", "fingerprint": "00"}},
        {"verdict": "splendid"},
    ],
)
def test_a_manifest_that_cannot_be_meant_is_no_report(
    folder: Path, change: dict[str, object]
) -> None:
    manifest = json.loads((folder / "manifest.json").read_text()) | change
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = verify_report(folder, OWN)
    assert found.exit_code == 2
    assert "manifest.json cannot be read" in found.problems[0]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{" * 100_000, b" " * (2 << 20)])
def test_a_manifest_of_another_kind_is_no_report(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    assert verify_report(folder, OWN).exit_code == 2


def test_a_folder_without_a_manifest_is_no_report(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    assert verify_report(folder, None).exit_code == 2
    with pytest.raises(ConfigError):
        verify_report(folder / "absent", None)


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = report_signer(tmp_path)
    assert report_signer(tmp_path).public_key == first.public_key
    path = tmp_path / "keys" / "report.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert bytes.fromhex(path.read_text()) != first.public_key
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"report\.key"):
        report_signer(tmp_path)


def test_a_public_key_is_read_as_it_is_shown(tmp_path: Path) -> None:
    key = samples.SIGNER.public_key
    for text in (public_pem(key), key.hex(), key.hex().upper() + "\n", public_pem(key) + OWN):
        (tmp_path / "key").write_text(text)
        assert read_public_key(tmp_path / "key") == key
    for text in ("", "00" * 31, "-----BEGIN PUBLIC KEY-----\nnone\n", "\udcff"):
        (tmp_path / "key").write_text(text, errors="surrogateescape")
        with pytest.raises(ConfigError):
            read_public_key(tmp_path / "key")
    with pytest.raises(ConfigError):
        read_public_key(tmp_path / "absent")


def test_a_fingerprint_is_read_as_people_write_it() -> None:
    pairs = [OWN[place : place + 2] for place in range(0, 64, 2)]
    for text in (OWN, OWN.upper(), ":".join(pairs), "SHA256:" + " ".join(pairs)):
        assert read_fingerprint(text) == OWN
    for text in ("", OWN[:-1], OWN + "0", "g" * 64):
        with pytest.raises(ConfigError):
            read_fingerprint(text)
