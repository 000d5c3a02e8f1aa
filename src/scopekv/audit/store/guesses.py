"""Names that somebody can make who knows a prompt and no key: none of them may be in a store.

Every engine's hash of the prompt's blocks, with any salt that can be guessed; digests of the
tokens themselves; and, for whoever took over an engine and read its tickets, our own names with
everything in them but the key.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from scopekv.audit.store.tickets import ReadTicket, read_ticket
from scopekv.core.block_hashes import DEFAULT_SEED, ChainHasher, EngineHash, root_of
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.chains import Chain, Link, chain_at, tag
from scopekv.core.encoding import encode_tokens
from scopekv.core.scopes import Scope
from scopekv.core.sealing import ChainKeys, Identity, SealKey, object_name

BLOCK_SIZES = (16, 32, 64, 128, 256)
SEEDS = (DEFAULT_SEED, "0", "42")
SECRET_BYTES, EPOCHS = 32, 4
PREFIX_HEX = 16  # of a hash, at either end, that confirms it
_UNKEYED = ChainKeys(SealKey(b""), b"")


@dataclass(slots=True)
class Guesses:
    """Hashes by what they were made of. A name that holds the start or end of one confirms it."""

    made: dict[str, str] = field(default_factory=dict)  # 16 hex digits -> how it was made

    def add(self, how: str, digests: Iterable[bytes]) -> None:
        for digest in digests:
            text = digest.hex()
            self.made.setdefault(text[:PREFIX_HEX], how)
            self.made.setdefault(text[-PREFIX_HEX:], how)

    def confirmed_by(self, name: str) -> str | None:
        """How the guess was made that this name confirms; None for a name that says nothing.

        Cost: a look-up for each place in the name.
        """
        lower = name.lower()
        for start in range(len(lower) - PREFIX_HEX + 1):
            how = self.made.get(lower[start : start + PREFIX_HEX])
            if how is not None:
                return how
        return None


def public_guesses(prompts: Sequence[Sequence[int]], salts: Iterable[str]) -> Guesses:
    """What an outsider computes who knows the exact tokens and guesses the salt.

    Cost: about 10 ms for a prompt of 200 tokens and ten salts.
    """
    guesses = Guesses()
    known = ["", *dict.fromkeys(salt for salt in salts if salt)]
    for token_ids in prompts:
        for size in BLOCK_SIZES:
            guesses.add("a digest of the tokens", _plain_digests(token_ids, size))
            for salt in known:
                how = "the engine's hash with a guessed salt" if salt else "the engine's hash"
                for seed in SEEDS:
                    guesses.add(how, _cbor(token_ids, size, salt, seed))
                for extra in ((("cache_salt", salt),), (salt,)) if salt else (None,):
                    guesses.add(how, _pickled(token_ids, size, extra))
    return guesses


def scope_guesses(guesses: Guesses, scopes: Iterable[Scope]) -> None:
    """Add the public names of scopes whose members are known, as made without a secret."""
    for scope in scopes:
        for secret in (b"", bytes(SECRET_BYTES)):
            opaque = scope.id(secret)
            guesses.add("a scope's name without the secret", [bytes(opaque)])
            for epoch in range(EPOCHS):
                digest = bytes.fromhex(tag(Link(opaque, epoch)))
                guesses.add("a scope's tag without the secret", [digest])


def insider_guesses(
    guesses: Guesses,
    prompts: Sequence[Sequence[int]],
    tickets: Iterable[str],
    sizes_bytes: Iterable[int],
) -> int:
    """Add what is made of a ticket's scopes without their keys; return how many tickets served.

    `sizes_bytes`: of blocks as they may be, which names are bound to.
    """
    served = 0
    lengths = sorted(set(sizes_bytes))
    for text in dict.fromkeys(tickets):
        ticket = read_ticket(text)
        if ticket is None:
            continue
        served += 1
        for token_ids in prompts:
            for size in BLOCK_SIZES:
                _of_ticket(guesses, ticket, token_ids, size, lengths)
    return served


def _of_ticket(
    guesses: Guesses,
    ticket: ReadTicket,
    token_ids: Sequence[int],
    size: int,
    lengths: Sequence[int],
) -> None:
    ends = [grant.end for grant in ticket.grants if grant.end is not None]
    scopes = [(grant.scope, grant.epoch) for grant in ticket.grants]
    tags = BlockTagger(ticket.namespace, ends, scopes)
    hashes = ChainHasher().chain(token_ids, tags, block_size=size, root=root_of())
    guesses.add("the engine's hash, seen in an engine", hashes)
    guesses.add("a digest of the engine's hash", (hashlib.sha256(one).digest() for one in hashes))
    for at, block_hash in enumerate(hashes):
        chain = chain_at(ticket.grants, (at + 1) * size)
        guesses.add(
            "our name without its key",
            _unkeyed(ticket.namespace, chain, block_hash, lengths),
        )


def _unkeyed(
    namespace: Fingerprint, chain: Chain, block_hash: bytes, lengths: Sequence[int]
) -> Iterator[bytes]:
    for length in lengths:
        identity = Identity(namespace, chain, block_hash, 0, length)
        yield bytes.fromhex(object_name(_UNKEYED, identity))
        for hashed in (hashlib.sha256, hashlib.sha1, hashlib.blake2b):
            yield hashed(identity.encoded()).digest()[:20]
        for link in chain:  # an id that is told to engines is no key
            yield hmac.digest(link.scope, identity.encoded(), "sha256")[:20]


def _cbor(token_ids: Sequence[int], size: int, salt: str, seed: str) -> Iterator[bytes]:
    """As vLLM 0.31 to 0.33 with `sha256_cbor`: the salt is an extra key of the first block."""
    hasher, parent = ChainHasher(), root_of(seed)
    for start in range(0, len(token_ids) - size + 1, size):
        extra = (("cache_salt", salt),) if salt and not start else None
        parent = EngineHash(hasher.block(parent, token_ids[start : start + size], extra))
        yield parent


def _pickled(
    token_ids: Sequence[int], size: int, extra: tuple[object, ...] | None
) -> Iterator[bytes]:
    """As vLLM's `sha256`, over Python's own serialisation; earlier ones had the bare salt."""
    parent = _digest_of(DEFAULT_SEED)
    for start in range(0, len(token_ids) - size + 1, size):
        keys = None if start else extra
        parent = _digest_of((parent, tuple(token_ids[start : start + size]), keys))
        yield parent


def _digest_of(value: object) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def _plain_digests(token_ids: Sequence[int], size: int) -> Iterator[bytes]:
    """Of each prefix and of each block alone, by the hashes that caches use for names."""
    for end in range(size, len(token_ids) + 1, size):
        for ids in (token_ids[:end], token_ids[end - size : end]):
            raw = encode_tokens(ids)
            for hashed in (hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.blake2b):
                yield hashed(raw).digest()
            yield hashlib.sha256(",".join(map(str, ids)).encode()).digest()
