"""Regenerate the valid vectors: `python -m tests.vectors.make`. A diff is a change of format.

Everything is fixed (keys, nonce, times), so a run changes nothing unless a format changed. The
invalid vectors are made from the valid ones by the edits listed below, each with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.adapters.root_key import RootKey
from scopekv.core.blocks import block_tag
from scopekv.core.encoding import Value, encode
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from tests.vectors.fixed import DOCUMENT, NAMESPACE, ORG, SECRET, SEED, USER
from tests.vectors.request_log import request_log
from tests.vectors.sealing import sealing
from tests.vectors.tickets import tickets

HERE = Path(__file__).parent
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
