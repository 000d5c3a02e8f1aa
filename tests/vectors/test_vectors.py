"""The vectors: what other programs may rely on, byte for byte."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scopekv.adapters.ed25519 import (
    TicketSigner,
    read_public_keys,
    verifier,
    write_public_keys,
)
from scopekv.adapters.root_key import load_or_create
from scopekv.core.blocks import Fingerprint, Namespace, block_tag
from scopekv.core.chains import Chain, Link, chain_at, folder, retention_of, tag, tags_of
from scopekv.core.encoding import Value, decode, encode, encode_tokens
from scopekv.core.leases import Lease
from scopekv.core.request_log import block_names, encode_logged, log_key, read_logged
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.core.sealing import (
    ChainKeys,
    Identity,
    associated_data,
    chain_keys,
    object_name,
    read_header,
)
from scopekv.core.segments import Segment
from scopekv.core.tickets import AudienceId, KeyId, audience_id, key_id, mint, verify
from scopekv.errors import ConfigError, Corrupt, Misuse, TicketInvalid
from tests.vectors import make
from tests.vectors.fixed import SEED
from tests.vectors.tickets import good_ticket

HERE = Path(__file__).parent
NAMES = ("encoding", "scopes", "blocks", "tickets", "keys", "sealing", "request_log")


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return loaded


def cases(name: str, key: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in load(name)[key]]


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_are_those_of_this_format(name: str) -> None:
    """Red: a format changed. Then raise its version, run make.py and say so in the changelog."""
    assert (HERE / f"{name}.json").read_text() == make.text_of(name)


def value_of(written: list[Any]) -> Value:
    tag, payload = written
    if tag == "l":
        return tuple(value_of(item) for item in payload)
    if tag == "b":
        return bytes.fromhex(payload)
    return int(payload) if tag == "i" else str(payload) if tag == "s" else None


@pytest.mark.parametrize("case", cases("encoding", "valid"))
def test_encoding(case: dict[str, Any]) -> None:
    fields = tuple(value_of(field) for field in case["fields"])
    assert encode(case["domain"], *fields).hex() == case["hex"]
    assert decode(case["domain"], bytes.fromhex(case["hex"])) == fields


@pytest.mark.parametrize("case", cases("encoding", "invalid"))
def test_no_encoding(case: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        decode(case["domain"], bytes.fromhex(case["hex"]))


@pytest.mark.parametrize("case", cases("scopes", "valid"))
def test_scope_names(case: dict[str, Any]) -> None:
    secret = bytes.fromhex(load("scopes")["secret"])
    scope = Scope(ScopeKind(case["kind"]), tuple(case["path"]))
    assert (scope.id(secret).hex(), scope.salt(secret, 0)) == (case["id"], case["salt"])


@pytest.mark.parametrize("case", cases("scopes", "invalid"))
def test_no_scope(case: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Scope(ScopeKind(case["kind"]), tuple(case["path"]))


@pytest.mark.parametrize("case", cases("blocks", "valid"))
def test_block_tag(case: dict[str, Any]) -> None:
    given = load("blocks")["namespace"]
    home = Namespace(**given["fields"]).fingerprint()
    assert home.hex() == given["fingerprint"]
    run = [(ScopeId(bytes.fromhex(scope)), epoch) for scope, epoch in case["scopes"]]
    assert block_tag(home, run, bytes.fromhex(case["adapter"])) == case["tag"]


def test_all_tags_and_names_differ() -> None:
    tags = [case["tag"] for case in load("blocks")["valid"]]
    names = [case[key] for case in load("scopes")["valid"] for key in ("id", "salt")]
    assert len({*tags, *names}) == len(tags) + len(names)


def _verify(case: dict[str, Any]) -> Any:
    given = load("tickets")
    public = bytes.fromhex(given["public_key"])
    return verify(
        case["ticket"],
        keys={KeyId(bytes.fromhex(given["key_id"])): verifier(public)},
        now_ms=case["now_ms"],
        audience=AudienceId(bytes.fromhex(given["audience"])),
        namespace=Fingerprint(bytes.fromhex(given["namespace"])),
    )


@pytest.mark.parametrize("case", cases("tickets", "valid"))
def test_ticket(case: dict[str, Any]) -> None:
    given, ticket = load("tickets"), _verify(case)
    signer = TicketSigner(bytes.fromhex(given["seed"]))
    assert mint(ticket, signer.sign) == case["ticket"]
    assert signer.public_key.hex() == given["public_key"]
    assert audience_id(given["instance_group"]).hex() == given["audience"]
    assert (ticket.issued_ms, ticket.ttl_ms) == (given["issued_ms"], given["ttl_ms"])
    assert (ticket.principal.hex(), ticket.nonce.hex()) == (case["principal"], case["nonce"])
    grants = [[g.end, g.scope.hex(), g.epoch, g.digest.hex()] for g in ticket.grants]
    assert (ticket.uses, grants) == (case["uses"], case["grants"])


@pytest.mark.parametrize("case", cases("tickets", "invalid"))
def test_no_ticket(case: dict[str, Any]) -> None:
    with pytest.raises(TicketInvalid) as refusal:
        _verify(case)
    assert refusal.value.reason == case["reason"]


def test_key_files(tmp_path: Path) -> None:
    given, root, public = load("keys"), tmp_path / "root.key", tmp_path / "public.json"
    root.write_text(given["root_key_file"])
    root.chmod(0o600)
    key = load_or_create(root)
    assert {name: key.derive(name).hex() for name in given["derived"]} == given["derived"]
    raw = bytes.fromhex(json.loads(given["public_key_file"])["keys"][0])
    write_public_keys(public, [raw])
    assert public.read_text() == given["public_key_file"]
    assert [found.hex() for found in read_public_keys(public)] == [given["key_id"]]
    assert key_id(raw).hex() == given["key_id"]


@pytest.mark.parametrize("case", cases("keys", "invalid_root_keys"))
def test_no_root_key(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "root.key"
    path.write_text(case["file"])
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        load_or_create(path)


@pytest.mark.parametrize("case", cases("keys", "invalid_public_keys"))
def test_no_public_keys(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "public.json"
    path.write_text(case["file"])
    with pytest.raises(ConfigError, match="SCOPEKV_TICKET_KEYS"):
        read_public_keys(path)


def _chain(case: dict[str, Any]) -> Chain:
    return tuple(Link(ScopeId(bytes.fromhex(scope)), epoch) for scope, epoch in case["chain"])


def _keys(chain: Chain) -> ChainKeys:
    held = {scope: key for scope, _, key in load("sealing")["leases"]}
    return chain_keys(
        [
            Lease(scope, epoch, bytes.fromhex(held[scope.hex()]), 300, 86_400, bytes(16))
            for scope, epoch in chain
        ]
    )


def _open(content: bytes, identity: Identity, keys: ChainKeys, name: str) -> bytes:
    """As any reader must: header, associated data, AES-256-GCM."""
    header = content[:32]
    nonce = read_header(header, identity.size_bytes)
    bound = associated_data(header, identity, name)
    return AESGCM(keys.seal).decrypt(nonce, content[32:], bound)


@pytest.mark.parametrize("case", cases("sealing", "valid"))
def test_sealed_object(case: dict[str, Any]) -> None:
    given, chain = load("sealing"), _chain(case)
    keys, plaintext = _keys(chain), bytes.fromhex(case["plaintext"])
    identity = Identity(
        Fingerprint(bytes.fromhex(given["namespace"])),
        chain,
        bytes.fromhex(given["block_hash"]),
        0,
        len(plaintext),
    )
    assert (keys.seal.hex(), keys.name.hex()) == (case["seal_key"], case["name_key"])
    assert object_name(keys, identity) == case["object_name"]
    header = bytes.fromhex(case["header"])
    assert associated_data(header, identity, case["object_name"]).hex() == case["associated_data"]
    assert _open(bytes.fromhex(case["object"]), identity, keys, case["object_name"]) == plaintext
    assert folder(chain, 86_400) == case["folder"]
    assert tags_of(case["folder"]) == {tag(link) for link in chain} == set(case["tags"])
    assert retention_of(case["folder"]) == 86_400


@pytest.mark.parametrize("case", cases("sealing", "invalid_objects"))
def test_no_sealed_object(case: dict[str, Any]) -> None:
    given = load("sealing")
    good = next(one for one in given["valid"] if one["name"] == case["of"])
    change, chain = case["identity"], _chain(good)
    if "epoch" in change:
        chain = (chain[0]._replace(epoch=change["epoch"]), *chain[1:])
    identity = Identity(
        Fingerprint(bytes.fromhex(change.get("namespace", given["namespace"]))),
        chain,
        bytes.fromhex(change.get("block_hash", given["block_hash"])),
        change.get("group_idx", 0),
        len(bytes.fromhex(good["plaintext"])),
    )
    # The keys are the good ones on purpose: the identity alone must refuse.
    name = change.get("object_name", good["object_name"])
    with pytest.raises((Corrupt, InvalidTag)):
        _open(bytes.fromhex(case["object"]), identity, _keys(_chain(good)), name)


@pytest.mark.parametrize("case", cases("sealing", "invalid_headers"))
def test_no_header(case: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        read_header(bytes.fromhex(case["hex"]), case["size_bytes"])


@pytest.mark.parametrize("case", cases("sealing", "invalid_folders"))
def test_no_folder(case: dict[str, Any]) -> None:
    assert tags_of(case["folder"]) == frozenset()
    assert retention_of(case["folder"]) is None


def test_all_chains_differ_in_keys_names_and_folders() -> None:
    made = load("sealing")["valid"]
    for field in ("seal_key", "name_key", "object_name", "folder", "object"):
        assert len({case[field] for case in made}) == len(made)


@pytest.mark.parametrize("case", load("sealing")["chain_at"], ids=lambda case: f"{case['end']}")
def test_chain_at(case: dict[str, Any]) -> None:
    ticket = good_ticket(TicketSigner(SEED))
    assert len(chain_at(ticket.grants, case["end"])) == case["links"]


def test_the_worked_example_of_the_document_is_a_vector() -> None:
    text = (HERE.parents[1] / "docs" / "formats.md").read_text()
    block = text.split("<!-- worked example")[1].split("```")[1]
    lines = [re.match(r"[0-9a-f ]+(?= |$)", line) for line in block.strip().splitlines()]
    written = "".join(found[0] for found in lines if found).replace(" ", "")
    ticket = load("tickets")["valid"][1]["ticket"]
    raw = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
    assert written == raw.hex()


@pytest.mark.parametrize("case", cases("request_log", "valid"))
def test_a_request_log_line_reads_as_it_was_written(case: dict[str, Any]) -> None:
    told = load("request_log")
    one = read_logged(json.loads(case["line"]))
    assert encode_logged(one).decode() == case["line"]
    key = log_key(bytes.fromhex(told["secret"]))
    segments = [
        Segment(start, end, Scope(ScopeKind(kind), tuple(path)))
        for kind, path, start, end in told["segments"]
    ]
    packed = encode_tokens(told["tokens"])
    namespace = bytes.fromhex(told["namespace"])
    names = block_names(key, namespace, packed, segments, told["epochs"], one.block_tokens)
    assert (one.blocks, one.scopes) == names


@pytest.mark.parametrize("case", cases("request_log", "invalid"))
def test_what_is_no_request_log_line_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        read_logged(json.loads(case["line"]))
