"""The request log after a crash, on a full disk, and when it is full itself."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scopekv.errors import ConfigError
from scopekv.gateway.request_log import LogFile
from scopekv.gateway.settings import RequestLogSettings

HEAD = b'{"format":"scopekv/requests/1"'
LINE = HEAD.ljust(99, b"x") + b"\n"


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """A write beyond it is cut short, then fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_torn_last_line_is_cut_off_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(LINE * 2 + b"torn" * 50_000)
    path.chmod(0o600)
    file = LogFile(path, RequestLogSettings(path))
    file.append(LINE)
    file.close()
    assert path.read_bytes() == LINE * 3


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    file = LogFile(path, RequestLogSettings(path))
    file.append(LINE)
    with files_of_at_most(250), pytest.raises(OSError):  # noqa: PT011 - of any kind
        file.append(LINE * 3)
    assert path.read_bytes() == LINE
    file.append(LINE)
    file.close()
    assert path.read_bytes() == LINE * 2


def test_no_more_than_its_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    file = LogFile(path, RequestLogSettings(path, bytes_max=1 << 16, files_max=3))
    for number in range(40):
        file.append(HEAD + (b"%d" % number) * 5_000 + b"\n")
    file.close()
    assert {one.name for one in tmp_path.iterdir()} == {
        *("requests.jsonl", "requests.jsonl.1", "requests.jsonl.2")
    }
    assert all(one.stat().st_size <= 1 << 16 for one in tmp_path.iterdir())
    assert path.read_bytes().splitlines()[-1].startswith(HEAD + b"39")


def test_a_file_that_cannot_be_opened_is_said_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "requests.jsonl"
    with pytest.raises(ConfigError, match="request_log"):
        LogFile(path, RequestLogSettings(path))


def test_a_file_of_another_kind_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    for content in (b"SQLite format 3\0" * 99, b"torn"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="something else"):
            LogFile(path, RequestLogSettings(path))
        assert path.read_bytes() == content


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_log_that_others_may_read_or_write_is_refused_untouched(
    tmp_path: Path, mode: int
) -> None:
    """It tells who sent alike prompts when; a mode given to an earlier file must not stay."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(LINE + b"torn")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
        LogFile(path, RequestLogSettings(path))
    assert path.read_bytes() == LINE + b"torn"
    path.chmod(0o600)
    LogFile(path, RequestLogSettings(path)).close()


@pytest.mark.parametrize("files_max", [1, 3])
def test_a_full_log_that_cannot_begin_anew_never_writes_into_another_file(
    tmp_path: Path, files_max: int
) -> None:
    """Out of descriptors at that moment, as a client with many connections can make it."""
    path, other = tmp_path / "requests.jsonl", tmp_path / "other"
    settings = RequestLogSettings(path, bytes_max=1 << 16, files_max=files_max)
    file = LogFile(path, settings)
    filler = LINE * ((1 << 16) // len(LINE))
    file.append(filler)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for _ in range(3):
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(OSError):  # noqa: PT011 - of any kind
                file.append(LINE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with other.open("wb") as theirs:  # takes the lowest free descriptor
        file.append(LINE)
        theirs.write(b"theirs")
    file.close()
    assert other.read_bytes() == b"theirs"
    assert path.read_bytes() == LINE
    kept = [Path(f"{path}.{n}") for n in (1, 2)]
    assert [one.exists() for one in kept] == [files_max > 1, False]
    assert files_max == 1 or kept[0].read_bytes() == filler
