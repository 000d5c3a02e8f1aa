"""Laws of sealing (L5, T9, T10): only the same identity under the same leases opens an object."""

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Chain, folder, retention_of, tag, tags_of
from scopekv.errors import Corrupt
from scopekv.simulate.sealed_tier import SimulatedBroker, link
from scopekv.store.keyring import Keyring
from scopekv.store.sealed_objects import Address, SealedObjects

SIZES = (64, 65)
LINKS = st.builds(link, st.sampled_from("abc"), st.integers(1, 3))
CHAINS = st.lists(LINKS, min_size=1, max_size=3, unique=True).map(tuple)
NAMESPACES = st.sampled_from([Fingerprint(b"m" * 32), Fingerprint(b"n" * 32)])
HASHES = st.sampled_from([b"g" * 32, b"h" * 32])
PLACES = st.tuples(NAMESPACES, st.sampled_from(SIZES), CHAINS, HASHES, st.integers(0, 1))
Place = tuple[Fingerprint, int, Chain, bytes, int]


def address(place: Place) -> tuple[SealedObjects, Address]:
    """The place as a worker sees it that holds just the leases of its chain."""
    namespace, size, chain, block_hash, group = place
    broker = SimulatedBroker()
    newest = {one.scope: one for one in sorted(chain, key=lambda one: one.epoch)}
    chain = tuple(dict.fromkeys(newest[one.scope] for one in chain))
    keyring = Keyring(broker)
    keyring.accept(broker.lease_of(one) for one in chain)
    objects = SealedObjects(keyring, namespace, size)
    found = objects.address(chain, block_hash, group)
    assert found is not None
    return objects, found


def seal(objects: SealedObjects, at: Address) -> memoryview:
    plaintext = memoryview(b"p" * objects.block_bytes)
    return objects.seal(at, plaintext, memoryview(bytearray(objects.object_bytes)))


@given(PLACES, PLACES)
def test_an_object_opens_in_its_own_place_only(one: Place, other: Place) -> None:
    objects, at = address(one)
    others, elsewhere = address(other)
    same = at.identity == elsewhere.identity
    assert (at.key == elsewhere.key) is same
    try:
        opened = others.open(elsewhere, seal(objects, at))
    except Corrupt:
        assert not same
    else:
        assert same
        assert opened == b"p" * objects.block_bytes


@given(PLACES, st.data())
def test_no_changed_object_opens(place: Place, data: st.DataObject) -> None:
    objects, at = address(place)
    sealed = seal(objects, at)
    position = data.draw(st.integers(0, sealed.nbytes - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    try:
        objects.open(at, sealed)
    except Corrupt:
        return
    raise AssertionError(f"byte {position} was changed and nobody saw it")


@given(CHAINS, CHAINS)
def test_what_a_keyring_holds_opens_only_the_scopes_leased_to_it(
    leased: Chain, wanted: Chain
) -> None:
    broker = SimulatedBroker()
    keyring = Keyring(broker)
    keyring.accept(broker.lease_of(one) for one in leased)
    newest: dict[bytes, int] = {}
    for one in leased:
        newest[one.scope] = max(one.epoch, newest.get(one.scope, 0))
    allowed = all(newest.get(one.scope) == one.epoch for one in wanted)
    assert (keyring.chain(wanted) is not None) is allowed
    objects = SealedObjects(keyring, Fingerprint(b"m" * 32), 64)
    assert (objects.address(wanted, b"h" * 32, 0) is not None) is allowed


@given(CHAINS, st.integers(1, 9_999_999_999))
def test_a_folder_gives_back_its_tags_and_retention(chain: Chain, seconds: int) -> None:
    name = folder(chain, seconds)
    assert name is not None
    assert tags_of(name) == {tag(one) for one in chain}
    assert retention_of(name) == seconds


@given(CHAINS, CHAINS)
def test_distinct_chains_never_share_a_folder(one: Chain, other: Chain) -> None:
    assert (folder(one, 60) == folder(other, 60)) is (one == other)
