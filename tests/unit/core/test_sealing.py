"""What a sealed object is bound to."""

from dataclasses import replace

import pytest

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Link
from scopekv.core.leases import Lease
from scopekv.core.scopes import ScopeId
from scopekv.core.sealing import (
    HEADER_BYTES,
    NAME_HEX,
    Identity,
    associated_data,
    chain_keys,
    make_header,
    object_name,
    read_header,
)
from scopekv.errors import Corrupt, Misuse

SCOPE = ScopeId(b"s" * 16)
OTHER = ScopeId(b"t" * 16)
IDENTITY = Identity(Fingerprint(b"n" * 32), (Link(SCOPE, 1),), b"h" * 32, 0, 4096)


def lease(scope: ScopeId = SCOPE, epoch: int = 1, key: bytes = b"k" * 32) -> Lease:
    return Lease(scope, epoch, key, 60, 3600, b"a" * 16)


def test_keys_differ_by_scope_epoch_key_order_and_length_of_the_chain() -> None:
    chains = [
        [lease()],
        [lease(OTHER)],
        [lease(epoch=2)],
        [lease(key=b"l" * 32)],
        [lease(), lease(OTHER)],
        [lease(OTHER), lease()],
        [lease(), lease(OTHER), lease()],
    ]
    keys = [chain_keys(chain) for chain in chains]
    assert len({one.seal for one in keys} | {one.name for one in keys}) == 2 * len(chains)


def test_a_chain_has_a_scope() -> None:
    with pytest.raises(Misuse):
        chain_keys([])


def test_keys_do_not_show() -> None:
    keys = chain_keys([lease()])
    assert repr(keys) == "ChainKeys()"
    assert "6b6b" not in repr(lease())
    assert "kkk" not in repr(lease())


@pytest.mark.parametrize(
    "change",
    [
        {"namespace": Fingerprint(b"m" * 32)},
        {"chain": (Link(SCOPE, 2),)},
        {"chain": (Link(SCOPE, 1), Link(OTHER, 1))},
        {"block_hash": b"i" * 32},
        {"group_idx": 1},
        {"size_bytes": 4097},
    ],
)
def test_name_and_bound_data_cover_every_part_of_the_identity(change: dict[str, object]) -> None:
    other = replace(IDENTITY, **change)  # type: ignore[arg-type]
    keys, header = chain_keys([lease()]), make_header(b"1" * 12, 4096)
    assert object_name(keys, other) != object_name(keys, IDENTITY)
    assert associated_data(header, other, "n") != associated_data(header, IDENTITY, "n")


def test_the_bound_data_cover_header_and_name() -> None:
    header, other = make_header(b"1" * 12, 4096), make_header(b"2" * 12, 4096)
    bound = associated_data(header, IDENTITY, "name")
    assert associated_data(other, IDENTITY, "name") != bound
    assert associated_data(header, IDENTITY, "names") != bound


def test_a_name_is_keyed_and_fits_every_store() -> None:
    name = object_name(chain_keys([lease()]), IDENTITY)
    assert len(name) == NAME_HEX
    assert set(name) <= set("0123456789abcdef")
    assert object_name(chain_keys([lease(key=b"l" * 32)]), IDENTITY) != name


def test_a_header_gives_its_nonce_back() -> None:
    header = make_header(b"123456789012", 4096)
    assert len(header) == HEADER_BYTES
    assert read_header(header, 4096) == b"123456789012"
    with pytest.raises(Misuse):
        make_header(b"short", 4096)


@pytest.mark.parametrize("place", [*range(8), *range(20, 32)])
def test_a_changed_header_is_corrupt(place: int) -> None:
    header = bytearray(make_header(b"123456789012", 4096))
    header[place] ^= 0x40
    with pytest.raises(Corrupt):
        read_header(bytes(header), 4096)


@pytest.mark.parametrize("header", [b"", b"SKVO", bytes(32), make_header(b"1" * 12, 4095)])
def test_a_header_of_something_else_is_corrupt(header: bytes) -> None:
    with pytest.raises(Corrupt):
        read_header(header, 4096)
