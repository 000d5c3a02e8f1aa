"""Names that can be computed are confirmed; keyed ones are not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scopekv.audit.store.guesses import Guesses, insider_guesses, public_guesses
from scopekv.audit.store.tickets import read_ticket
from scopekv.core.block_hashes import ChainHasher, root_of
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.chains import Link, chain_at
from scopekv.core.encoding import encode_tokens
from scopekv.core.sealing import Identity, chain_keys, object_name
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.sealed_tier import SimulatedBroker
from scopekv.simulate.tickets import TicketMaker

IDS = [300 + 7 * at for at in range(100)]
NAMESPACE = Fingerprint(hashlib.sha256(b"namespace").digest())


@pytest.fixture(scope="module")
def public() -> Guesses:
    return public_guesses([IDS], ["acme", ""])


@pytest.mark.parametrize("salt", ["", "acme"])
def test_the_engines_own_hash_is_guessed_with_and_without_a_salt(
    public: Guesses, salt: str
) -> None:
    extra = (("cache_salt", salt),) if salt else None
    first = ChainHasher().block(root_of(), IDS[:32], extra)
    name = ChainHasher().block(first, IDS[32:64], None).hex()
    assert public.confirmed_by(f"{name[:40]}")
    assert public.confirmed_by(f"prefix-{name.upper()}.bin")
    assert public.confirmed_by(f"x{name[-16:]}")
    assert not public.confirmed_by(ChainHasher().block(first, IDS[33:65], None).hex())


def test_a_digest_of_the_tokens_is_guessed(public: Guesses) -> None:
    assert public.confirmed_by(hashlib.sha1(encode_tokens(IDS[:64])).hexdigest())  # noqa: S324
    assert public.confirmed_by(hashlib.sha256(encode_tokens(IDS[:16])).hexdigest()[:20])


def test_who_read_a_ticket_guesses_unkeyed_names_and_no_keyed_one(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    maker = TicketMaker(deployment.world, NAMESPACE)
    text = maker.text(IDS, [64], ["document", "user"])
    deployment.world.registry.close()
    ticket = read_ticket(text)
    assert ticket is not None
    guesses = Guesses()
    assert insider_guesses(guesses, [IDS], [text, "no ticket", text], [4096]) == 1
    scopes = [(grant.scope, grant.epoch) for grant in ticket.grants]
    tags = BlockTagger(NAMESPACE, [64], scopes)
    hashes = ChainHasher().chain(IDS, tags, block_size=32, root=root_of())
    broker = SimulatedBroker()
    for at, block_hash in enumerate(hashes):
        chain = chain_at(ticket.grants, (at + 1) * 32)
        identity = Identity(NAMESPACE, chain, block_hash, 0, 4096)
        unkeyed = hashlib.sha256(identity.encoded()).hexdigest()[:40]
        assert guesses.confirmed_by(unkeyed) == "our name without its key"
        assert guesses.confirmed_by(block_hash.hex()[:40])
        leases = [broker.lease_of(Link(link.scope, link.epoch)) for link in chain]
        assert guesses.confirmed_by(object_name(chain_keys(leases), identity)) is None


@pytest.mark.parametrize("text", ["", "AWwA", "é", "sk-scopekv-1", "A" * 400])
def test_what_is_no_ticket_is_none(text: str) -> None:
    assert read_ticket(text) is None
