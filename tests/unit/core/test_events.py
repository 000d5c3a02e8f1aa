"""Snapshots on the wire: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest

from scopekv.core.block_hashes import pack
from scopekv.core.encoding import Value, encode
from scopekv.core.events import (
    SNAPSHOT_DOMAIN,
    Medium,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    medium_of,
)
from scopekv.errors import Misuse


def test_a_snapshot_is_read_as_written() -> None:
    data = encode_snapshot("life", 7, 12.5, [("GPU", pack([1, 1, 2])), ("CPU", b"")])
    found = decode_snapshot(data)
    assert (found.instance, found.sequence, found.sent) == ("life", 7, 12.5)
    assert found.blocks is not None
    assert list(found.blocks[Medium.ENGINE]) == [1, 1, 2]
    assert list(found.blocks[Medium.HOST]) == []


def test_all_outer_media_are_one() -> None:
    data = encode_snapshot("life", 0, 0, [("STORAGE", pack([1])), ("directory", pack([2]))])
    found = decode_snapshot(data)
    assert found.blocks == {Medium.OUTER: [1, 2]}
    assert medium_of(None) is Medium.ENGINE


def test_a_heartbeat_is_a_snapshot_without_blocks() -> None:
    assert decode_snapshot(encode_snapshot("l", None, 1, None)) == Snapshot("l", None, 1.0, None)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("life", 1, 2),
        (b"life", 1, 2, None),
        ("life", -1, 2, None),
        ("life", "1", 2, None),
        ("life", 1, None, None),
        ("life", 1, 2, [("GPU", b"123")]),
        ("life", 1, 2, [("GPU",)]),
        ("life", 1, 2, [(1, b"")]),
        ("life", 1, 2, ["GPU"]),
        ("life", 1, 2, b""),
    ],
)
def test_another_form_is_refused(fields: tuple[Value, ...]) -> None:
    with pytest.raises(Misuse):
        decode_snapshot(encode(SNAPSHOT_DOMAIN, *fields))
