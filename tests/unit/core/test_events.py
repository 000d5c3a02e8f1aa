"""Snapshots on the wire: what is written is read, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scopekv.core.block_hashes import pack
from scopekv.core.encoding import Value, encode
from scopekv.core.events import (
    SNAPSHOT_DOMAIN,
    Medium,
    OuterTier,
    OuterTiers,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    medium_of,
)
from scopekv.core.speeds import TierSpeed
from scopekv.errors import Misuse

DISK = OuterTier(Medium.DIRECTORY, b"", TierSpeed(0.001, 2e9, samples=7, spread=1.25))
S3 = OuterTier(Medium.S3, b"shared", TierSpeed(0.03, 1e8, suspended=True))
TIER = ("s3", b"", 1, 1, 0, 1, 1000)


def test_a_snapshot_is_read_as_written() -> None:
    blocks = {Medium.ENGINE: [1, 1, 2], Medium.HOST: [], Medium.S3: [3]}
    made = Snapshot("life", 7, 12.5, blocks, OuterTiers(64, 1 << 20, (DISK, S3)))
    found = decode_snapshot(encode_snapshot(made))
    assert found.blocks is not None
    assert {medium: list(hashes) for medium, hashes in found.blocks.items()} == blocks
    assert replace(found, blocks=blocks) == made


def test_media_that_are_no_places_of_ours_are_left_out() -> None:
    other = ("tape", *TIER[1:])
    listed = [("STORAGE", pack([1])), ("directory", pack([2]))]
    data = encode(SNAPSHOT_DOMAIN, "life", 0, 0, listed, (32, 1, [other, TIER]))
    found = decode_snapshot(data)
    assert found.blocks is not None
    assert found.tiers is not None
    assert list(found.blocks) == [Medium.DIRECTORY]
    assert [tier.medium for tier in found.tiers.nearest] == [Medium.S3]
    assert medium_of(None) is Medium.ENGINE
    assert [medium_of(medium.wire) for medium in Medium] == list(Medium)


def test_a_heartbeat_is_a_snapshot_without_blocks() -> None:
    made = Snapshot("l", None, 1.0, None)
    assert decode_snapshot(encode_snapshot(made)) == made


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("life", 1, 2, None),
        (b"life", 1, 2, None, None),
        ("life", -1, 2, None, None),
        ("life", "1", 2, None, None),
        ("life", 1, None, None, None),
        ("life", 1, 2, [("GPU", b"123")], None),
        ("life", 1, 2, [("GPU",)], None),
        ("life", 1, 2, [("GPU", b""), ("GPU", b"")], None),
        ("life", 1, 2, [(1, b"")], None),
        ("life", 1, 2, ["GPU"], None),
        ("life", 1, 2, b"", None),
        ("life", 1, 2, None, ()),
        ("life", 1, 2, None, (0, 1, [])),
        ("life", 1, 2, None, (1, 1, ["s3"])),
        ("life", 1, 2, None, (1, 1, [TIER[:-1]])),
        ("life", 1, 2, None, (1, 1, [(*TIER[:3], 0, *TIER[4:])])),
        ("life", 1, 2, None, (1, 1, [(*TIER[:6], 999)])),
    ],
)
def test_another_form_is_refused(fields: tuple[Value, ...]) -> None:
    with pytest.raises(Misuse):
        decode_snapshot(encode(SNAPSHOT_DOMAIN, *fields))
