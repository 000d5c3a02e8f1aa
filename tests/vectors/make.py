"""Regenerate the valid vectors: `python tests/vectors/make.py`. A diff is a change of format.

Everything is fixed (keys, nonce, times), so a run changes nothing unless a format changed. The
invalid vectors are made from the valid ones by the edits listed below, each with its reason.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.adapters.root_key import RootKey
from scopekv.core.blocks import Fingerprint, Namespace, block_tag
from scopekv.core.chains import Link, chain_at, folder, tag
from scopekv.core.encoding import Value, encode, encode_tokens
from scopekv.core.leases import Lease
from scopekv.core.reasons import TicketReason
from scopekv.core.request_log import (
    LoggedRequest,
    block_names,
    encode_logged,
    log_key,
    sender_names,
)
from scopekv.core.scopes import Principal, Scope, ScopeId, ScopeKind
from scopekv.core.sealing import (
    Identity,
    associated_data,
    chain_keys,
    make_header,
    object_name,
)
from scopekv.core.segments import Segment
from scopekv.core.tickets import Grant, Ticket, audience_id, mint, prefix_digests

HERE = Path(__file__).parent
SECRET = bytes(range(32))
SEED, OTHER_SEED = b"\x01" * 32, b"\x02" * 32
BLOCK_HASH = bytes(range(32, 64))
NOW_MS, TTL_MS = 1_800_000_000_000, 60_000
NAMESPACE = Namespace(
    model="SmolLM2-135M-Instruct",
    revision="0f" * 32,
    tokenizer="1e" * 32,
    dtype="torch.float32",
    kv_dtype="auto",
    block_size=32,
    layout="2d" * 32,
    hash_algorithm="sha256_cbor",
)
DOCUMENT, ORG, USER = (
    Scope(ScopeKind.DOCUMENT, ("doc_7f",)),
    Scope(ScopeKind.ORG, ("org_1",)),
    Scope(ScopeKind.USER, ("org_1", "usr_2")),
)

# A value is written as [tag, payload]: the types of JSON are not those of the encoding.
ENCODINGS: dict[str, list[Value]] = {
    "no fields": [],
    "bytes and text of the same letters": [b"ab", "ab"],
    "empty bytes, empty text, nothing, empty list": [b"", "", None, ()],
    "joined parts 1": ["org_1", "2345"],
    "joined parts 2": ["org_12345", ""],
    "integers": [0, 1, -1, 127, 128, -128, -129, 2**63],
    "nested lists": [((1, ("a",)), ()), "b"],
    "half a surrogate pair": ["\ud800"],
}


def written(value: Value) -> list[Any]:
    if value is None:
        return ["n", None]
    if isinstance(value, bytes):
        return ["b", value.hex()]
    if isinstance(value, str):
        return ["s", value]
    if isinstance(value, int):
        return ["i", str(value)]
    return ["l", [written(item) for item in value]]


def encodings() -> dict[str, Any]:
    domain = "scopekv/test/1"
    good = encode(domain, "a", 1)
    invalid = [
        ("cut short", good[:-1]),
        ("a byte after its end", good + b"\0"),
        ("empty", b""),
        ("another domain", encode("scopekv/test/2", "a", 1)),
        ("not a list", good[5:]),
        ("unknown tag", good.replace(b"s\0\0\0\x01", b"x\0\0\0\x01")),
        ("nothing with a payload", encode(domain, b"a").replace(b"b\0\0\0\x01", b"n\0\0\0\x01")),
        ("text that is not UTF-8", encode(domain, b"\xff").replace(b"b\0\0\0\x01", b"s\0\0\0\x01")),
        ("long form of 1", encode(domain, b"\0\1").replace(b"b\0\0\0\x02", b"i\0\0\0\x02")),
        ("long form of 0", encode(domain, b"\0").replace(b"b\0\0\0\x01", b"i\0\0\0\x01")),
    ]
    return {
        "valid": [
            {
                "name": name,
                "domain": domain,
                "fields": [written(value) for value in fields],
                "hex": encode(domain, *fields).hex(),
            }
            for name, fields in ENCODINGS.items()
        ],
        "invalid": [
            {"name": name, "domain": domain, "hex": data.hex(), "reason": "misuse"}
            for name, data in invalid
        ],
    }


def scopes() -> dict[str, Any]:
    listed = [
        ("document", DOCUMENT),
        ("organisation", ORG),
        ("user", USER),
        ("end user", Scope(ScopeKind.END_USER, ("org_1", "usr_2", "kim"))),
        ("session", Scope(ScopeKind.SESSION, ("org_1", "usr_2", "kim", "s1"))),
        ("session without end user", Scope(ScopeKind.SESSION, ("org_1", "usr_2", "", "s1"))),
        ("joined parts 1", Scope(ScopeKind.USER, ("org_1", "2345"))),
        ("joined parts 2", Scope(ScopeKind.USER, ("org_12345", ""))),
    ]
    return {
        "secret": SECRET.hex(),
        "valid": [
            {
                "name": name,
                "kind": scope.kind.value,
                "path": list(scope.path),
                "id": scope.id(SECRET).hex(),
                "salt": scope.salt(SECRET, 0),
            }
            for name, scope in listed
        ],
        "invalid": [
            {"name": "user without a name", "kind": "user", "path": ["org_1"], "reason": "misuse"},
            {"name": "document of two", "kind": "document", "path": ["a", "b"], "reason": "misuse"},
        ],
    }


def blocks() -> dict[str, Any]:
    home = NAMESPACE.fingerprint()
    document, user = DOCUMENT.id(SECRET), USER.id(SECRET)
    runs: list[tuple[str, list[tuple[ScopeId, int]], bytes]] = [
        ("one scope", [(document, 0)], b""),
        ("the next epoch", [(document, 1)], b""),
        ("two scopes in one block", [(document, 0), (user, 3)], b""),
        ("the same, the other way round", [(user, 3), (document, 0)], b""),
        ("with an adapter", [(document, 0)], b"a" * 32),
    ]
    fields = {name: getattr(NAMESPACE, name) for name in NAMESPACE.__slots__}
    return {
        "namespace": {"fields": fields, "fingerprint": home.hex()},
        "valid": [
            {
                "name": name,
                "scopes": [[scope.hex(), epoch] for scope, epoch in run],
                "adapter": adapter.hex(),
                "tag": block_tag(home, run, adapter),
            }
            for name, run, adapter in runs
        ],
    }


def good_ticket(signer: TicketSigner) -> Ticket:
    """Tokens 0 to 63: [0, 32) a document, [32, 40) the organisation, the rest the user's."""
    digests = prefix_digests(encode_tokens(range(64)), [32, 40])
    return Ticket(
        key_id=signer.key_id,
        issued_ms=NOW_MS,
        ttl_ms=TTL_MS,
        audience=audience_id("default"),
        namespace=NAMESPACE.fingerprint(),
        principal=Principal("acme", "ann", "org_1", "usr_2").pseudonym(SECRET),
        nonce=bytes(range(16)),
        uses=1,
        grants=(
            Grant(32, DOCUMENT.id(SECRET), 0, digests[0]),
            Grant(40, ORG.id(SECRET), 2, digests[1]),
            Grant(None, USER.id(SECRET), 3, b""),
        ),
    )


def tickets() -> dict[str, Any]:
    signer, stranger = TicketSigner(SEED), TicketSigner(OTHER_SEED)
    good = good_ticket(signer)
    text, plain = mint(good, signer.sign), replace(good, grants=good.grants[-1:])
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    forged = bytearray(raw)
    forged[-1] ^= 1
    unversioned = bytearray(raw)
    unversioned[0] = 2
    away = replace(good, namespace=Fingerprint(bytes(32)))
    reason = TicketReason
    invalid: list[tuple[str, str, int, TicketReason]] = [
        ("empty", "", NOW_MS, reason.MALFORMED),
        ("cut short", text[:-4], NOW_MS, reason.MALFORMED),
        ("padded", text + "=" * (-len(text) % 4 or 4), NOW_MS, reason.MALFORMED),
        ("in standard base64", base64.b64encode(raw).decode(), NOW_MS, reason.MALFORMED),
        ("of another version", _text(unversioned), NOW_MS, reason.MALFORMED),
        ("one bit of the signature", _text(forged), NOW_MS, reason.BAD_SIGNATURE),
        ("another's signature", mint(good, stranger.sign), NOW_MS, reason.BAD_SIGNATURE),
        (
            "another's key",
            mint(replace(good, key_id=stranger.key_id), stranger.sign),
            NOW_MS,
            reason.UNKNOWN_KEY,
        ),
        (
            "altered offset",
            mint(
                replace(good, grants=(replace(good.grants[0], end=33), *good.grants[1:])),
                lambda _: raw[-64:],
            ),
            NOW_MS,
            reason.BAD_SIGNATURE,
        ),
        (
            "for other engines",
            mint(replace(good, audience=audience_id("other")), signer.sign),
            NOW_MS,
            reason.OTHER_AUDIENCE,
        ),
        ("for another namespace", mint(away, signer.sign), NOW_MS, reason.OTHER_NAMESPACE),
        ("expired", text, NOW_MS + TTL_MS + 5_000, reason.EXPIRED),
        ("not yet", text, NOW_MS - 5_001, reason.NOT_YET),
    ]
    return {
        "seed": SEED.hex(),
        "public_key": signer.public_key.hex(),
        "key_id": signer.key_id.hex(),
        "instance_group": "default",
        "audience": audience_id("default").hex(),
        "namespace": good.namespace.hex(),
        "issued_ms": NOW_MS,
        "ttl_ms": TTL_MS,
        "valid": [
            {
                "name": name,
                "ticket": mint(ticket, signer.sign),
                "now_ms": NOW_MS,
                "principal": ticket.principal.hex(),
                "nonce": ticket.nonce.hex(),
                "uses": ticket.uses,
                "grants": [[g.end, g.scope.hex(), g.epoch, g.digest.hex()] for g in ticket.grants],
            }
            for name, ticket in (
                ("document, organisation, user", good),
                ("the caller's own alone", plain),
            )
        ],
        "invalid": [
            {"name": name, "ticket": bad, "now_ms": at, "reason": reason.value}
            for name, bad, at, reason in invalid
        ],
    }


def _text(raw: bytes | bytearray) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def keys() -> dict[str, Any]:
    root, signer = RootKey(SECRET), TicketSigner(SEED)
    listed = {"version": 1, "keys": [signer.public_key.hex()]}
    return {
        "root_key_file": SECRET.hex() + "\n",
        "derived": {
            name: root.derive(name).hex() for name in ("", "scope names", "ticket signing 1")
        },
        "public_key_file": json.dumps(listed, indent=1) + "\n",
        "key_id": signer.key_id.hex(),
        "invalid_root_keys": [
            {"name": "31 bytes", "file": "00" * 31, "reason": "config"},
            {"name": "not hex", "file": "xx" * 32, "reason": "config"},
            {"name": "empty", "file": "", "reason": "config"},
        ],
        "invalid_public_keys": [
            {"name": "of version 2", "file": json.dumps(listed | {"version": 2})},
            {"name": "without keys", "file": '{"version": 1, "keys": []}'},
            {"name": "with half a key", "file": '{"version": 1, "keys": ["00ff"]}'},
            {"name": "with no hex", "file": '{"version": 1, "keys": ["zz"]}'},
            {"name": "with a number", "file": '{"version": 1, "keys": [1]}'},
            {"name": "a bare list", "file": "[]"},
            {"name": "no JSON", "file": "{"},
        ],
    }


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


def request_log() -> dict[str, Any]:
    key = log_key(SECRET)
    segments = (
        Segment(0, 40, Scope(ScopeKind.DOCUMENT, ("doc-1",))),
        Segment(40, None, Scope(ScopeKind.USER, ("org-1", "user-1"))),
    )
    packed = encode_tokens(range(100))
    blocks, scopes = block_names(key, bytes(NAMESPACE.fingerprint()), packed, segments, (1, 2), 32)
    org, user = sender_names(key, "org-1", "user-1")
    one = LoggedRequest(NOW_MS, 100, 7, 32, blocks, scopes, org, user, 32, 12.5)
    line = encode_logged(one).decode()
    return {
        "secret": SECRET.hex(),
        "key": key.hex(),
        "namespace": NAMESPACE.fingerprint().hex(),
        "segments": [[s.scope.kind, list(s.scope.path), s.start, s.end] for s in segments],
        "epochs": [1, 2],
        "tokens": list(range(100)),
        "valid": [{"name": "a document and a question", "line": line}],
        "invalid": [
            {"name": name, "line": line.replace(old, new)}
            for name, old, new in (
                ("another format", "requests/1", "requests/2"),
                ("a name that is no name", org, "acme"),
                ("a block too few", f'"{blocks[0]}",', ""),
                ("kinds of too many blocks", '"document",1', '"document",2'),
                ("an unknown kind", '"user",2', '"planet",2'),
                ("no prompt", '"input_length":100', '"input_length":0'),
                ("a length that is text", '"input_length":100', '"input_length":"100"'),
                ("cached that is text", '"cached":32', '"cached":"32"'),
                ("no sender", '"user":"', '"sender":"'),
            )
        ],
    }


MADE = {
    "encoding": encodings,
    "scopes": scopes,
    "blocks": blocks,
    "tickets": tickets,
    "keys": keys,
    "sealing": sealing,
    "request_log": request_log,
}


def text_of(name: str) -> str:
    return json.dumps(MADE[name](), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    for made in MADE:
        (HERE / f"{made}.json").write_text(text_of(made))
