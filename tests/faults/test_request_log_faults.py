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

LINE = b"x" * 99 + b"\n"


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
        file.append((b"%d" % number) * 5_000 + b"\n")
    file.close()
    assert {one.name for one in tmp_path.iterdir()} == {
        *("requests.jsonl", "requests.jsonl.1", "requests.jsonl.2")
    }
    assert all(one.stat().st_size <= 1 << 16 for one in tmp_path.iterdir())
    assert path.read_bytes().splitlines()[-1].startswith(b"39")


def test_a_file_that_cannot_be_opened_is_said_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "requests.jsonl"
    with pytest.raises(ConfigError, match="request_log"):
        LogFile(path, RequestLogSettings(path))
