"""Vectors of sealed objects: chains, folders, keys, and what is bound to each object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.core.chains import Link, chain_at, folder, tag
from scopekv.core.leases import Lease
from scopekv.core.sealing import (
    Identity,
    associated_data,
    chain_keys,
    make_header,
    object_name,
)
from tests.vectors.fixed import BLOCK_HASH, DOCUMENT, NAMESPACE, ORG, SECRET, SEED, USER
from tests.vectors.tickets import good_ticket


def sealing() -> dict[str, Any]:
    """Chains, their folders and keys, and what a sealed object is bound to."""
    links = [
        Link(DOCUMENT.id(SECRET), 0),
        Link(ORG.id(SECRET), 2),
        Link(USER.id(SECRET), 3),
    ]
    leases = [
        Lease(link.scope, link.epoch, bytes([n + 1]) * 32, 300, 86_400, bytes(16))
        for n, link in enumerate(links)
    ]
    runs = [
        ("one scope", links[:1]),
        ("the whole chain", links),
        ("the same scopes the other way round", links[::-1]),
        ("the next epoch of the first", [links[0]._replace(epoch=1), *links[1:]]),
    ]
    grants = good_ticket(TicketSigner(SEED)).grants
    valid = [_sealed(name, run, leases) for name, run in runs]
    header = make_header(bytes(range(12)), 4)
    invalid = [
        ("cut short", header[:-1]),
        ("another magic", b"X" + header[1:]),
        ("another version", header[:4] + b"\x02" + header[5:]),
        ("padding in use", header[:5] + b"\x01" + header[6:]),
        ("another length", make_header(bytes(range(12)), 5)),
        ("a tail in use", header[:-1] + b"\x01"),
    ]
    folders = [
        ("no retention", "-" + tag(links[0])),
        ("retention zero", "r0-" + tag(links[0])),
        ("no tag", "r60"),
        ("a tag cut short", "r60-" + tag(links[0])[:-1]),
        ("upper case", "r60-" + tag(links[0]).upper()),
        ("nine tags", "r60" + ("-" + tag(links[0])) * 9),
        ("a path", "r60-" + tag(links[0]) + "/.."),
    ]
    return {
        "leases": [[one.scope.hex(), one.epoch, one.key.hex()] for one in leases],
        "block_hash": BLOCK_HASH.hex(),
        "namespace": NAMESPACE.fingerprint().hex(),
        "chain_at": [
            {"end": end, "links": len(chain_at(grants, end))} for end in (1, 32, 33, 40, 41, 64)
        ],
        "valid": valid,
        "invalid_headers": [
            {"name": name, "hex": data.hex(), "size_bytes": 4, "reason": "corrupt"}
            for name, data in invalid
        ],
        "invalid_folders": [{"name": name, "folder": text} for name, text in folders],
        "invalid_objects": _broken(valid[1]),
    }


def _sealed(name: str, run: list[Link], leases: list[Lease]) -> dict[str, Any]:
    by_scope = {one.scope: one for one in leases}
    keys = chain_keys([replace(by_scope[scope], epoch=epoch) for scope, epoch in run])
    plaintext = bytes(range(4))
    identity = Identity(
        NAMESPACE.fingerprint(), tuple(run), BLOCK_HASH, 0, size_bytes=len(plaintext)
    )
    header, title = make_header(bytes(range(12)), len(plaintext)), object_name(keys, identity)
    bound = associated_data(header, identity, title)
    sealed = AESGCM(keys.seal).encrypt(bytes(range(12)), plaintext, bound)
    return {
        "name": name,
        "chain": [[scope.hex(), epoch] for scope, epoch in run],
        "tags": [tag(link) for link in run],
        "folder": folder(tuple(run), 86_400),
        "seal_key": keys.seal.hex(),
        "name_key": keys.name.hex(),
        "object_name": title,
        "header": header.hex(),
        "associated_data": bound.hex(),
        "plaintext": plaintext.hex(),
        "object": (header + sealed).hex(),
    }


def _broken(good: dict[str, Any]) -> list[dict[str, Any]]:
    """What a thief or a faulty disk may make of an object: none of it opens (T1, T9)."""
    data = bytes.fromhex(good["object"])
    flipped = bytearray(data)
    flipped[33] ^= 1
    renonced = bytearray(data)
    renonced[8] ^= 1
    edits: list[tuple[str, bytes, dict[str, Any]]] = [
        ("one bit", bytes(flipped), {}),
        ("cut short", data[:-1], {}),
        ("a byte more", data + b"\0", {}),
        ("another nonce", bytes(renonced), {}),
        ("another block's", data, {"block_hash": "00" * 32}),
        ("another group's", data, {"group_idx": 1}),
        ("another namespace's", data, {"namespace": "00" * 32}),
        ("another epoch's", data, {"epoch": 9}),
        ("under another name", data, {"object_name": "0" * 40}),
    ]
    return [
        {"name": name, "of": good["name"], "object": content.hex(), "identity": change}
        for name, content, change in edits
    ]
