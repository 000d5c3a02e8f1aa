"""Sealed objects: addresses by lease, one buffer in and out."""

import pytest

from scopekv.adapters.aes_gcm import AesGcm
from scopekv.core.chains import Chain, tag
from scopekv.core.sealing import NAME_HEX, OVERHEAD_BYTES, SealKey
from scopekv.errors import Corrupt, Misuse
from scopekv.simulate.sealed_tier import NAMESPACE, SimulatedBroker, link
from scopekv.store.keyring import Keyring
from scopekv.store.sealed_objects import Address, SealedObjects

SIZE = 1024
A, B = link("a"), link("b")
HASH = b"h" * 32


@pytest.fixture
def keyring() -> Keyring:
    broker = SimulatedBroker()
    ring = Keyring(broker)
    ring.accept([broker.lease_of(A), broker.lease_of(B)])
    return ring


@pytest.fixture
def objects(keyring: Keyring) -> SealedObjects:
    return SealedObjects(keyring, NAMESPACE, SIZE)


def address_of(objects: SealedObjects, *names: str) -> Address:
    found = objects.address(tuple(link(name) for name in names), HASH, 0)
    assert found is not None
    return found


def test_what_was_sealed_opens_to_itself(objects: SealedObjects) -> None:
    address = address_of(objects, "a", "b")
    plaintext = memoryview(bytes(range(256)) * 4)
    buffer = memoryview(bytearray(objects.object_bytes + 100))
    sealed = objects.seal(address, plaintext, buffer)
    assert sealed.nbytes == SIZE + OVERHEAD_BYTES
    assert plaintext[:64].tobytes() not in sealed.tobytes()
    assert objects.open(address, sealed) == plaintext


def test_sealing_twice_gives_different_bytes(objects: SealedObjects) -> None:
    address, plaintext = address_of(objects, "a"), memoryview(bytes(SIZE))
    sealed = [
        objects.seal(address, plaintext, memoryview(bytearray(objects.object_bytes))).tobytes()
        for _ in range(2)
    ]
    assert sealed[0] != sealed[1]


def test_only_leased_chains_have_an_address(objects: SealedObjects) -> None:
    assert objects.address((A, link("c")), HASH, 0) is None
    assert objects.address((link("a", 2),), HASH, 0) is None
    assert objects.address((), HASH, 0) is None
    assert objects.address(tuple([A] * 9), HASH, 0) is None, "too long a chain has no folder"


def test_addresses_tell_chain_hash_and_group_apart(objects: SealedObjects) -> None:
    asked = [((A,), HASH, 0), ((A,), HASH, 1), ((A,), b"i" * 32, 0), ((A, B), HASH, 0)]
    found = [objects.address(*one) for one in asked]
    assert len({one.key for one in found if one is not None}) == 4
    assert all(len(one.key.name) == NAME_HEX for one in found if one is not None)
    assert objects.address(*asked[0]) is found[0], "and are remembered"


def test_after_a_fence_nothing_is_named_or_current(
    objects: SealedObjects, keyring: Keyring
) -> None:
    address = address_of(objects, "a", "b")
    assert objects.current(address)
    keyring.fence([tag(B)])
    assert not objects.current(address)
    assert objects.address((A, B), HASH, 0) is None
    assert objects.address((A,), HASH, 0) is not None
    assert len(objects._cipher) == 0, "no cipher outlives its lease"


def test_ciphers_and_names_go_with_the_leases(objects: SealedObjects, keyring: Keyring) -> None:
    address = address_of(objects, "a")
    objects.seal(address, memoryview(bytes(SIZE)), memoryview(bytearray(objects.object_bytes)))
    assert len(objects._cipher) == 1
    keyring.fence([tag(A)])
    objects.address((A,), HASH, 0)
    assert len(objects._cipher) == 0
    assert not objects._addresses


def test_a_block_that_was_under_way_at_a_fence_leaves_no_cipher(
    objects: SealedObjects, keyring: Keyring
) -> None:
    address = address_of(objects, "a")
    buffer = memoryview(bytearray(objects.object_bytes))
    keyring.fence([tag(A)])
    address_of(objects, "b")  # another thread, by which the dropped keys are forgotten
    sealed = objects.seal(address, memoryview(bytes(SIZE)), buffer)
    assert len(objects._cipher) == 0
    objects.open(address, sealed)
    assert len(objects._cipher) == 0
    with pytest.raises(Corrupt):
        objects.open(address, buffer)
    assert len(objects._cipher) == 0


def test_an_address_that_was_made_during_a_fence_is_not_kept(
    objects: SealedObjects, keyring: Keyring
) -> None:
    account = keyring.account

    def overtaken(chain: Chain) -> bytes | None:
        found = account(chain)
        if chain == (A,):
            keyring.fence([tag(A)])
            objects.address((B,), HASH, 0)  # another thread, which sees the fence
        return found

    keyring.account = overtaken  # type: ignore[method-assign]
    objects.address((A,), HASH, 0)
    assert [one[0] for one in objects._addresses] == [(B,)]


def test_nothing_secret_shows(objects: SealedObjects) -> None:
    address = address_of(objects, "a")
    assert address.keys.seal.hex() not in repr(address)
    assert repr(address.keys.seal) not in repr(address)


def test_ciphers_are_bounded() -> None:
    cipher = AesGcm(ciphers_max=2)
    out = memoryview(bytearray(16 + 16))
    keys = [SealKey(bytes([number]) * 32) for number in range(5)]
    for key in keys:
        cipher.seal_into(key, b"n" * 12, memoryview(bytes(16)), b"", out)
    assert len(cipher) == 2
    assert cipher.open_in_place(keys[-1], b"n" * 12, out, b"") == bytes(16)


def test_buffers_and_nonces_of_a_wrong_size_are_misuse_or_corrupt() -> None:
    cipher, key = AesGcm(), SealKey(bytes(32))
    view = memoryview(bytearray(32))
    with pytest.raises(Misuse):
        cipher.seal_into(key, b"n" * 12, view[:17], b"", view)
    with pytest.raises(Misuse):
        cipher.seal_into(key, b"n" * 11, view[:16], b"", view)
    with pytest.raises(Corrupt):
        cipher.open_in_place(key, b"n" * 12, view[:15], b"")
    with pytest.raises(Corrupt):
        cipher.open_in_place(key, b"n" * 12, view, b"")
