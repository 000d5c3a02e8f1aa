"""The root key file: made once, read by its owner alone, and never half written."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scopekv.adapters.root_key import (
    FileKeyWrapper,
    RootKey,
    load_or_create,
    make_secret,
    read_secret,
)
from scopekv.errors import ConfigError, Corrupt, Unavailable


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "root.key"
    first = load_or_create(path)
    written = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(written)) == 32
    assert load_or_create(path).derive("x") == first.derive("x")
    assert path.read_text() == written
    assert list(path.parent.iterdir()) == [path]


def test_a_new_key_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its name are synced: what it wraps is in a registry that syncs, too."""
    synced, fsync = [], os.fsync

    def watched(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    wrapper = FileKeyWrapper(tmp_path / "wrap.key")
    assert synced[-1] == str(tmp_path)
    assert len(synced) == 2
    wrapper.rotate()
    assert synced[-1] == str(tmp_path)
    assert len(synced) == 4


def test_retiring_takes_away_what_a_killed_rotation_left(tmp_path: Path) -> None:
    path = tmp_path / "wrap.key"
    wrapper = FileKeyWrapper(path)
    left = tmp_path / ".wrap.key.0123456789abcdef"
    left.write_bytes(path.read_bytes())
    wrapper.rotate()
    assert not left.exists()
    left.write_bytes(path.read_bytes())
    assert wrapper.retire() == 1
    assert os.listdir(tmp_path) == ["wrap.key"]


def test_two_deployments_have_two_keys(tmp_path: Path) -> None:
    keys = [load_or_create(tmp_path / name / "root.key").derive("x") for name in "ab"]
    assert keys[0] != keys[1]


def test_starts_at_once_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "root.key"
    with ThreadPoolExecutor(8) as pool:
        derived = set(pool.map(lambda _: load_or_create(path).derive("x"), range(8)))
    assert len(derived) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_purposes_do_not_meet() -> None:
    key = RootKey(b"k" * 32)
    purposes = ["", "a", "b", "ab", "a b", "scope names", "ticket signing 1"]
    derived = {key.derive(purpose) for purpose in purposes}
    assert len(derived) == len(purposes)
    assert {len(one) for one in derived} == {32}
    assert RootKey(b"l" * 32).derive("a") not in derived


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "root.key"
    load_or_create(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_or_create(path)


@pytest.mark.parametrize("text", ["", "zz", "00" * 31, "00" * 33, "\udcff"])
def test_what_is_no_key_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    """Never replaced: a new key would void every name and block of the deployment."""
    path = tmp_path / "root.key"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        load_or_create(path)
    assert path.read_bytes() == text.encode("utf-8", "surrogateescape")


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="root key"):
        load_or_create(tmp_path / "file" / "root.key")


def test_nothing_of_the_key_shows(tmp_path: Path) -> None:
    path = tmp_path / "root.key"
    key = load_or_create(path)
    assert path.read_text().strip() not in f"{key!r} {key!s}"
    path.write_text(path.read_text()[:-3])
    with pytest.raises(ConfigError) as refusal:
        load_or_create(path)
    assert path.read_text() not in str(refusal.value)


def test_a_root_key_file_with_two_keys_is_refused(tmp_path: Path) -> None:
    """Names and signatures come from the one key: which would it be?"""
    path = tmp_path / "root.key"
    load_or_create(path)
    path.write_text(path.read_text() * 2)
    with pytest.raises(ConfigError, match="2 keys; it takes one"):
        load_or_create(path)


def test_rotation_puts_the_new_key_first_and_keeps_the_file_private(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "wrap.key"
    wrapper = FileKeyWrapper(path)
    first = path.read_text().split()
    wrapper.rotate()
    lines = path.read_text().split()
    assert lines[1:] == first
    assert lines[0] != first[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert wrapper.retire() == 1
    assert path.read_text().split() == lines[:1]


def test_rotations_at_once_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "wrap.key"
    FileKeyWrapper(path)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: FileKeyWrapper(path).rotate(), range(6)))
    assert len(set(path.read_text().split())) == 7
    assert list(tmp_path.iterdir()) == [path]


def test_a_wrapping_key_that_others_may_read_serves_no_more(tmp_path: Path) -> None:
    path = tmp_path / "wrap.key"
    wrapper = FileKeyWrapper(path)
    wrapped = wrapper.wrap(b"k" * 32, b"c")
    path.write_text(path.read_text())  # another time, so that it is looked at again
    path.chmod(0o644)
    os.utime(path, ns=(1, 1))
    with pytest.raises(Unavailable, match="chmod 600"):
        wrapper.unwrap(wrapped, b"c")
    path.chmod(0o600)
    os.utime(path, ns=(2, 2))
    assert wrapper.unwrap(wrapped, b"c") == b"k" * 32


def test_a_lost_key_is_named_by_its_version_alone(tmp_path: Path) -> None:
    wrapper, other = FileKeyWrapper(tmp_path / "a.key"), FileKeyWrapper(tmp_path / "b.key")
    with pytest.raises(Corrupt, match=r"not in b\.key") as refusal:
        other.unwrap(wrapper.wrap(b"k" * 32, b"c"), b"c")
    assert wrapper.version.removeprefix("file:") in str(refusal.value)
    assert (tmp_path / "a.key").read_text().strip() not in str(refusal.value)


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "instance.key"
    with pytest.raises(ConfigError):
        read_secret(path)
    secret = make_secret(path)
    assert make_secret(path) == read_secret(path) == secret
    assert len(bytes.fromhex(secret)) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
